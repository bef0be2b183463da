"""Rates, resource groups and what else policies say of dispatch, as official clients and commands see them.

What has passed is compared with what a bucket lets through at most in the time that a client has seen pass: a
machine that is slow makes that more, never less.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from cookbook import Book, publish
from server import Server

pulsar = pytest.importorskip("pulsar")

INTERCEPTORS = ",".join(
    f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor"
    for name in ("BrokerTimestamp", "Index")
)


IN_FLIGHT = 10
"""Messages that have come when a producer is found to be beyond its rate are let through: at most so many."""


@pytest.fixture(scope="module")
def server(start_server: Any) -> Server:
    found: Server = start_server(
        brokerEntryMetadataInterceptors=INTERCEPTORS, exposingBrokerEntryMetadataToClientEnabled="true"
    )
    assert found.ask("PUT", "/admin/v2/tenants/my-tenant", '{"allowedClusters":["standalone"]}')[0] == 204
    return found


def connect(server: Server) -> Any:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(server.url, operation_timeout_seconds=10, logger=quiet)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    found = connect(server)
    yield found
    found.close()


@pytest.fixture
def book(server: Server, capsys: pytest.CaptureFixture[str]) -> Book:
    return Book(server, capsys)


def subscribe(client: Any, book: Book, name: str, kind: Any = pulsar.ConsumerType.Shared) -> Any:
    return client.subscribe(
        book.topic, name, consumer_type=kind, initial_position=pulsar.InitialPosition.Earliest
    )


def take(consumer: Any, number: int, rate: float | None = None, burst: float = 0) -> list[int]:
    """So many messages, each acknowledged; never more of them than a bucket lets through.

    :param rate: messages a second; None for any number
    :param burst: what may come at once
    """
    found, began = [], time.monotonic()
    for count in range(1, number + 1):
        message = consumer.receive(20_000)
        if rate is not None:
            assert count <= burst + rate * (time.monotonic() - began + 0.1) + 1
        found.append(int(message.data()[:4]))
        consumer.acknowledge(message)
    return found


def publish_eagerly(client: Any, topic: str, number: int) -> None:
    """Waits for no receipt as long as fewer than :data:`IN_FLIGHT` are outstanding.

    Who waits for each is on a machine that is busy with something else slower than the rates here.
    """
    producer = client.create_producer(
        topic, batching_enabled=False, max_pending_messages=IN_FLIGHT, block_if_queue_full=True
    )
    for index in range(number):
        producer.send_async(f"{index:04}".encode(), None)
    producer.flush()
    producer.close()


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover", "KeyShared"])
def test_a_subscription_gets_no_more_than_its_rate(book: Book, client: Any, kind: str) -> None:
    publish(client, book.topic, 150)
    book.run(f"topicPolicies set-subscription-dispatch-rate {book.topic} -s slow -md 100")
    slow = subscribe(client, book, "slow", getattr(pulsar.ConsumerType, kind))
    assert take(slow, 150, 100, 100) == list(range(150))
    assert book.subscription("slow")["dispatchThrottledMsgEventsBySubscriptionLimit"] > 0
    fast = subscribe(client, book, "fast", getattr(pulsar.ConsumerType, kind))
    assert take(fast, 150) == list(range(150))
    assert book.subscription("fast")["dispatchThrottledMsgEventsBySubscriptionLimit"] == 0


def test_a_topic_s_rate_is_that_of_all_its_subscriptions(book: Book, client: Any) -> None:
    publish(client, book.topic, 40)
    book.run("namespaces set-dispatch-rate my-tenant/my-ns -md 40 -dt 1")
    assert book.json("namespaces get-dispatch-rate my-tenant/my-ns")["dispatchThrottlingRateInMsg"] == 40
    consumers = [subscribe(client, book, f"s{number}") for number in range(2)]
    began = time.monotonic()
    assert all(take(consumer, 40) == list(range(40)) for consumer in consumers)
    assert 40 + 40 * (time.monotonic() - began + 0.1) + 1 >= 80
    held = [book.subscription(f"s{number}")["dispatchThrottledMsgEventsByTopicLimit"] for number in range(2)]
    assert sum(held) > 0
    found = book.metric(
        "pulsar_subscription_dispatch_throttled_msg_events", subscription="s0", reason="topic"
    )
    assert found == held[0]


def test_a_rate_of_bytes_and_one_that_is_removed(book: Book, client: Any) -> None:
    publish(client, book.topic, 60, 1000)
    book.run(f"topicPolicies set-dispatch-rate {book.topic} -bd 20000")
    consumer = subscribe(client, book, "s")
    assert take(consumer, 30, 20, 21) == list(range(30))
    assert book.subscription()["dispatchThrottledBytesEventsByTopicLimit"] > 0
    book.run(f"topicPolicies remove-dispatch-rate {book.topic}")
    assert take(consumer, 30) == list(range(30, 60))


def test_who_subscribes_too_often_is_refused(book: Book, server: Server, client: Any) -> None:
    publish(client, book.topic, 1)
    book.run(f"topicPolicies set-subscribe-rate {book.topic} -sr 2 -st 3600")

    def once() -> None:
        own = connect(server)
        try:
            own.subscribe(book.topic, "s", consumer_name="c").close()
        finally:
            own.close()

    once()
    once()
    with pytest.raises(pulsar.NotAllowedError):
        once()
    subscribe(client, book, "another").close()
    book.run(f"topicPolicies remove-subscribe-rate {book.topic}")
    once()


def test_a_resource_group_bounds_its_namespaces(book: Book, client: Any) -> None:
    group = f"g-{book.namespace.rpartition('/')[2]}"
    book.run(f"resourcegroups create {group} -md 30")
    assert group in book.run("resourcegroups list").split()
    book.run(f"resourcegroups update {group} -bp 1000000")
    assert book.json(f"resourcegroups get {group}") == {
        "dispatchRateInMsgs": 30,
        "dispatchRateInBytes": -1,
        "publishRateInMsgs": -1,
        "publishRateInBytes": 1_000_000,
    }
    book.run(f"namespaces set-resource-group my-tenant/my-ns -rgn {group}")
    assert book.run("namespaces get-resource-group my-tenant/my-ns").strip() == group
    publish(client, book.topic, 60)
    assert take(subscribe(client, book, "s"), 60, 30, 30) == list(range(60))
    code, _out, err = book.tried(f"resourcegroups delete {group}")
    assert (code, "ResourceGroup is in use" in err) == (1, True)
    book.run("namespaces remove-resource-group my-tenant/my-ns")
    book.run(f"resourcegroups delete {group}")
    assert take(subscribe(client, book, "t"), 60) == list(range(60))


def test_a_publish_rate_slows_producers_and_refuses_nothing(book: Book, client: Any) -> None:
    publish(client, book.topic, 1)
    book.run(f"topicPolicies set-publish-rate {book.topic} -m 50")
    began = time.monotonic()
    publish_eagerly(client, book.topic, 100)
    assert 50 + 50 * (time.monotonic() - began + 0.1) + IN_FLIGHT >= 100
    assert book.stats()["publishRateLimitedTimes"] > 0


def test_rates_of_the_broker_change_while_it_runs(book: Book, client: Any) -> None:
    """For topics and consumers that are there already; what cannot be is refused and changes nothing."""

    def change(name: str, value: str) -> tuple[int, str]:
        code, _out, err = book.tried(f"brokers update-dynamic-config --config {name} --value {value}")
        return code, err

    names = ("dispatchThrottlingRatePerTopicInMsg", "maxPublishRatePerTopicInMessages")
    assert set(names) <= set(book.run("brokers list-dynamic-config").split())
    consumer = subscribe(client, book, "s")
    publish(client, book.topic, 10)
    assert take(consumer, 10) == list(range(10))
    try:
        assert change(names[0], "10") == (0, "")
        began = time.monotonic()
        publish(client, book.topic, 25)
        assert take(consumer, 25) == list(range(25))
        assert 10 + 10 * (time.monotonic() - began + 0.1) + 1 >= 25
        assert book.subscription()["dispatchThrottledMsgEventsByTopicLimit"] > 0
        book.run(f"brokers delete-dynamic-config --config {names[0]}")
        assert change(names[1], "10") == (0, "")
        began = time.monotonic()
        publish_eagerly(client, book.topic, 25)
        assert 10 + 10 * (time.monotonic() - began + 0.1) + IN_FLIGHT >= 25
        assert book.stats()["publishRateLimitedTimes"] > 0
    finally:
        for name in names:
            book.run(f"brokers delete-dynamic-config --config {name}")
    code, told = change(names[0], "many")
    assert (code, f"{names[0]}=many: must be a whole number" in told) == (1, True)
    code, told = change("clientLibraryVersionCheckEnabled", "true")
    assert (code, "it has no effect yet" in told) == (1, True)


def test_what_the_broker_writes_in_front_of_entries(book: Book, client: Any, server: Server) -> None:
    publish(client, book.topic, 3)
    producer = client.create_producer(book.topic, batching_max_publish_delay_ms=200)
    for number in range(3, 8):
        producer.send_async(f"{number:04}".encode(), lambda _result, _id: None)
    producer.flush()
    assert take(subscribe(client, book, "s"), 8) == list(range(8))
    path = f"/admin/v2/{book.topic.replace('://', '/')}/examinemessage"
    with urlopen(f"{server.http_url}{path}?initialPosition=latest&messagePosition=1") as answer:
        assert answer.headers["X-Pulsar-Broker-Entry-METADATA-index"] == "7"
        assert answer.headers["X-Pulsar-Broker-Entry-METADATA-timestamp"]


def test_pausing_is_set_and_answered(book: Book, client: Any) -> None:
    publish(client, book.topic, 1)
    for place, of in (("namespaces", "my-tenant/my-ns"), ("topicPolicies", book.topic)):
        name = "dispatcher-pause-on-ack-state-persistent"
        assert book.run(f"{place} get-{name} {of}").strip() == "false"
        book.run(f"{place} set-{name} {of}")
        assert book.run(f"{place} get-{name} {of}").strip() == "true"
        book.run(f"{place} remove-{name} {of}")
        assert book.run(f"{place} get-{name} {of}").strip() == "false"
