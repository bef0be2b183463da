"""The client core: several topics behind one consumer, time-outs, dead letters, what it has no keys for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pulsar
import pytest
from server import Server

from magnetar.client.aio import Client, ConsumerType, InitialPosition, MessageId
from magnetar.client.dead_letters import DeadLetterPolicy
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.exceptions import AlreadyClosed, InvalidConfiguration, Timeout
from magnetar.client.gathered import TopicsConsumer

WAIT = 20_000
EARLIEST = {"initial_position": InitialPosition.Earliest}
KEYS = Path(__file__).parent / "semantics" / "keys"


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Server:
    return start_server()


def run(server: Server, work: Callable[[Client], Awaitable[None]]) -> None:
    async def with_client() -> None:
        async with Client(server.url, operation_timeout_seconds=20) as client:
            await work(client)

    asyncio.run(with_client())


async def publish(client: Client, topic: str, *contents: str) -> None:
    producer = await client.create_producer(topic, batching_enabled=False)
    await asyncio.gather(*(producer.send(each.encode()) for each in contents))
    await producer.close()


async def received(consumer: TopicsConsumer, count: int) -> list[tuple[str, str]]:
    """Topics and contents, acknowledged."""
    found = []
    for _ in range(count):
        message = await consumer.receive(WAIT)
        found.append((message.topic_name(), message.data().decode()))
        await consumer.acknowledge(message)
    return found


def test_a_list_of_topics(served: Server, topic: str) -> None:
    async def work(client: Client) -> None:
        one, two = f"{topic}-1", f"{topic}-2"
        consumer = await client.subscribe_to_topics([one, two], "s", **EARLIEST)
        await publish(client, one, "a", "b", "c")
        await publish(client, two, "x", "y")
        found = await received(consumer, 5)
        assert [content for name, content in found if name == one] == ["a", "b", "c"]
        assert [content for name, content in found if name == two] == ["x", "y"]
        with pytest.raises(Timeout):
            await consumer.receive(300)
        with pytest.raises(InvalidConfiguration):
            await consumer.acknowledge(MessageId(-1, 1, 1))
        await consumer.close()
        with pytest.raises(AlreadyClosed):
            await consumer.receive(300)
        consumer = await client.subscribe_to_topics([one, two], "s", **EARLIEST)
        with pytest.raises(Timeout):
            await consumer.receive(300)
        await consumer.unsubscribe()

    run(served, work)


def test_a_pattern_finds_topics_that_come_later(served: Server, topic: str) -> None:
    async def work(client: Client) -> None:
        pattern = f"{topic}-[a-c].*"
        await publish(client, f"{topic}-a", "first")
        await publish(client, f"{topic}-z", "not this")
        consumer = await client.subscribe_to_pattern(pattern, "s", discovery_seconds=0.2, **EARLIEST)
        assert await received(consumer, 1) == [(f"{topic}-a", "first")]
        await publish(client, f"{topic}-b", "later")
        assert await received(consumer, 1) == [(f"{topic}-b", "later")]
        await consumer.close()

    run(served, work)


def test_patterns_that_are_none(served: Server) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(InvalidConfiguration):
            await client.subscribe_to_pattern(r"public/default/(a)\1", "s")

    run(served, work)


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
def test_what_is_not_acknowledged_in_time_comes_again(served: Server, topic: str, kind: ConsumerType) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(
            topic, "s", consumer_type=kind, unacked_messages_timeout_ms=300, **EARLIEST
        )
        await publish(client, topic, "a", "b")
        first, second = await consumer.receive(WAIT), await consumer.receive(WAIT)
        await consumer.acknowledge(first)
        again = await consumer.receive(WAIT)
        assert again.data() == second.data()
        await consumer.acknowledge(again)
        with pytest.raises(Timeout):
            await consumer.receive(700)

    run(served, work)


def test_dead_letters(served: Server, topic: str) -> None:
    async def work(client: Client) -> None:
        dead = await client.subscribe("dead-letters", "d")
        policy = DeadLetterPolicy(1, "dead-letters")
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            dead_letter_policy=policy,
            negative_ack_redelivery_delay_ms=50,
            **EARLIEST,
        )
        producer = await client.create_producer(topic, batching_enabled=True)
        sent = [producer.send(b"%d" % n, partition_key="k", properties={"n": str(n)}) for n in range(3)]
        await asyncio.gather(*sent)
        for _ in range(2):
            batch = [await consumer.receive(WAIT) for _ in range(3)]
            await consumer.acknowledge(batch[0])
            for message in batch[1:]:
                consumer.negative_acknowledge(message)
        letters = [await dead.receive(WAIT) for _ in range(2)]
        assert sorted(letter.data() for letter in letters) == [b"1", b"2"]
        for letter in letters:
            assert letter.properties()["REAL_TOPIC"] == topic
            assert letter.properties()["REAL_SUBSCRIPTION"] == "s"
            assert letter.partition_key() == "k"
        with pytest.raises(Timeout):
            await consumer.receive(400)

    run(served, work)


@pytest.mark.parametrize("batching", [True, False])
def test_messages_it_has_no_keys_for(served: Server, topic: str, batching: bool) -> None:
    official = pulsar.Client(served.url)
    try:
        keys = pulsar.CryptoKeyReader(str(KEYS / "public.pem"), str(KEYS / "private.pem"))
        producer = official.create_producer(
            topic,
            encryption_key="app.key",
            crypto_key_reader=keys,
            batching_enabled=batching,
            batching_max_publish_delay_ms=200,
        )
        for number in range(2):
            producer.send_async(b"secret %d" % number, lambda *_: None)
        producer.flush()
    finally:
        official.close()

    async def work(client: Client) -> None:
        whole = await client.subscribe(
            topic, "consume", crypto_failure_action=CryptoFailureAction.CONSUME, **EARLIEST
        )
        for _ in range(1 if batching else 2):
            message = await whole.receive(WAIT)
            assert b"secret" not in message.data()
            encryption = message.encryption()
            assert encryption is not None
            assert [key.key for key in encryption.encryption_keys] == ["app.key"]
            await whole.acknowledge(message)
        await publish(client, topic, "plain")
        for action, left in ((CryptoFailureAction.FAIL, False), (CryptoFailureAction.DISCARD, True)):
            consumer = await client.subscribe(topic, action.name, crypto_failure_action=action, **EARLIEST)
            message = await consumer.receive(WAIT)
            assert message.data() == b"plain"
            await consumer.acknowledge(message)
            await consumer.close()
            # What failed is still there, for who has the keys.
            again = await client.subscribe(
                topic, action.name, crypto_failure_action=CryptoFailureAction.CONSUME, **EARLIEST
            )
            if left:
                with pytest.raises(Timeout):
                    await again.receive(300)
            else:
                assert (await again.receive(WAIT)).encryption() is not None
            await again.close()

    run(served, work)
