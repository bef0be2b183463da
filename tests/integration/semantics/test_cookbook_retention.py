"""Pulsar's cookbook "Message retention and expiry", line by line: its commands, its numbers, what they do."""

from __future__ import annotations

import io
import json
import shlex
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from typing import Any

import pytest
from server import Server

from magnetar.cli.pulsar_admin import main

pulsar = pytest.importorskip("pulsar")

WITHIN = 20.0
"""Seconds; checks run every second."""
_names = count()


@pytest.fixture(scope="module")
def server(start_server: Any) -> Server:
    found: Server = start_server(
        magnetarMessageExpiryCheckIntervalSeconds=1,
        backlogQuotaCheckIntervalInSeconds=1,
        retentionCheckIntervalInSeconds=1,
        preciseTimeBasedBacklogQuotaCheck="true",
        magnetarMinLedgerRolloverSeconds=0,
        managedLedgerMaxEntriesPerLedger=10,
        magnetarSegmentSizeBytes=1 << 20,
    )
    assert found.ask("PUT", "/admin/v2/tenants/my-tenant", '{"allowedClusters":["standalone"]}')[0] == 204
    return found


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    found = pulsar.Client(server.url, operation_timeout_seconds=10, logger=quiet)
    yield found
    found.close()


class Book:
    """A namespace, and ``pulsar-admin``."""

    def __init__(self, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._capsys = capsys
        self.namespace = f"my-tenant/my-ns{next(_names)}"
        self.topic = f"persistent://{self.namespace}/my-topic"
        self.run(f"namespaces create {self.namespace}")

    def tried(self, line: str) -> tuple[int, str, str]:
        """Exit code, output, errors; ``my-tenant/my-ns`` is the namespace of this test."""
        line = line.replace("my-tenant/my-ns ", f"{self.namespace} ")
        line = line.replace("my-tenant/my-ns/", f"{self.namespace}/")
        self._capsys.readouterr()
        code = main(["--admin-url", self._server.http_url, *shlex.split(line)])
        return code, *self._capsys.readouterr()

    def run(self, line: str) -> str:
        code, out, err = self.tried(line + " ")
        assert code == 0, (line, out, err)
        return out

    def json(self, line: str) -> Any:
        text = self.run(line)
        return json.loads(text) if text.strip() else None

    def stats(self, flags: str = "") -> Any:
        return self.json(f"topics stats {flags} {self.topic}")

    def subscription(self, name: str = "s") -> Any:
        return self.stats()["subscriptions"][name]

    def stored(self) -> int:
        """Entries that are there."""
        found: int = self.json(f"topics stats-internal {self.topic}")["numberOfEntries"]
        return found

    def metric(self, name: str, **labels: str) -> float:
        wanted = {"topic": self.topic, **labels}
        for line in self._server.ask("GET", "/metrics/")[1].decode().splitlines():
            inside = line.partition("{")[2].rpartition("}")[0]
            if line.startswith(name + "{") and all(f'{k}="{v}"' in inside for k, v in wanted.items()):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no {name} with {wanted}")


@pytest.fixture
def book(server: Server, capsys: pytest.CaptureFixture[str]) -> Book:
    return Book(server, capsys)


def soon(check: Callable[[], Any]) -> None:
    """Waits until it holds."""
    ends = time.monotonic() + WITHIN
    while not check():
        assert time.monotonic() < ends, "it never became true"
        time.sleep(0.2)


def publish(client: Any, topic: str, number: int, size: int = 10) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for index in range(number):
        producer.send(f"{index:04}".encode() + bytes(size))
    producer.close()


def read(client: Any, topic: str) -> list[int]:
    """What a reader gets from the earliest message on."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(5000).data()[:4]))
    reader.close()
    return found


# Retention policies


def test_by_default_nothing_is_retained_on_a_topic_without_subscriptions(book: Book, client: Any) -> None:
    publish(client, book.topic, 35)
    soon(lambda: book.stored() <= 10)
    # What is no longer stored on purpose may be there until the next rollover.
    assert set(read(client, book.topic)) <= set(range(30, 35))


def test_by_default_messages_go_when_all_subscriptions_have_acknowledged_them(
    book: Book, client: Any
) -> None:
    one, other = client.subscribe(book.topic, "one"), client.subscribe(book.topic, "other")
    publish(client, book.topic, 30)
    messages = [one.receive(5000) for _ in range(30)]
    one.acknowledge_cumulative(messages[-1])
    soon(lambda: book.subscription("one")["msgBacklog"] == 0)
    assert book.subscription("other")["msgBacklog"] == 30
    assert read(client, book.topic) == list(range(30))
    for _ in range(30):
        other.acknowledge(other.receive(5000))
    soon(lambda: book.stored() <= 10)


@pytest.mark.parametrize(
    ("flags", "minutes", "megabytes"),
    [
        ("--size 10G --time 3h", 180, 10 * 1024),
        ("--size 1T --time -1", -1, 1024 * 1024),
        ("--size -1 --time 3h", 180, -1),
        ("--size -1 --time -1", -1, -1),
        ("--size 0 --time 0", 0, 0),
        ("-s 500M -t 10m", 10, 500),
    ],
)
def test_set_and_get_retention(book: Book, flags: str, minutes: int, megabytes: int) -> None:
    assert book.json("namespaces get-retention my-tenant/my-ns") is None
    book.run(f"namespaces set-retention my-tenant/my-ns {flags}")
    wanted = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
    text = book.run("namespaces get-retention my-tenant/my-ns")
    assert json.loads(text) == wanted
    assert text.index("retentionTimeInMinutes") < text.index("retentionSizeInMB")
    book.run(f"topics create {book.topic}")
    applied = book.json("topicPolicies get-retention --applied my-tenant/my-ns/my-topic")
    assert applied == wanted
    book.run("namespaces remove-retention my-tenant/my-ns")
    assert book.json("namespaces get-retention my-tenant/my-ns") is None


@pytest.mark.parametrize("flags", ["--size 0 --time 3h", "--size 10G --time 0", "--size -2 --time 3h"])
def test_what_is_no_retention_is_refused(book: Book, flags: str) -> None:
    code, out, err = book.tried(f"namespaces set-retention my-tenant/my-ns {flags}")
    assert (code, out) == (1, "")
    assert "Invalid retention policy" in err
    assert book.json("namespaces get-retention my-tenant/my-ns") is None


def test_retention_and_quotas_have_to_fit(book: Book) -> None:
    """What Apache Pulsar refuses, it refuses."""
    quota = "namespaces set-backlog-quota my-tenant/my-ns -p producer_exception"
    retention = "namespaces set-retention my-tenant/my-ns"
    book.run(f"{quota} -l 1G")
    for flags in ("-t 1h -s 500M", "-t 1h -s 1G", "-t -1 -s 500M"):
        assert "(HTTP 412)" in book.tried(f"{retention} {flags}")[2]
    for flags in ("-t 1h -s 2G", "-t 0 -s 0", "-t -1 -s -1", "-t 1h -s 2G"):
        book.run(f"{retention} {flags}")
    assert "(HTTP 412)" in book.tried(f"{quota} -l 2G")[2]
    assert "(HTTP 412)" in book.tried(f"{quota} -lt 3600 -t message_age")[2]
    book.run(f"{quota} -lt 3599 -t message_age")
    book.run(f"{retention} -t 30m -s 2G")


def test_infinite_retention_serves_readers(book: Book, client: Any) -> None:
    book.run("namespaces set-retention my-tenant/my-ns --size -1 --time -1")
    publish(client, book.topic, 35)
    consumer = client.subscribe(book.topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(35):
        consumer.acknowledge(consumer.receive(5000))
    soon(lambda: book.subscription()["msgBacklog"] == 0)
    time.sleep(2.5)
    assert read(client, book.topic) == list(range(35))
    book.run("namespaces set-retention my-tenant/my-ns --size 0 --time 0")
    soon(lambda: book.stored() <= 10)


def test_a_size_limit_lets_the_oldest_go(book: Book, client: Any) -> None:
    book.run("namespaces set-retention my-tenant/my-ns --size 1M --time -1")
    publish(client, book.topic, 60, 50_000)
    # Ledgers of half a megabyte: what is left still has the megabyte, and no ledger more than that.
    soon(lambda: book.stats()["storageSize"] < 1.6 * (1 << 20))
    left = read(client, book.topic)
    assert left == list(range(left[0], 60))
    assert 20 <= len(left) < 40


def test_retention_does_not_touch_a_backlog(book: Book, client: Any) -> None:
    book.run("namespaces set-retention my-tenant/my-ns --size 1M --time 3h")
    consumer = client.subscribe(book.topic, "s")
    publish(client, book.topic, 60, 50_000)
    time.sleep(2.5)
    assert book.subscription()["msgBacklog"] == 60
    assert [int(consumer.receive(5000).data()[:4]) for _ in range(60)] == list(range(60))


def test_a_topic_has_a_retention_of_its_own(book: Book, client: Any) -> None:
    book.run(f"topics create {book.topic}")
    book.run("topicPolicies set-retention my-tenant/my-ns/my-topic -s -1 -t -1")
    publish(client, book.topic, 25)
    time.sleep(2.5)
    assert book.stored() == 25
    book.run("topicPolicies remove-retention my-tenant/my-ns/my-topic")
    soon(lambda: book.stored() <= 10)


# Backlog quotas


def test_set_get_and_remove_backlog_quotas(book: Book, client: Any) -> None:
    publish(client, book.topic, 1)
    book.run("namespaces set-backlog-quota my-tenant/my-ns --limit 2G --policy producer_request_hold")
    text = book.run("namespaces get-backlog-quotas my-tenant/my-ns")
    assert text.startswith("destination_storage")
    assert "limit=2147483648" in text
    assert "policy=producer_request_hold" in text
    code, out, err = book.tried(
        "namespaces set-backlog-quota my-tenant/my-ns/my-topic "
        "--limitTime 3600 --policy producer_request_hold --type message_age"
    )
    assert (code, out) == (0, "")
    assert err == f"{book.namespace}/my-topic is no namespace but a topic: its own policy is meant\n"
    assert "message_age" not in book.run("namespaces get-backlog-quotas my-tenant/my-ns")
    text = book.run("topicPolicies get-backlog-quota my-tenant/my-ns/my-topic")
    assert "message_age" in text
    assert "limitTime=3600" in text
    found = book.stats()
    assert (found["backlogQuotaLimitSize"], found["backlogQuotaLimitTime"]) == (2147483648, 3600)
    assert book.metric("pulsar_storage_backlog_quota_limit") == 2147483648
    assert book.metric("pulsar_storage_backlog_quota_limit_time") == 3600
    book.run("namespaces remove-backlog-quota my-tenant/my-ns")
    assert "destination_storage" not in book.run("namespaces get-backlog-quotas my-tenant/my-ns")
    book.run("namespaces remove-backlog-quota my-tenant/my-ns/my-topic --type message_age")
    assert book.stats()["backlogQuotaLimitTime"] == -1


def test_three_parts_that_are_neither_namespace_nor_topic(book: Book) -> None:
    code, out, err = book.tried(
        "namespaces set-backlog-quota my-tenant/my-ns/nothing -l 2G -p producer_request_hold"
    )
    assert (code, out) == (1, "")
    assert "Namespace" in err
    assert "does not exist" in err


def test_three_parts_that_are_a_legacy_namespace(book: Book) -> None:
    legacy = f"my-tenant/standalone/old{next(_names)}"
    book.run(f"namespaces create {legacy}")
    code, out, err = book.tried(
        f"namespaces set-backlog-quota {legacy} -lt 3600 -p producer_exception -t message_age"
    )
    assert (code, out, err) == (0, "", "")
    assert "limitTime=3600" in book.run(f"namespaces get-backlog-quotas {legacy}")


def test_producer_request_hold(book: Book, client: Any) -> None:
    consumer = client.subscribe(book.topic, "s")
    producer = client.create_producer(book.topic, send_timeout_millis=3000)
    book.run("namespaces set-backlog-quota my-tenant/my-ns --limit 2000 --policy producer_request_hold")
    sent = sent_until(producer, pulsar.Timeout)
    # What was acknowledged to the producer is there, once; what it holds is not.
    assert book.subscription()["msgBacklog"] == sent
    assert book.stats()["publishers"] == []
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededError):
        client.create_producer(book.topic)
    for _ in range(sent):
        consumer.acknowledge(consumer.receive(5000))
    soon(lambda: book.subscription()["msgBacklog"] == 0)
    client.create_producer(book.topic).send(b"new")
    assert consumer.receive(5000).data() == b"new"
    # The producer that was held comes back by itself.
    soon(lambda: sends(producer))


def sent_until(producer: Any, error: type[Exception]) -> int:
    """How many messages were sent before one failed."""
    for number in range(200):
        try:
            producer.send(bytes(200))
        except error:
            return number
        time.sleep(0.1)
    raise AssertionError("nothing stopped the producer")


def sends(producer: Any) -> bool:
    try:
        producer.send(b"again")
    except pulsar.PulsarException:
        return False
    return True


def test_producer_exception(book: Book, client: Any) -> None:
    consumer = client.subscribe(book.topic, "s")
    producer = client.create_producer(book.topic, send_timeout_millis=5000)
    book.run("namespaces set-backlog-quota my-tenant/my-ns --limit 2000 --policy producer_exception")
    sent = sent_until(producer, pulsar.ProducerBlockedQuotaExceededException)
    assert book.subscription()["msgBacklog"] == sent
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(book.topic)
    book.run(f"topics clear-backlog -s s {book.topic}")
    client.create_producer(book.topic).send(b"new")
    soon(lambda: book.subscription()["msgBacklog"] == 1)
    consumer.close()


def test_what_a_held_producer_sends_arrives_once(book: Book, client: Any) -> None:
    """It is closed and let in again while it sends as fast as it can."""
    number = 6000
    consumer = client.subscribe(book.topic, "s")
    book.run("namespaces set-backlog-quota my-tenant/my-ns --limit 100K --policy producer_request_hold")
    producer = client.create_producer(
        book.topic,
        send_timeout_millis=0,
        batching_enabled=False,
        max_pending_messages=number,
        block_if_queue_full=True,
    )
    results: list[Any] = []
    for index in range(number):
        producer.send_async(b"%06d" % index + bytes(100), lambda result, _where: results.append(result))
        if index % 100 == 0:
            time.sleep(0.02)
    soon(lambda: not book.stats()["publishers"])
    found = []
    while len(found) < number:
        message = consumer.receive(30_000)
        found.append(int(message.data()[:6]))
        consumer.acknowledge(message)
    assert found == list(range(number))
    producer.flush()
    assert results == [pulsar.Result.Ok] * number
    with pytest.raises(pulsar.Timeout):
        consumer.receive(500)


def test_consumer_backlog_eviction(book: Book, client: Any) -> None:
    consumer = client.subscribe(book.topic, "s")
    book.run("namespaces set-backlog-quota my-tenant/my-ns --limit 10K --policy consumer_backlog_eviction")
    publish(client, book.topic, 100, 500)
    soon(lambda: book.subscription()["backlogSize"] < 10 * 1024)
    left = book.subscription()["msgBacklog"]
    assert 0 < left < 25
    assert book.metric("pulsar_storage_backlog_quota_exceeded_evictions_total", quota_type="size") >= 1
    # The oldest are discarded; whoever is connected goes on behind them.
    consumer.redeliver_unacknowledged_messages()
    publish(client, book.topic, 1)
    soon(lambda: book.subscription()["msgBacklog"] <= left + 1)
    consumer.close()
    again = client.subscribe(book.topic, "s")
    assert int(again.receive(5000).data()[:4]) >= 100 - left


def test_an_age_is_bounded(book: Book, client: Any) -> None:
    consumer = client.subscribe(book.topic, "s")
    publish(client, book.topic, 3)
    book.run(
        "namespaces set-backlog-quota my-tenant/my-ns --limitTime 2 -p producer_exception -t message_age"
    )
    soon(lambda: book.stats()["oldestBacklogMessageAgeSeconds"] > 2)
    assert book.stats()["oldestBacklogMessageSubscriptionName"] == "s"
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(book.topic)
    soon(lambda: book.metric("pulsar_storage_backlog_age_seconds") > 2)
    book.run("namespaces set-backlog-quota my-tenant/my-ns -lt 2 -p consumer_backlog_eviction -t message_age")
    soon(lambda: book.subscription()["msgBacklog"] == 0)
    assert book.metric("pulsar_storage_backlog_quota_exceeded_evictions_total", quota_type="time") >= 1
    client.create_producer(book.topic).close()
    consumer.close()


# Clear backlog


def test_clear_backlog_asks_first(book: Book, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    consumers = [client.subscribe(book.topic, name) for name in ("s", "t")]
    publish(client, book.topic, 5)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "(Y or N)" in book.run("namespaces clear-backlog my-tenant/my-ns")
    assert book.subscription()["msgBacklog"] == 5
    monkeypatch.setattr("sys.stdin", io.StringIO("Y\n"))
    book.run("namespaces clear-backlog my-tenant/my-ns --sub s")
    assert (book.subscription("s")["msgBacklog"], book.subscription("t")["msgBacklog"]) == (0, 5)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert book.tried("namespaces clear-backlog my-tenant/my-ns ")[0] == 1
    assert book.run("namespaces clear-backlog my-tenant/my-ns -f") == ""
    assert book.subscription("t")["msgBacklog"] == 0
    for consumer in consumers:
        consumer.close()


def test_clear_backlog_of_a_bundle(book: Book, client: Any) -> None:
    client.subscribe(book.topic, "s").close()
    publish(client, book.topic, 5)
    mine = book.run(f"topics bundle-range {book.topic}").strip()
    bundles = book.json("namespaces bundles my-tenant/my-ns")["boundaries"]
    ranges = [f"{low}_{high}" for low, high in pairwise(bundles)]
    assert mine in ranges
    for other in ranges:
        if other != mine:
            book.run(f"namespaces clear-backlog my-tenant/my-ns -force -b {other}")
    assert book.subscription()["msgBacklog"] == 5
    book.run(f"namespaces clear-backlog my-tenant/my-ns --force --bundle {mine}")
    assert book.subscription()["msgBacklog"] == 0


# Time to live


def test_set_get_and_remove_message_ttl(book: Book) -> None:
    assert book.run("namespaces get-message-ttl my-tenant/my-ns").strip() == "null"
    book.run("namespaces set-message-ttl my-tenant/my-ns --messageTTL 120")
    assert book.run("namespaces get-message-ttl my-tenant/my-ns").strip() == "120"
    book.run(f"topics create {book.topic}")
    assert book.run("topicPolicies get-message-ttl -ap my-tenant/my-ns/my-topic").strip() == "120"
    book.run("namespaces remove-message-ttl my-tenant/my-ns")
    assert book.run("namespaces get-message-ttl my-tenant/my-ns").strip() == "null"
    code, _out, err = book.tried("namespaces set-message-ttl my-tenant/my-ns -ttl -1")
    assert code == 1
    assert "TTL" in err


def test_messages_nobody_acknowledges_in_time_are_acknowledged(book: Book, client: Any) -> None:
    consumer = client.subscribe(book.topic, "s")
    publish(client, book.topic, 35)
    for _ in range(3):
        consumer.receive(5000)
    book.run("namespaces set-message-ttl my-tenant/my-ns --messageTTL 2")
    soon(lambda: book.subscription()["msgBacklog"] == 0)
    found = book.subscription()
    assert found["totalMsgExpired"] == 35
    assert found["lastExpireTimestamp"] > 0
    assert book.metric("pulsar_subscription_total_msg_expired", subscription="s") == 35
    # They are ready for deletion then.
    soon(lambda: book.stored() <= 10)
    consumer.close()
    later = client.subscribe(book.topic, "s")
    with pytest.raises(pulsar.Timeout):
        later.receive(500)


def test_a_topic_has_a_time_to_live_of_its_own(book: Book, client: Any) -> None:
    consumer = client.subscribe(book.topic, "s")
    publish(client, book.topic, 5)
    book.run("topicPolicies set-message-ttl -t 1 my-tenant/my-ns/my-topic")
    soon(lambda: book.subscription()["msgBacklog"] == 0)
    consumer.close()
