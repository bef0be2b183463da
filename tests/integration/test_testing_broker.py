"""Brokers of the pytest plugin: clocks and faults, and the official Python client through all of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pulsar
import pytest
from polling import until

from magnetar.testing import Broker, BrokerNotStarted, BrokerRefused, ServerErrorCode
from magnetar.testing.channel import Channel

MILLISECONDS = 20_000
"""Time for what comes; a test that passes waits for none of it."""
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn)


def connected(broker: Broker, **options: Any) -> Any:
    return broker.client(logger=QUIET, **options)


def backlog(broker: Broker, topic: str, subscription: str = "s") -> int:
    return int(broker.admin.topic_stats(topic)["subscriptions"][subscription]["msgBacklog"])


# The clock


def test_connections_stay_whatever_the_advance(broker: Broker) -> None:
    client = connected(broker)
    producer, consumer = client.create_producer("t"), client.subscribe("t", "s")
    reader = client.create_reader("t", pulsar.MessageId.earliest)

    for days in (2, 0.01, 365):
        broker.advance(days=days)
        producer.send(b"x")
        message = consumer.receive(MILLISECONDS)
        assert reader.read_next(MILLISECONDS).data() == message.data() == b"x"
        assert abs(message.publish_timestamp() - broker.now_ms()) < MILLISECONDS
        consumer.acknowledge(message)

    assert broker.log.count("producer opened") == 1
    assert broker.log.count("consumer opened") == 2
    assert "closing the connection" not in broker.log


def test_what_is_published_after_an_advance_is_new(broker: Broker) -> None:
    topic = f"{broker.create_namespace(policies={'message_ttl_in_seconds': 3600})}/t"
    client = connected(broker)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1)
    broker.advance(timedelta(days=1), minutes=3)
    consumer.close()
    producer.send(b"later", deliver_after=timedelta(minutes=30))

    broker.advance(minutes=50)
    assert backlog(broker, topic) == 1
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    assert consumer.receive(MILLISECONDS).data() == b"later"
    consumer.close()
    broker.advance(minutes=20)
    assert backlog(broker, topic) == 0


@pytest.mark.broker(settings={"brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": 7200})
def test_what_follows_from_an_expiry_has_happened_too(broker: Broker) -> None:
    """Time to live empties the subscription, then its own time ends, then that of the topic."""
    policies = {"message_ttl_in_seconds": 3600, "subscription_expiration_time_minutes": 60}
    namespace = broker.create_namespace(policies=policies)
    topic = f"persistent://{namespace}/t"
    client = connected(broker)
    producer = client.create_producer(topic)
    client.subscribe(topic, "s").close()
    producer.send(b"x")
    producer.close()

    broker.advance(minutes=50)
    assert backlog(broker, topic) == 1
    broker.advance(days=2)

    assert broker.admin.topics(namespace) == []


def test_retention_ends_by_an_advance(broker: Broker) -> None:
    policies = {"retention_policies": {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}}
    topic = f"{broker.create_namespace(policies=policies)}/t"
    client = connected(broker)
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    producer.send(b"x")
    consumer.acknowledge_cumulative(consumer.receive(MILLISECONDS))
    until(lambda: backlog(broker, topic) == 0, seconds=20)
    first = broker.admin.topic_internal_stats(topic)["ledgers"][0]["ledgerId"]
    broker.admin.unload_topic(topic)
    until(lambda: len(broker.admin.topic_internal_stats(topic)["ledgers"]) == 2, seconds=20)

    broker.advance(minutes=55)
    assert broker.admin.topic_internal_stats(topic)["ledgers"][0]["ledgerId"] == first
    broker.advance(minutes=10)
    assert broker.admin.topic_internal_stats(topic)["ledgers"][0]["ledgerId"] != first


def test_compaction_that_is_due_has_been_done(broker: Broker) -> None:
    """It runs in a process of its own, which has to start first."""
    topic = f"{broker.create_namespace(policies={'compaction_threshold': 1})}/t"
    producer = connected(broker).create_producer(topic)
    for value in (b"1", b"2", b"3"):
        producer.send(value, partition_key="key")

    broker.advance(minutes=5)

    assert broker.admin.compaction_status(topic)["status"] == "SUCCESS"


def test_time_does_not_go_back(broker: Broker) -> None:
    before = broker.now_ms()
    with pytest.raises(ValueError, match="cannot go back"):
        broker.advance(hours=-1)
    broker.advance()
    assert 0 <= broker.now_ms() - before < MILLISECONDS


def test_clients_that_never_rest_are_told_of(broker: Broker) -> None:
    producer = connected(broker).create_producer("t", max_pending_messages=1000, block_if_queue_full=True)
    stopped = False

    def go_on(_result: Any, _message_id: Any) -> None:
        if not stopped:
            producer.send_async(b"x", go_on)

    for _ in range(500):
        producer.send_async(b"x", go_on)
    before = broker.now_ms()
    with suppress(BrokerRefused):
        # There may have been a moment of rest.
        broker.advance(hours=1)
    stopped = True
    assert broker.now_ms() - before >= 3_600_000
    producer.flush()
    broker.advance(hours=1)


# Faults


def test_connections_are_dropped_of_whom_is_named(broker: Broker) -> None:
    broker.admin.create_partitioned_topic("parted", 2)
    clients = {
        "producer": lambda client: client.create_producer("t", producer_name="p"),
        "consumer": lambda client: client.subscribe("t", "s", consumer_name="c"),
        "parted": lambda client: client.create_producer("parted"),
    }
    # What is open counts: else it is closed as soon as nobody has it.
    held = [opens(connected(broker)) for opens in clients.values()]

    assert broker.drop_connections(topic="elsewhere") == 0
    assert broker.drop_connections(producer="c") == broker.drop_connections(consumer="p") == 0
    assert broker.drop_connections(producer="p", topic="t") == 1
    assert broker.drop_connections(consumer="c") == 1
    assert broker.drop_connections(topic="persistent://public/default/parted") == 1
    until(
        lambda: broker.log.count("consumer opened") == 2 and broker.log.count("producer opened") == 6,
        seconds=20,
    )
    assert broker.drop_connections(topic="t") == 2
    until(
        lambda: broker.log.count("consumer opened") == 3 and broker.log.count("producer opened") == 7,
        seconds=20,
    )
    assert broker.drop_connections() == 3
    with pytest.raises(BrokerRefused, match="invalid short topic name"):
        broker.drop_connections(topic="a/b")
    assert len(held) == 3


def test_receipts_are_held_of_whom_is_named_and_released_in_order(broker: Broker) -> None:
    client = connected(broker)
    slow, other = client.create_producer("slow"), client.create_producer("other")
    receipts: list[int] = []

    def publish(number: int) -> None:
        slow.send_async(b"%d" % number, lambda _result, _id: receipts.append(number))

    with broker.delayed_receipts(topic="slow") as held:
        publish(1)
        publish(2)
        other.send(b"at once")
        until(lambda: held.count == 2, seconds=20)
        assert receipts == []
        assert held.release() == 2
        until(lambda: receipts == [1, 2], seconds=20)
        publish(3)
        until(lambda: held.count == 1, seconds=20)
    until(lambda: receipts == [1, 2, 3], seconds=20)
    assert held.count == 0

    begun = time.monotonic()
    with broker.delayed_receipts(0.2):
        slow.send(b"4")
    assert time.monotonic() - begun >= 0.2


def test_refusals_meet_producers_too_and_end(broker: Broker) -> None:
    client = connected(broker, operation_timeout_seconds=5)
    producer = client.create_producer("t", send_timeout_millis=60_000)
    with broker.refused_publishes(ServerErrorCode.TOPIC_TERMINATED, topic="t"):
        client.create_producer("other").send(b"x")
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer("t")
        with pytest.raises(pulsar.TopicTerminated):
            producer.send(b"x")
    client.create_producer("t").send(b"y")

    retrying = client.create_producer("t", send_timeout_millis=60_000)
    refusal = broker.refused_publishes(ServerErrorCode.PERSISTENCE, "the disk is gone")
    with refusal as fault:
        retrying.send_async(b"z", lambda _result, _id: None)
        until(lambda: "producer closed" in broker.log, seconds=20)
        fault.end()
        retrying.flush()
    assert broker.admin.topic_stats("t")["msgInCounter"] == 2


def test_nobody_gets_through(broker: Broker) -> None:
    client = connected(broker)
    producer = client.create_producer("t")
    with broker.unreachable():
        producer.send_async(b"x", lambda _result, _id: None)
        assert broker.admin.topic_stats("t")["msgInCounter"] == 0
    producer.flush()
    assert broker.admin.topic_stats("t")["msgInCounter"] == 1


def test_faults_end_with_the_life_of_the_broker(broker: Broker) -> None:
    client = connected(broker)
    producer = client.create_producer("t")
    with broker.delayed_receipts() as held, broker.refused_publishes(topic="elsewhere"):
        broker.kill()
        broker.start()
        with broker.delayed_receipts() as others:
            producer.send_async(b"x", lambda _result, _id: None)
            until(lambda: others.count == 1, seconds=20)
            assert held.count == held.release() == 0
            held.end()
            assert others.count == 1
        producer.flush()
    closed = connected(broker)
    closed.close()
    with broker.unreachable():
        # Its clients are closed all the same.
        broker.kill()


# Lives


def test_a_broker_that_is_stopped_says_how_it_ended(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # Who hears nothing takes it for one that hangs, and ends it while it ends.
    ask, told = Channel.ask, {}

    def asking(channel: Channel, question: dict[str, Any], *files: Any) -> dict[str, Any]:
        told[question["do"]] = answer = ask(channel, question, *files)
        return answer

    monkeypatch.setattr(Channel, "ask", asking)
    broker.stop()
    assert told["stop"] == {"code": 0}


def test_lives_have_the_same_data_ports_and_clock(broker: Broker) -> None:
    client = connected(broker)
    producer, url = client.create_producer("t"), broker.service_url
    consumer = client.subscribe("t", "s")
    broker.advance(days=3)
    producer.send(b"1")
    broker.restart()
    producer.send(b"2")
    broker.kill()
    assert not broker.is_running
    with pytest.raises(BrokerRefused, match="is not running"):
        broker.advance(hours=1)
    broker.start()
    with pytest.raises(BrokerRefused, match="the broker is already running"):
        broker.start()

    assert broker.service_url == url
    assert broker.now_ms() - time.time() * 1000 > 3 * 86_400_000 - 1000
    # What was delivered before comes again: nothing was acknowledged.
    found: list[bytes] = []
    while found[-2:] != [b"1", b"2"]:
        found.append(consumer.receive(MILLISECONDS).data())


def test_what_cannot_be_honoured_does_not_start(
    broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    for settings, said in {
        ("brokerServicePortTls", 0): "have no TLS",
        ("managedLedgerDefaultWriteQuorum", 2): "managedLedgerDefaultWriteQuorum=2 is not honoured",
        ("allowAutoTopicCreation", "perhaps"): "not 'perhaps'",
    }.items():
        with pytest.raises(BrokerNotStarted, match=said):
            broker_factory(dict([settings]))
    with pytest.raises(ValueError, match="brokerServicePort cannot be set: brokers for tests use free ports"):
        broker_factory({"brokerServicePort": 6650})
    with pytest.warns(UserWarning, match="unknown settings, ignored: ttl"):
        broker_factory({"ttl": 5})
    assert not list(tmp_path.iterdir())


def test_a_file_of_settings_and_what_is_said_besides(
    broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    (tmp_path / "standalone.conf").write_text(
        "clusterName=elsewhere\nallowAutoTopicCreation=false\nbrokerServicePort=1\n"
    )
    broker = broker_factory({"allowAutoTopicCreation": True}, config=tmp_path / "standalone.conf")
    assert broker.admin.clusters() == ["elsewhere"]
    connected(broker).create_producer("t")
    assert broker.create_namespace("mine/too") in broker.admin.namespaces("mine")


def test_tokens_end_by_an_advance_and_clients_bring_fresh_ones(
    broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    secret = bytes(range(40))
    (tmp_path / "secret").write_bytes(secret)
    broker = broker_factory(
        {
            "authenticationEnabled": True,
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": f"file://{tmp_path}/secret",
        }
    )
    given: list[str] = []

    def token() -> str:
        claims = {"sub": "me", "exp": time.time() + 3600}
        given.append(jwt.encode(claims, secret, "HS256"))
        return given[-1]

    client = connected(broker, authentication=pulsar.AuthenticationToken(token))
    producer = client.create_producer("t")
    asked = len(given)

    broker.advance(minutes=30)
    assert len(given) == asked
    broker.advance(hours=1)
    assert len(given) > asked
    producer.send(b"x")
    assert broker.log.count("producer opened") == 1
