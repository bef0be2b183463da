"""Pulsar's cookbook "Message retention and expiry", line by line: its commands, its numbers, what they do.

Its part on backlog quotas: ``test_cookbook_quotas``.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cookbook import CHECKS, WITHIN, Book, publish, read
from polling import until
from server import Server

pulsar = pytest.importorskip("pulsar")


@pytest.fixture(scope="module")
def server(start_server: Any) -> Server:
    found: Server = start_server(**CHECKS)
    assert found.ask("PUT", "/admin/v2/tenants/my-tenant", '{"allowedClusters":["standalone"]}')[0] == 204
    return found


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    found = pulsar.Client(server.url, operation_timeout_seconds=10, logger=quiet)
    yield found
    found.close()


@pytest.fixture
def book(server: Server, capsys: pytest.CaptureFixture[str]) -> Book:
    return Book(server, capsys)


# Retention policies


def test_by_default_nothing_is_retained_on_a_topic_without_subscriptions(book: Book, client: Any) -> None:
    publish(client, book.topic, 35)
    until(lambda: book.stored() <= 10, seconds=WITHIN)
    # What is no longer stored on purpose may be there until the next rollover.
    assert set(read(client, book.topic)) <= set(range(30, 35))


def test_by_default_messages_go_when_all_subscriptions_have_acknowledged_them(
    book: Book, client: Any
) -> None:
    one, other = client.subscribe(book.topic, "one"), client.subscribe(book.topic, "other")
    publish(client, book.topic, 30)
    messages = [one.receive(5000) for _ in range(30)]
    one.acknowledge_cumulative(messages[-1])
    until(lambda: book.subscription("one")["msgBacklog"] == 0, seconds=WITHIN)
    assert book.subscription("other")["msgBacklog"] == 30
    assert read(client, book.topic) == list(range(30))
    for _ in range(30):
        other.acknowledge(other.receive(5000))
    until(lambda: book.stored() <= 10, seconds=WITHIN)


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


@pytest.mark.parametrize("command", ["create", "create-partitioned-topic -p 2"])
def test_whoever_creates_a_topic_is_told_that_it_is_deleted_soon_unless_something_keeps_it(
    book: Book, command: str
) -> None:
    code, out, err = book.tried(f"topics {command} my-tenant/my-ns/unused")
    assert (code, out) == (0, "")
    assert err.startswith("pulsar-admin: warning: a topic that is not used is deleted after 60 s")
    book.run(
        "namespaces set-inactive-topic-policies my-tenant/my-ns -d -t 60s -m delete_when_no_subscriptions"
    )
    assert book.tried(f"topics {command} my-tenant/my-ns/kept") == (0, "", "")


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
    # Ages are compared for single topics only.
    book.run(f"{quota} -lt 3600 -t message_age")
    book.run(f"{retention} -t 30m -s 2G")
    book.run("namespaces remove-backlog-quota my-tenant/my-ns -t message_age")
    book.run(f"topics create {book.topic}")
    own = "topicPolicies set-backlog-quota my-tenant/my-ns/my-topic -p producer_exception -t message_age"
    book.run("topicPolicies set-retention my-tenant/my-ns/my-topic -t 1h -s -1")
    assert "(HTTP 412)" in book.tried(f"{own} -lt 3600")[2]
    book.run(f"{own} -lt 3599")


def test_infinite_retention_serves_readers(book: Book, client: Any) -> None:
    book.run("namespaces set-retention my-tenant/my-ns --size -1 --time -1")
    publish(client, book.topic, 35)
    consumer = client.subscribe(book.topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(35):
        consumer.acknowledge(consumer.receive(5000))
    until(lambda: book.subscription()["msgBacklog"] == 0, seconds=WITHIN)
    time.sleep(2.5)
    assert read(client, book.topic) == list(range(35))
    book.run("namespaces set-retention my-tenant/my-ns --size 0 --time 0")
    until(lambda: book.stored() <= 10, seconds=WITHIN)


def test_a_size_limit_lets_the_oldest_go(book: Book, client: Any) -> None:
    book.run("namespaces set-retention my-tenant/my-ns --size 1M --time -1")
    publish(client, book.topic, 60, 50_000)
    # Ledgers of half a megabyte: what is left still has the megabyte, and no ledger more than that.
    until(lambda: book.stats()["storageSize"] < 1.6 * (1 << 20), seconds=WITHIN)
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
    until(lambda: book.stored() <= 10, seconds=WITHIN)


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
    until(lambda: book.subscription()["msgBacklog"] == 0, seconds=WITHIN)
    found = book.subscription()
    assert found["totalMsgExpired"] == 35
    assert found["lastExpireTimestamp"] > 0
    assert book.metric("pulsar_subscription_total_msg_expired", subscription="s") == 35
    # They are ready for deletion then.
    until(lambda: book.stored() <= 10, seconds=WITHIN)
    consumer.close()
    later = client.subscribe(book.topic, "s")
    with pytest.raises(pulsar.Timeout):
        later.receive(500)


def test_a_topic_has_a_time_to_live_of_its_own(book: Book, client: Any) -> None:
    consumer = client.subscribe(book.topic, "s")
    publish(client, book.topic, 5)
    book.run("topicPolicies set-message-ttl -t 1 my-tenant/my-ns/my-topic")
    until(lambda: book.subscription()["msgBacklog"] == 0, seconds=WITHIN)
    consumer.close()


# The page about it


def test_the_commands_of_the_page_work_as_they_stand(book: Book, client: Any) -> None:
    page = Path(__file__).parents[3] / "docs" / "retention.md"
    lines = [line.strip() for line in page.read_text().splitlines() if line.startswith("    pulsar-admin ")]
    assert len(lines) >= 10
    client.subscribe(book.topic, "sub").close()
    producer = client.create_producer(book.topic)
    first, *_ = [producer.send(b"x") for _ in range(3)]
    producer.close()
    for line in lines:
        command = line.removeprefix("pulsar-admin ").replace(
            "12:34", f"{first.ledger_id()}:{first.entry_id()}"
        )
        if command.startswith(("namespaces set-retention", "topicPolicies set-retention")):
            # They are examples of their own: quotas have to fit what is retained.
            book.run("namespaces remove-backlog-quota my-tenant/my-ns")
            book.run("namespaces remove-backlog-quota my-tenant/my-ns --type message_age")
        if "set-backlog-quota" in command:
            book.run("namespaces remove-retention my-tenant/my-ns")
        book.run(command)
