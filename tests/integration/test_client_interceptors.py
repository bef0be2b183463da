"""Interceptors of producers and consumers see the messages, and do not disturb them when they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from server import Server

from magnetar.admin_client import AdminClient
from magnetar.client import (
    Client,
    ConsumerEventListener,
    ConsumerInterceptor,
    ConsumerType,
    InitialPosition,
    MemoryBufferIsFull,
    Message,
    MessageId,
    OutgoingMessage,
    ProducerInterceptor,
    PulsarException,
    aio,
)

WAIT = 20_000


def run(url: str, work: Callable[[aio.Client], Awaitable[None]], **options: Any) -> None:
    async def with_client() -> None:
        async with aio.Client(url, **options) as client:
            await work(client)

    asyncio.run(with_client())


class Stamps(ProducerInterceptor):
    """Adds a property, and records what it sees."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[tuple[bytes, MessageId | PulsarException | None]] = []
        self.partitions = 0
        self.closed = 0

    def eligible(self, message: OutgoingMessage) -> bool:
        return message.content != b"secret"

    def before_send(self, producer: aio.Producer, message: OutgoingMessage) -> OutgoingMessage:
        message.set_property(self.name, producer.topic())
        return message

    def on_send_acknowledgement(
        self,
        producer: aio.Producer,
        message: OutgoingMessage,
        message_id: MessageId | None,
        error: PulsarException | None,
    ) -> None:
        self.told.append((message.content, error or message_id))

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self.partitions = partitions

    def close(self) -> None:
        self.closed += 1


class Fails(ProducerInterceptor, ConsumerInterceptor):
    """Raises wherever it can."""

    def before_send(self, producer: aio.Producer, message: OutgoingMessage) -> OutgoingMessage:
        raise ValueError("before_send")

    def on_send_acknowledgement(self, *_: object) -> None:
        raise ValueError("on_send_acknowledgement")

    def before_consume(self, consumer: aio.Consumer, message: Message) -> Message:
        raise ValueError("before_consume")

    def on_acknowledge(self, *_: object) -> None:
        raise ValueError("on_acknowledge")

    def close(self) -> None:
        raise ValueError("close")


class Sees(ConsumerInterceptor):
    """Records what it sees."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def before_consume(self, consumer: aio.Consumer, message: Message) -> Message:
        self.events.append(("consume", message.data()))
        return message

    def on_acknowledge(
        self, consumer: aio.Consumer, message_id: MessageId, error: PulsarException | None
    ) -> None:
        self.events.append(("acknowledge", error or message_id))

    def on_acknowledge_cumulative(
        self, consumer: aio.Consumer, message_id: MessageId, error: PulsarException | None
    ) -> None:
        self.events.append(("cumulative", error or message_id))

    def on_negative_acks_send(self, consumer: aio.Consumer, message_ids: Sequence[MessageId]) -> None:
        self.events.append(("negative", list(message_ids)))

    def on_ack_timeout_send(self, consumer: aio.Consumer, message_ids: Sequence[MessageId]) -> None:
        self.events.append(("late", list(message_ids)))

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self.events.append(("partitions", partitions))

    def close(self) -> None:
        self.events.append(("close", None))


@pytest.mark.parametrize("batching", [True, False])
def test_a_producer(server: Server, topic: str, batching: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def work(client: aio.Client) -> None:
        first, last = Stamps("first"), Stamps("last")
        producer = await client.create_producer(
            topic, batching_enabled=batching, interceptors=[first, Fails(), last]
        )
        consumer = await client.subscribe(topic, "s")
        one = await producer.send(b"one", properties={"own": "1"})
        await producer.send(b"secret")
        message = await consumer.receive(WAIT)
        assert message.properties() == {"own": "1", "first": topic, "last": topic}
        assert (await consumer.receive(WAIT)).properties() == {}
        assert first.told == last.told == [(b"one", one)]
        with pytest.raises(PulsarException) as raised:
            await producer.send(b"two", sequence_id=-1)
        assert first.told[1:] == [(b"two", raised.value)]
        await producer.close()
        await producer.close()
        assert (first.closed, last.closed) == (1, 1)

    run(server.url, work)
    assert {"before_send", "on_send_acknowledgement", "close"} == {
        record.message.split()[0] for record in caplog.records if record.name.startswith("magnetar.client")
    }


def test_a_producer_of_a_client_with_a_memory_limit(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        stamps = Stamps("x")
        producer = await client.create_producer(topic, interceptors=[stamps], block_if_queue_full=False)
        first = asyncio.ensure_future(producer.send(b"12345678901"))
        await asyncio.sleep(0)
        with pytest.raises(MemoryBufferIsFull) as raised:
            await producer.send(b"2")
        await first
        assert [content for content, _ in stamps.told] == [b"2", b"12345678901"]
        assert stamps.told[0][1] is raised.value

    run(server.url, work, memory_limit_bytes=10)


def test_a_consumer(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        sees = Sees()
        producer = await client.create_producer(topic, batching_enabled=False)
        ids = [await producer.send(b"%d" % index) for index in range(4)]
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            interceptors=[Fails(), sees],
            negative_ack_redelivery_delay_ms=50,
            unacked_messages_timeout_ms=100,
        )
        messages = [await consumer.receive(WAIT) for _ in range(4)]
        assert sees.events == [("consume", b"%d" % index) for index in range(4)]
        sees.events.clear()
        await consumer.acknowledge(messages[0])
        consumer.acknowledge_soon(messages[1])
        assert sees.events == [("acknowledge", ids[0]), ("acknowledge", ids[1])]
        sees.events.clear()
        consumer.negative_acknowledge(messages[2])
        assert {(await consumer.receive(WAIT)).data() for _ in range(2)} == {b"2", b"3"}
        assert ("negative", [ids[2]]) in sees.events
        assert ("late", [ids[3]]) in sees.events
        await consumer.close()
        assert sees.events[-1] == ("close", None)

    run(server.url, work)


def test_cumulative_acknowledgements_and_refusals(server: Server, topic: str) -> None:
    with Client(server.url) as client:
        sees = Sees()
        consumer = client.subscribe(topic, "s", interceptors=[sees], ack_receipt_enabled=True)
        published = client.create_producer(topic).send(b"x")
        message = consumer.receive(WAIT)
        consumer.acknowledge_cumulative(message)
        consumer.acknowledge(message)
        consumer.close()
        with pytest.raises(PulsarException) as raised:
            consumer.acknowledge_cumulative(message)
        assert sees.events == [
            ("consume", b"x"),
            ("cumulative", published),
            ("acknowledge", published),
            ("close", None),
            ("cumulative", raised.value),
        ]


def test_partitions(start_server: Callable[..., Server], topic: str) -> None:
    server = start_server()
    AdminClient(server.http_url).create_partitioned_topic(topic, 2)
    with Client(server.url, partitions_update_interval_seconds=0.1) as client:
        stamps, sees = Stamps("x"), Sees()
        producer = client.create_producer(topic, interceptors=[stamps])
        consumer = client.subscribe(topic, "s", interceptors=[sees])
        for index in range(4):
            producer.send(b"%d" % index)
        parts = {consumer.receive(WAIT).properties()["x"] for _ in range(4)}
        assert parts == {f"{topic}-partition-{index}" for index in (0, 1)}
        AdminClient(server.http_url).update_partitioned_topic(topic, 3)
        end = time.monotonic() + WAIT / 1000
        while stamps.partitions != 3 or ("partitions", 3) not in sees.events:
            assert time.monotonic() < end
            time.sleep(0.02)
        producer.close()
        consumer.close()
        assert stamps.closed == 1
        assert sees.events.count(("close", None)) == 1


class Watches(ConsumerEventListener):
    """Records the events of the consumers of a subscription; can raise an exception for each."""

    def __init__(self, name: str, events: list[tuple[object, ...]], *, raises: bool = False) -> None:
        self._name = name
        self._events = events
        self._raises = raises

    def _saw(self, *event: object) -> None:
        self._events.append((self._name, *event))
        if self._raises:
            raise ValueError(f"event of {self._name}")

    def became_active(self, consumer: aio.Consumer, partition: int) -> None:
        self._saw("active", consumer.topic(), partition)

    def became_inactive(self, consumer: aio.Consumer, partition: int) -> None:
        self._saw("inactive", consumer.topic(), partition)

    def reached_end_of_topic(self, consumer: aio.Consumer) -> None:
        self._saw("end", consumer.topic())


async def until(events: list[tuple[object, ...]], *event: object) -> None:
    end = time.monotonic() + WAIT / 1000
    while event not in events:
        assert time.monotonic() < end, events
        await asyncio.sleep(0.01)


def test_the_events_of_failover_consumers(
    server: Server, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    AdminClient(server.http_url).create_partitioned_topic(topic, 1)
    partition = f"{topic}-partition-0"

    async def work(client: aio.Client) -> None:
        events: list[tuple[object, ...]] = []
        made = {}
        for name in ("a", "b"):
            watches = Watches(name, events, raises=name == "a")
            made[name] = await client.subscribe(
                topic,
                "s",
                consumer_type=ConsumerType.Failover,
                consumer_name=name,
                consumer_event_listener=watches,
            )
            await until(events, "a", "active", partition, 0)
        await until(events, "b", "inactive", partition, 0)
        await made["a"].close()
        await until(events, "b", "active", partition, 0)
        assert "became_active of <test_client_interceptors.Watches" in caplog.text
        assert "ValueError: event of a" in caplog.text

    run(server.url, work)


@pytest.mark.parametrize("consumer_type", list(ConsumerType))
def test_the_end_of_a_terminated_topic(server: Server, topic: str, consumer_type: ConsumerType) -> None:
    async def work(client: aio.Client) -> None:
        events: list[tuple[object, ...]] = []
        producer = await client.create_producer(topic)
        await producer.send(b"last")
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=consumer_type,
            initial_position=InitialPosition.Earliest,
            consumer_event_listener=Watches("c", events),
        )
        message = await consumer.receive(WAIT)
        await asyncio.to_thread(AdminClient(server.http_url).terminate_topic, topic)
        assert ("c", "end", topic) not in events
        await consumer.acknowledge(message)
        await until(events, "c", "end", topic)
        assert events.count(("c", "end", topic)) == 1

    run(server.url, work)


def test_the_blocking_interface_has_events(server: Server, topic: str) -> None:
    events: list[tuple[object, ...]] = []
    with Client(server.url) as client:
        client.create_producer(topic).close()
        client.subscribe(topic, "s", consumer_event_listener=Watches("c", events))
        AdminClient(server.http_url).terminate_topic(topic)
        asyncio.run(until(events, "c", "end", topic))
