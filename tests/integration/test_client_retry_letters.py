"""Retry letters: messages that come again later, and in the end go to the dead letter topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server import Server

from magnetar.client import (
    Client,
    Consumer,
    ConsumerType,
    DeadLetterPolicy,
    InitialPosition,
    InvalidConfiguration,
    InvalidMessage,
    Message,
    Timeout,
)

SHARED = ConsumerType.Shared
EARLIEST = InitialPosition.Earliest


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


def received(consumer: Consumer) -> Message:
    return consumer.receive(timeout_millis=30_000)


def test_a_message_comes_again_until_it_is_a_dead_letter(client: Client, topic: str) -> None:
    policy = DeadLetterPolicy(2, initial_subscription_name="kept")
    consumer = client.subscribe(
        topic, "s", consumer_type=SHARED, retry_enabled=True, dead_letter_policy=policy
    )
    sent = client.create_producer(topic).send(
        b"content", partition_key="k", properties={"own": "1"}, event_timestamp=7
    )
    for times in (1, 2, 3):
        message = received(consumer)
        assert message.data() == b"content"
        consumer.reconsume_later(message, 20, {"reason": f"{times}"})
    dead = client.subscribe(f"{topic}-s-DLQ", "kept", initial_position=EARLIEST)
    letter = received(dead)
    origin = f"{sent.ledger_id()}:{sent.entry_id()}:-1"
    assert letter.properties() == {
        "own": "1",
        "reason": "3",
        "REAL_TOPIC": topic,
        "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": origin,
        "RECONSUMETIMES": "3",
        "DELAY_TIME": "20",
    }
    assert (letter.data(), letter.partition_key(), letter.event_timestamp()) == (b"content", "k", 7)
    with pytest.raises(Timeout):
        consumer.receive(timeout_millis=200)
    consumer.close()
    again = client.subscribe(topic, "s", consumer_type=SHARED, retry_enabled=True)
    with pytest.raises(Timeout):
        again.receive(timeout_millis=200)


def test_topics_of_a_policy_and_a_list(client: Client, topic: str) -> None:
    policy = DeadLetterPolicy(1, dead_letter_topic=f"{topic}-dead", retry_letter_topic=f"{topic}-again")
    consumer = client.subscribe_to_topics(
        [f"{topic}-a", f"{topic}-b"], "s", consumer_type=SHARED, retry_enabled=True, dead_letter_policy=policy
    )
    for part in "ab":
        client.create_producer(f"{topic}-{part}").send(part.encode())
    for _ in "ab":
        message = received(consumer)
        consumer.reconsume_later(message, 0)
    found = {message.data(): message.topic_name() for message in (received(consumer), received(consumer))}
    assert found == {b"a": f"{topic}-again", b"b": f"{topic}-again"}


def test_without_a_retry_topic_it_is_refused(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    client.create_producer(topic).send(b"content")
    message = received(consumer)
    with pytest.raises(InvalidConfiguration, match="retry_enabled"):
        consumer.reconsume_later(message, 0)
    consumer.acknowledge(message)
    with pytest.raises(InvalidConfiguration, match="not a pattern"):
        client.subscribe_to_pattern("public/default/t.*", "s", retry_enabled=True)


def test_a_message_that_was_not_published_is_redelivered(client: Client, topic: str) -> None:
    policy = DeadLetterPolicy(1, retry_letter_topic=f"{topic}-again")
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=SHARED,
        retry_enabled=True,
        dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=50,
    )
    client.create_producer(topic).send(b"content", properties={"RECONSUMETIMES": "no number"})
    with pytest.raises(InvalidMessage, match="utf-8"):
        consumer.reconsume_later(received(consumer), 0, {"key": "\ud800"})
    consumer.reconsume_later(received(consumer), 0)
    assert received(consumer).properties()["RECONSUMETIMES"] == "1"
