"""Memory limits, scaled queues, listeners, interceptors and statistics when the broker is killed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from server import Server

from magnetar.client import (
    Client,
    Consumer,
    ConsumerType,
    Message,
    MessageId,
    OutgoingMessage,
    ProducerInterceptor,
    PulsarException,
    aio,
)

SECONDS = 60.0
BACKOFF = {"initial_backoff_interval_ms": 20, "max_backoff_interval_ms": 200}


class Outcomes(ProducerInterceptor):
    """Counts what was sent and what had an outcome."""

    def __init__(self) -> None:
        self.sent = 0
        self.told: list[MessageId | PulsarException | None] = []

    def before_send(self, producer: aio.Producer, message: OutgoingMessage) -> OutgoingMessage:
        self.sent += 1
        return message

    def on_send_acknowledgement(
        self,
        producer: aio.Producer,
        message: OutgoingMessage,
        message_id: MessageId | None,
        error: PulsarException | None,
    ) -> None:
        self.told.append(error or message_id)


def test_senders_that_wait_for_memory_when_the_broker_is_killed(start_server: Callable[..., Server]) -> None:
    server = start_server()
    topic = "persistent://public/default/memory"

    async def work() -> None:
        async with aio.Client(server.url, memory_limit_bytes=2000, **BACKOFF) as client:
            outcomes = Outcomes()
            producer = await client.create_producer(topic, block_if_queue_full=True, interceptors=[outcomes])
            other = await client.create_producer(topic + "-2", block_if_queue_full=True)
            consumer = await client.subscribe(topic, "s")
            await producer.send(b"begin")
            await asyncio.to_thread(server.kill)
            senders = [
                asyncio.ensure_future(each.send(b"%d" % index * 100))
                for index in range(100)
                for each in (producer, other)
            ]
            await asyncio.sleep(0.05)
            assert client.services.memory is not None
            assert 2000 <= client.services.memory.used < 2400
            cancelled = senders[-2:]
            for sender in cancelled:
                sender.cancel()
            await asyncio.to_thread(server.start)
            ids = await asyncio.gather(*senders[:-2])
            assert len(set(ids[::2])) == len(set(ids[1::2])) == 99
            assert client.services.memory.used == 0
            assert (outcomes.sent, len(outcomes.told)) == (100, 100)
            assert not any(isinstance(each, PulsarException) for each in outcomes.told)
            stats = producer.stats
            assert (stats.total_msgs_sent, stats.total_acks_received, stats.pending_queue_size) == (
                100,
                100,
                0,
            )
            found = [(await consumer.receive(20_000)).data() for _ in range(100)]
            assert found == [b"begin", *(b"%d" % index * 100 for index in range(99))]

    asyncio.run(asyncio.wait_for(work(), SECONDS))


def test_messages_that_time_out_leave_the_memory(start_server: Callable[..., Server]) -> None:
    server = start_server()
    topic = "persistent://public/default/late"

    async def work() -> None:
        async with aio.Client(server.url, memory_limit_bytes=1000, **BACKOFF) as client:
            producer = await client.create_producer(topic, block_if_queue_full=True, send_timeout_millis=200)
            await asyncio.to_thread(server.kill)
            sent = [asyncio.ensure_future(producer.send(b"x" * 600)) for _ in range(6)]
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            assert all(isinstance(each, PulsarException) for each in outcomes)
            assert client.services.memory is not None
            assert client.services.memory.used == 0
            assert producer.stats.total_send_failed == 6
            await asyncio.to_thread(server.start)
            producer_2 = await client.create_producer(topic)
            await producer_2.send(b"y")

    asyncio.run(asyncio.wait_for(work(), SECONDS))


@pytest.mark.parametrize("scaled", [False, True])
def test_a_listener_goes_on_after_the_broker(start_server: Callable[..., Server], scaled: bool) -> None:
    server = start_server()
    topic = f"persistent://public/default/listened-{scaled}"
    got: set[int] = set()
    half, complete = threading.Event(), threading.Event()

    def listener(consumer: Consumer, message: Message) -> None:
        got.add(int(message.data()))
        # Without a connection, the message is delivered again.
        with suppress(PulsarException):
            consumer.acknowledge(message)
        if len(got) >= 100:
            half.set()
        if len(got) == 200:
            complete.set()

    with Client(server.url, **BACKOFF) as client:
        consumer = client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            message_listener=listener,
            auto_scaled_receiver_queue=scaled,
            receiver_queue_size=50,
        )
        producer = client.create_producer(topic)
        for index in range(100):
            producer.send(b"%d" % index)
        assert half.wait(SECONDS)
        server.kill()
        server.start()
        for index in range(100, 200):
            producer.send(b"%d" % index)
        assert complete.wait(SECONDS)
        assert 1 <= consumer.current_receiver_queue_size <= 50
        consumer.pause()
        server.kill()
        server.start()
        producer.send(b"200")
        assert not consumer.stats.msg_num_in_receiver_queue
        assert 200 not in got
        consumer.resume()
        end = time.monotonic() + SECONDS
        while 200 not in got:
            assert time.monotonic() < end
            time.sleep(0.01)
