"""The statistics of producers and consumers, and their log lines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import pytest
from polling import until_true
from server import Server

from magnetar import pulsar
from magnetar.admin_client import AdminClient
from magnetar.client import (
    Client,
    CompressionType,
    ConsumerType,
    InitialPosition,
    InvalidConfiguration,
    ProducerQueueIsFull,
    PulsarException,
    aio,
)

WAIT = 20_000
CONTENT = b"x" * 100


def run(url: str, work: Callable[[aio.Client], Awaitable[None]]) -> None:
    async def with_client() -> None:
        async with aio.Client(url, stats_interval_seconds=0) as client:
            await work(client)

    asyncio.run(with_client())


@pytest.mark.parametrize("batching", [True, False])
def test_a_producer(server: Server, topic: str, batching: bool) -> None:
    async def work(client: aio.Client) -> None:
        producer = await client.create_producer(
            topic,
            batching_enabled=batching,
            max_pending_messages=10,
            block_if_queue_full=False,
            compression_type=CompressionType.ZLib,
        )
        sent = asyncio.gather(*(producer.send(CONTENT) for _ in range(10)))
        await asyncio.sleep(0)
        assert producer.stats.pending_queue_size == 10
        assert producer.stats.num_acks_received == 0
        with pytest.raises(ProducerQueueIsFull):
            await producer.send(CONTENT)
        await sent
        stats = producer.stats
        assert (stats.num_msgs_sent, stats.total_msgs_sent, stats.num_acks_received) == (10, 10, 10)
        assert (stats.num_send_failed, stats.pending_queue_size) == (1, 0)
        # A batch has a few bytes more for each message.
        assert 1000 <= stats.num_bytes_sent <= 1000 + 20 * 10
        assert stats.send_msgs_rate > 0
        assert 0 < stats.send_latency_millis50pct <= stats.send_latency_millis99pct
        assert stats.send_latency_millis99pct <= stats.send_latency_millis_max

    run(server.url, work)


@pytest.mark.parametrize("batching", [True, False])
def test_a_consumer(server: Server, topic: str, batching: bool) -> None:
    async def work(client: aio.Client) -> None:
        producer = await client.create_producer(topic, batching_enabled=batching)
        await asyncio.gather(*(producer.send(CONTENT) for _ in range(10)))
        consumer = await client.subscribe(
            topic, "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
        )
        messages = [await consumer.receive(WAIT)]
        await until_true(lambda: consumer.stats.msg_num_in_receiver_queue == 9, seconds=WAIT / 1000)
        assert consumer.stats.num_msgs_received == 1
        messages += [await consumer.receive(WAIT) for _ in range(9)]
        for message in messages[:8]:
            await consumer.acknowledge(message)
        stats = consumer.stats
        assert (stats.num_msgs_received, stats.msg_num_in_receiver_queue) == (10, 0)
        assert stats.num_bytes_received > (0 if batching else 1000)
        assert stats.num_acks_sent == (0 if batching else 8)
        assert (stats.num_receive_failed, stats.num_acks_failed) == (0, 0)
        assert stats.rate_msgs_received > 0
        for message in messages[8:]:
            await consumer.acknowledge(message)
        assert consumer.stats.num_acks_sent == 10
        # Messages that wait when the consumer requests all again are not received.
        await producer.send(CONTENT)
        await until_true(lambda: consumer.stats.msg_num_in_receiver_queue == 1, seconds=WAIT / 1000)
        consumer.redeliver_unacknowledged_messages()
        await consumer.receive(WAIT)
        assert consumer.stats.total_msgs_received == 11
        await consumer.close()
        with pytest.raises(PulsarException):
            await consumer.receive(WAIT)
        assert consumer.stats.num_receive_failed == 1

    run(server.url, work)


def test_partitions(start_server: Callable[..., Server], topic: str) -> None:
    server = start_server()
    AdminClient(server.http_url).create_partitioned_topic(topic, 2)
    with Client(server.url) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s")
        for _ in range(6):
            producer.send(CONTENT)
            consumer.acknowledge(consumer.receive(WAIT))
        parts = {f"{topic}-partition-{index}": 3 for index in range(2)}
        assert producer.stats.num_msgs_sent == 6
        assert {name: each.num_msgs_sent for name, each in producer.stats.partition_stats.items()} == parts
        stats = consumer.stats
        assert (stats.num_msgs_received, stats.num_acks_sent) == (6, 6)
        assert {name: each.num_acks_sent for name, each in stats.partition_stats.items()} == parts


def test_lines_in_the_log(server: Server, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "magnetar.client.stats")
    with Client(server.url, stats_interval_seconds=0.1) as client:
        producer = client.create_producer(topic, producer_name="p")
        consumer = client.subscribe(topic, "s", consumer_name="c")
        client.subscribe(topic, "idle", consumer_name="idle")
        producer.send(CONTENT)
        consumer.acknowledge(consumer.receive(WAIT))
        end = time.monotonic() + WAIT / 1000
        while producer.stats.num_msgs_sent or consumer.stats.num_msgs_received:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert producer.stats.total_msgs_sent == consumer.stats.total_msgs_received == 1
    lines = [record.getMessage() for record in caplog.records]
    assert any(
        line.startswith(f"[{topic}] [p] Pending messages: 0 --- Publish throughput: ") for line in lines
    )
    assert any(line.startswith(f"[{topic}] [s] [c] Prefetched messages: 0 --- Consume ") for line in lines)
    assert not any("[idle]" in line for line in lines)


def test_the_official_option(server: Server, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "magnetar.client.stats")
    client = pulsar.Client(server.url, stats_interval_in_seconds=1)
    client.create_producer(topic).send(CONTENT)
    end = time.monotonic() + WAIT / 1000
    while "Publish throughput" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.01)
    client.close()


def test_an_impossible_interval() -> None:
    with pytest.raises(InvalidConfiguration, match="stats_interval_seconds must be 0 or more, not -1"):
        Client("pulsar://localhost:1", stats_interval_seconds=-1)
