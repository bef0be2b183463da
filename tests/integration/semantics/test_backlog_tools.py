"""What operators do with backlogs: expire, skip, clear, look, truncate; answers are Apache Pulsar's."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.request import Request, urlopen

import pytest
from server import Server

from magnetar.cli.pulsar_admin import main

pulsar = pytest.importorskip("pulsar")

_names = count()


@pytest.fixture(scope="module")
def server(start_server: Any) -> Server:
    found: Server = start_server(
        magnetarMinLedgerRolloverSeconds=0,
        managedLedgerMaxEntriesPerLedger=10,
        defaultRetentionTimeInMinutes=-1,
        defaultRetentionSizeInMB=-1,
        acknowledgmentAtBatchIndexLevelEnabled="true",
    )
    return found


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    found = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield found
    found.close()


class Desk:
    """One topic, and ``pulsar-admin``."""

    def __init__(self, server: Server, client: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self.client = client
        self._capsys = capsys
        self.topic = f"persistent://public/default/desk{next(_names)}"

    def tried(self, line: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(["--admin-url", self.server.http_url, *shlex.split(line.replace("TOPIC", self.topic))])
        return code, *self._capsys.readouterr()

    def run(self, line: str) -> str:
        code, out, err = self.tried(line)
        assert code == 0, (line, out, err)
        return out

    def refused(self, line: str, status: int) -> str:
        code, out, err = self.tried(line)
        assert (code, out) == (1, ""), (line, out)
        assert f"(HTTP {status})" in err
        return err

    def subscription(self, name: str = "s", flags: str = "") -> Any:
        return json.loads(self.run(f"topics stats TOPIC {flags}"))["subscriptions"][name]

    def backlog(self, name: str = "s") -> int:
        found: int = self.subscription(name)["msgBacklog"]
        return found

    def publish(self, number: int, **more: Any) -> list[Any]:
        producer = self.client.create_producer(self.topic, **more)
        ids: list[Any] = []
        for index in range(number):
            producer.send_async(b"%d" % index, lambda _result, where: ids.append(where))
        producer.flush()
        producer.close()
        return ids


@pytest.fixture
def desk(server: Server, client: Any, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(server, client, capsys)


def test_expire_by_time(desk: Desk) -> None:
    consumer = desk.client.subscribe(desk.topic, "s")
    desk.publish(25, batching_enabled=False)
    time.sleep(2.1)
    desk.publish(5, batching_enabled=False)
    desk.refused("topics expire-messages TOPIC -s s -t 1000", 409)
    desk.run("topics expire-messages TOPIC -s s -t 2s")
    found = desk.subscription()
    assert (found["msgBacklog"], found["totalMsgExpired"]) == (5, 25)
    desk.refused("topics expire-messages TOPIC -s nobody -t 1", 404)
    time.sleep(1.1)
    # As a time to live, 0 is never: with a consumer there is nothing to do, without one nothing happens.
    desk.refused("topics expire-messages TOPIC -s s -t 0", 409)
    consumer.close()
    desk.run("topics expire-messages TOPIC -s s -t 0")
    desk.run("topics expire-messages-all-subscriptions TOPIC -t 0")
    assert desk.backlog() == 5
    desk.run("topics expire-messages TOPIC -s s -t 1")
    assert desk.backlog() == 0
    err = desk.refused("topics expire-messages TOPIC -s s -t 1", 409)
    assert "not issued on topic" in err
    assert desk.tried("topics expire-messages TOPIC -s s")[0] == 1
    assert desk.tried("topics expire-messages TOPIC -s s -t 1 -p 1:1")[0] == 1
    path = desk.topic.replace("://", "/")
    assert desk.server.ask("POST", f"/admin/v2/{path}/subscription/s/expireMessages/-1")[0] == 400
    assert desk.server.ask("POST", f"/admin/v2/{path}/subscription/s/expireMessages/x")[0] == 404


def test_expire_by_position(desk: Desk) -> None:
    consumer = desk.client.subscribe(desk.topic, "s")
    first, *_, last = desk.publish(6, batching_enabled=False)
    ledger = first.ledger_id()
    desk.run(f"topics expire-messages TOPIC -s s -p {ledger}:1")
    assert desk.backlog() == 4
    desk.run(f"topics expire-messages TOPIC -s s -p {ledger}:2 --exclude-reset-position")
    assert desk.backlog() == 2
    err = desk.refused(f"topics expire-messages TOPIC -s s -p {ledger}:77", 409)
    assert "invalid message position" in err
    desk.run(f"topics expire-messages TOPIC -s s -p {ledger}:{last.entry_id()}")
    found = desk.subscription()
    assert (found["msgBacklog"], found["totalMsgExpired"]) == (0, 6)
    consumer.close()


def test_expire_for_all_subscriptions_and_partitions(desk: Desk) -> None:
    desk.run("topics create-partitioned-topic -p 3 TOPIC")
    consumers = [desk.client.subscribe(desk.topic, name) for name in ("s", "t")]
    desk.publish(30, batching_enabled=False)
    time.sleep(1.2)
    desk.run("topics expire-messages-all-subscriptions TOPIC -t 1")
    stats = json.loads(desk.run("topics partitioned-stats TOPIC"))
    assert {name: found["msgBacklog"] for name, found in stats["subscriptions"].items()} == {"s": 0, "t": 0}
    assert sum(found["totalMsgExpired"] for found in stats["subscriptions"].values()) == 60
    desk.refused("topics expire-messages-all-subscriptions TOPIC -t 1", 409)
    desk.refused("topics expire-messages TOPIC -s s -p 1:1", 405)
    for consumer in consumers:
        consumer.close()


def test_batches_expire_as_a_whole(desk: Desk) -> None:
    consumer = desk.client.subscribe(desk.topic, "s", consumer_type=pulsar.ConsumerType.KeyShared)
    desk.publish(40, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=500)
    taken = [consumer.receive(5000) for _ in range(40)]
    for message in taken[3:7]:
        consumer.acknowledge(message)
    time.sleep(1.2)
    desk.run("topics expire-messages TOPIC -s s -t 1")
    found = desk.subscription()
    assert (found["msgBacklog"], found["unackedMessages"]) == (0, 0)
    # Late acknowledgements of what has expired harm nothing.
    for message in taken:
        consumer.acknowledge(message)
    desk.publish(1)
    assert consumer.receive(5000).data() == b"0"
    consumer.close()


def test_keys_that_wait_for_another_consumer_go_on_when_they_expire(desk: Desk) -> None:
    """Key_Shared: slots drain when what their former consumer holds has expired."""
    kind = pulsar.ConsumerType.KeyShared
    former = desk.client.subscribe(desk.topic, "s", consumer_type=kind, consumer_name="former")
    producer = desk.client.create_producer(desk.topic, batching_enabled=False)

    def publish(number: int) -> Any:
        return [producer.send(b"%d" % n, partition_key=f"k{n % 20}") for n in range(number)][-1]

    last = publish(40)
    for _ in range(40):
        former.receive(5000)
    newer = desk.client.subscribe(desk.topic, "s", consumer_type=kind, consumer_name="newer")
    publish(40)
    with pytest.raises(pulsar.Timeout):
        newer.receive(500)
    desk.run(f"topics expire-messages TOPIC -s s -p {last.ledger_id()}:{last.entry_id()}")
    found = [newer.receive(5000)]
    for consumer in (newer, former):
        try:
            while True:
                found.append(consumer.receive(1000))
        except pulsar.Timeout:
            continue
    assert sorted(int(message.data()) for message in found) == list(range(40))
    producer.close()
    newer.close()
    former.close()


def test_delayed_messages_expire_too(desk: Desk) -> None:
    consumer = desk.client.subscribe(desk.topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = desk.client.create_producer(desk.topic, batching_enabled=False)
    deliver_at = int(time.time() * 1000) + 3_600_000
    for _ in range(3):
        producer.send(b"later", deliver_at=deliver_at)
    time.sleep(1.2)
    desk.run("topics expire-messages TOPIC -s s -t 1")
    assert desk.backlog() == 0
    consumer.close()


def test_skip_frees_a_consumer_that_is_blocked(desk: Desk) -> None:
    assert desk.server.ask("POST", "/admin/v2/namespaces/public/default/maxUnackedMessagesPerConsumer", "10")[
        0
    ] in (200, 204)
    consumer = desk.client.subscribe(desk.topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    desk.publish(30, batching_enabled=False)
    for _ in range(10):
        consumer.receive(5000)
    assert desk.subscription()["consumers"][0]["blockedConsumerOnUnackedMsgs"] is True
    desk.run("topics skip TOPIC -s s -n 10")
    assert sorted(int(consumer.receive(5000).data()) for _ in range(10)) == list(range(10, 20))
    desk.run("topics clear-backlog TOPIC -s s")
    found = desk.subscription()
    assert (found["msgBacklog"], found["unackedMessages"]) == (0, 0)
    consumer.close()
    assert desk.server.ask("DELETE", "/admin/v2/namespaces/public/default/maxUnackedMessagesPerConsumer")[
        0
    ] in (200, 204)


def test_reset_cursor_by_time_and_by_message(desk: Desk) -> None:
    consumer = desk.client.subscribe(desk.topic, "s")
    ids = desk.publish(12, batching_enabled=False)
    time.sleep(2.1)
    desk.publish(3, batching_enabled=False)
    desk.run("topics clear-backlog TOPIC -s s")
    desk.run("topics reset-cursor TOPIC -s s --time 2s")
    assert desk.backlog() == 3
    desk.run("topics reset-cursor TOPIC -s s --time 1h")
    assert desk.backlog() == 15
    where = f"{ids[4].ledger_id()}:{ids[4].entry_id()}"
    desk.run(f"topics reset-cursor TOPIC -s s --messageId {where}")
    assert desk.backlog() == 11
    desk.run(f"topics reset-cursor TOPIC -s s --messageId {where} --exclude-reset-position")
    assert desk.backlog() == 10
    desk.run("topics reset-cursor TOPIC -s s -m latest")
    assert desk.backlog() == 0
    desk.run("topics reset-cursor TOPIC -s s -m earliest")
    assert desk.backlog() == 15
    consumer.close()


@pytest.mark.parametrize(
    ("batch_index", "excluded", "expected"),
    [(-1, False, 5), (0, False, 5), (3, False, 2), (3, True, 1), (4, True, 0), (-1, True, 0), (9, True, 0)],
)
def test_reset_cursor_into_a_batch(desk: Desk, batch_index: int, excluded: bool, expected: int) -> None:
    desk.client.subscribe(desk.topic, "s").close()
    ids = desk.publish(5, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=500)
    desk.run("topics clear-backlog TOPIC -s s")
    assert len({each.entry_id() for each in ids}) == 1
    # As Pulsar's Java client writes it; its command line names entries only.
    where = {"ledgerId": ids[0].ledger_id(), "entryId": ids[0].entry_id()}
    body = {**where, "partitionIndex": -1, "batchIndex": batch_index, "excluded": excluded}
    path = f"/admin/v2/{desk.topic.replace('://', '/')}/subscription/s/resetcursor"
    asked = Request(f"{desk.server.http_url}{path}", json.dumps(body).encode(), method="POST")
    with urlopen(asked) as answer:
        assert answer.status == 204
    consumer = desk.client.subscribe(desk.topic, "s", pulsar.ConsumerType.Shared)
    got = [consumer.receive(5000).data() for _ in range(expected)]
    assert got == [b"%d" % index for index in range(5 - expected, 5)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(100)
    consumer.close()


def test_analyze_backlog(desk: Desk) -> None:
    consumer = desk.client.subscribe(desk.topic, "s")
    ids = desk.publish(25, batching_enabled=False)
    desk.publish(8, batching_enabled=True, batching_max_messages=4, batching_max_publish_delay_ms=500)
    consumer.acknowledge(consumer.receive(5000))
    consumer.close()
    found = json.loads(desk.run("topics analyze-backlog TOPIC -s s"))
    assert (found["entries"], found["messages"], found["aborted"]) == (26, 32, False)
    assert (found["filterAcceptedEntries"], found["filterAcceptedMessages"]) == (26, 32)
    assert found["firstMessageId"] == f"{ids[1].ledger_id()}:{ids[1].entry_id()}"
    where = f"{ids[20].ledger_id()}:{ids[20].entry_id()}"
    found = json.loads(desk.run(f"topics analyze-backlog TOPIC -s s -p {where}"))
    assert (found["entries"], found["messages"], found["firstMessageId"]) == (7, 13, where)
    desk.refused("topics analyze-backlog TOPIC -s nobody", 404)
    desk.run("topics clear-backlog TOPIC -s s")
    found = json.loads(desk.run("topics analyze-backlog TOPIC -s s"))
    assert found["entries"] == 0
    assert "firstMessageId" not in found


def test_a_long_backlog_is_analyzed_within_bounds(
    start_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server(subscriptionBacklogScanMaxEntries=7)
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    desk = Desk(server, client, capsys)
    client.subscribe(desk.topic, "s").close()
    desk.publish(20, batching_enabled=False)
    found = json.loads(desk.run("topics analyze-backlog TOPIC -s s"))
    assert (found["entries"], found["aborted"]) == (7, True)
    client.close()


def test_truncate(desk: Desk) -> None:
    consumer = desk.client.subscribe(desk.topic, "s")
    desk.publish(35, batching_enabled=False)
    for _ in range(5):
        consumer.receive(5000)
    desk.run("topics truncate TOPIC")
    assert desk.backlog() == 0
    assert json.loads(desk.run("topics stats-internal TOPIC"))["numberOfEntries"] == 0
    assert json.loads(desk.run("topics stats TOPIC"))["storageSize"] == 0
    reader = desk.client.create_reader(desk.topic, pulsar.MessageId.earliest)
    assert not reader.has_message_available()
    # It goes on from there.
    consumer.close()
    consumer = desk.client.subscribe(desk.topic, "s")
    desk.publish(2, batching_enabled=False)
    assert [consumer.receive(5000).data() for _ in range(2)] == [b"0", b"1"]
    assert reader.read_next(5000).data() == b"0"
    desk.refused(f"topics truncate {desk.topic}none", 404)
    reader.close()
    consumer.close()


def test_truncate_a_partitioned_topic_while_it_is_published_to(desk: Desk) -> None:
    desk.run("topics create-partitioned-topic -p 2 TOPIC")
    producer = desk.client.create_producer(desk.topic, batching_enabled=False)
    sent: list[Any] = []
    for index in range(400):
        producer.send_async(b"%d" % index, lambda result, _where: sent.append(result))
        if index % 100 == 50:
            desk.run("topics truncate TOPIC")
    producer.flush()
    producer.close()
    assert sent == [pulsar.Result.Ok] * 400
    desk.run("topics truncate TOPIC")
    assert json.loads(desk.run("topics partitioned-stats TOPIC"))["storageSize"] == 0


def test_sizes_and_times_of_a_backlog(desk: Desk) -> None:
    consumer = desk.client.subscribe(desk.topic, "s")
    before = int(time.time() * 1000)
    desk.publish(20, batching_enabled=False)
    for _ in range(5):
        consumer.acknowledge(consumer.receive(5000))
    consumer.close()
    for flags in ("", "-gpb"):
        found = desk.subscription(flags=f"{flags} -etb")
        assert found["msgBacklog"] == 15
        assert before <= found["earliestMsgPublishTimeInBacklog"] <= int(time.time() * 1000)
    size = json.loads(desk.run("topics stats TOPIC"))["storageSize"]
    assert found["backlogSize"] in range(size * 14 // 20, size * 16 // 20)
    assert int(desk.run("topics get-backlog-size TOPIC -m earliest")) == size
    where = f"/admin/v2/{desk.topic.replace('://', '/')}"
    status, body = desk.server.ask("GET", f"{where}/backlog")
    found = json.loads(body)
    assert (status, found["storageSize"], found["totalMessages"], found["messageBacklog"]) == (
        200,
        size,
        20,
        15,
    )
    status, body = desk.server.ask("GET", f"{where}none/backlog")
    assert (status, json.loads(body)["storageSize"]) == (200, 0)
    assert desk.server.ask("GET", "/admin/v2/persistent/public/nowhere/t/backlog")[0] == 404


def test_quotas_are_looked_at_when_an_operator_says_so(desk: Desk) -> None:
    """The server looks by itself once a minute."""
    consumer = desk.client.subscribe(desk.topic, "s")
    desk.publish(30, batching_enabled=False)
    desk.run("topicPolicies set-backlog-quota TOPIC -l 500 -p consumer_backlog_eviction")
    assert desk.backlog() == 30
    desk.run("brokers backlog-quota-check")
    assert 0 < desk.backlog() < 15
    consumer.close()
