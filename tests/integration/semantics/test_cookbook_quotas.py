"""Pulsar's cookbook "Message retention and expiry", its part on backlog quotas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from cookbook import CHECKS, WITHIN, Book, names, publish
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
    assert (
        err == f"{book.namespace}/my-topic is not a namespace but a topic: the topic's own policy is used\n"
    )
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
    for line in (
        "namespaces get-backlog-quotas my-tenant/my-ns/nothing ",
        "namespaces remove-backlog-quota my-tenant/my-ns/nothing ",
        "namespaces set-backlog-quota my-tenant/nowhere/nothing -l 2G -p producer_request_hold",
    ):
        code, out, err = book.tried(line)
        assert (code, out) == (1, "")
        assert "Namespace" in err
        assert "does not exist" in err


def test_a_topic_that_does_not_exist_yet_gets_the_policy(book: Book) -> None:
    set_it = "namespaces set-backlog-quota my-tenant/my-ns/new -l 2G -p producer_request_hold"
    code, out, err = book.tried(set_it)
    assert (code, out) == (0, "")
    assert "did not exist and has been created" in err
    assert "limit=2147483648" in book.run("topicPolicies get-backlog-quota my-tenant/my-ns/new")
    assert "limit" not in book.run("namespaces get-backlog-quotas my-tenant/my-ns")
    assert "created" not in book.tried(set_it)[2]


def test_a_new_topic_has_partitions_where_the_namespace_says_so(book: Book) -> None:
    book.run("namespaces set-auto-topic-creation my-tenant/my-ns --enable --type partitioned -n 3")
    book.run("namespaces set-message-ttl my-tenant/my-ns/parts -ttl 60")
    assert book.json("topics get-partitioned-topic-metadata my-tenant/my-ns/parts")["partitions"] == 3
    assert book.run("topicPolicies get-message-ttl my-tenant/my-ns/parts").strip() == "60"


def test_three_parts_that_are_a_legacy_namespace(book: Book) -> None:
    legacy = f"my-tenant/standalone/old{next(names)}"
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
    until(lambda: book.subscription()["msgBacklog"] == 0, seconds=WITHIN)
    client.create_producer(book.topic).send(b"new")
    assert consumer.receive(5000).data() == b"new"
    # The producer that was held comes back by itself.
    until(lambda: sends(producer), seconds=WITHIN)


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
    until(lambda: book.subscription()["msgBacklog"] == 1, seconds=WITHIN)
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
    until(lambda: not book.stats()["publishers"], seconds=WITHIN)
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
    until(lambda: book.subscription()["backlogSize"] < 10 * 1024, seconds=WITHIN)
    left = book.subscription()["msgBacklog"]
    assert 0 < left < 25
    assert book.metric("pulsar_storage_backlog_quota_exceeded_evictions_total", quota_type="size") >= 1
    # The oldest are discarded; whoever is connected goes on behind them.
    consumer.redeliver_unacknowledged_messages()
    publish(client, book.topic, 1)
    until(lambda: book.subscription()["msgBacklog"] <= left + 1, seconds=WITHIN)
    consumer.close()
    again = client.subscribe(book.topic, "s")
    assert int(again.receive(5000).data()[:4]) >= 100 - left


def test_an_age_is_bounded(book: Book, client: Any) -> None:
    consumer = client.subscribe(book.topic, "s")
    publish(client, book.topic, 3)
    book.run(
        "namespaces set-backlog-quota my-tenant/my-ns --limitTime 2 -p producer_exception -t message_age"
    )
    until(lambda: book.stats()["oldestBacklogMessageAgeSeconds"] > 2, seconds=WITHIN)
    assert book.stats()["oldestBacklogMessageSubscriptionName"] == "s"
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(book.topic)
    until(lambda: book.metric("pulsar_storage_backlog_age_seconds") > 2, seconds=WITHIN)
    book.run("namespaces set-backlog-quota my-tenant/my-ns -lt 2 -p consumer_backlog_eviction -t message_age")
    until(lambda: book.subscription()["msgBacklog"] == 0, seconds=WITHIN)
    assert book.metric("pulsar_storage_backlog_quota_exceeded_evictions_total", quota_type="time") >= 1
    client.create_producer(book.topic).close()
    consumer.close()
