"""The client core against a real broker; against another one where MAGNETAR_PEER_URL names it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from server import VARIANTS, Server

from magnetar.admin_client import AdminClient
from magnetar.client import RedeliveryBackoff
from magnetar.client.aio import (
    Client,
    CompressionType,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
    ProducerAccessMode,
    Reader,
)
from magnetar.client.exceptions import (
    AlreadyClosed,
    ConsumerBusy,
    InvalidConfiguration,
    MessageTooBig,
    ProducerBusy,
    ProducerFenced,
    ProducerQueueIsFull,
    PulsarException,
    Result,
    Timeout,
)

PEER = os.environ.get("MAGNETAR_PEER_URL", "")
WAIT = 20_000
ADMIN: dict[str, str] = {}
EARLIEST = {"initial_position": InitialPosition.Earliest}


@pytest.fixture(scope="module", params=["peer"] if PEER else list(VARIANTS))
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service URL of the broker under test."""
    if PEER:
        yield PEER
        return
    running = Server(tmp_path_factory.mktemp("server"), VARIANTS[request.param])
    try:
        running.start()
        ADMIN[running.url] = running.http_url
        yield running.url
    finally:
        running.close()


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{uuid4().hex}"


def run(url: str, work: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    """Runs ``work`` with a client that is closed afterwards."""

    async def with_client() -> None:
        client = Client(url, operation_timeout_seconds=20, **options)
        try:
            await work(client)
        finally:
            await client.close()

    asyncio.run(with_client())


def content(index: int) -> bytes:
    return b"message-%d" % index


async def publish(client: Client, topic: str, count: int, **options: object) -> list[MessageId]:
    producer = await client.create_producer(topic, **options)
    ids = await asyncio.gather(*(producer.send(content(index)) for index in range(count)))
    await producer.close()
    return list(ids)


UNBATCHED: dict[str, object] = {"batching_enabled": False}
BATCHED: dict[str, object] = {"batching_max_messages": 7}


@pytest.mark.parametrize("options", [UNBATCHED, BATCHED])
def test_messages_arrive_in_order_with_the_ids_that_were_told(
    url: str, topic: str, options: dict[str, object]
) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        ids = await publish(client, topic, 50, **options)
        received = [await consumer.receive(WAIT) for _ in ids]
        assert [message.data() for message in received] == [content(index) for index in range(50)]
        assert [message.message_id() for message in received] == ids
        assert [message.sequence_id() for message in received] == list(range(50))

    run(url, work)


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("options", [UNBATCHED, BATCHED])
def test_metadata_and_content_of_compressed_messages(
    url: str, topic: str, codec: CompressionType, options: dict[str, object]
) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        producer = await client.create_producer(topic, compression_type=codec, **options)
        given = {"properties": {"a": "b", "c": ""}, "partition_key": "k", "ordering_key": "o"}
        await asyncio.gather(
            *(producer.send(content(index) * 100, event_timestamp=7, **given) for index in range(9))
        )
        for index in range(9):
            message = await consumer.receive(WAIT)
            assert message.data() == content(index) * 100
            assert message.properties() == given["properties"]
            assert (message.partition_key(), message.ordering_key()) == ("k", "o")
            assert message.event_timestamp() == 7
            assert message.producer_name() == producer.producer_name()

    run(url, work)


async def rest(url: str, topic: str, **options: object) -> list[bytes]:
    """What a subscription that was left still has."""
    client = Client(url)
    consumer = await client.subscribe(topic, "s", **options)
    found = []
    try:
        while True:
            message = await consumer.receive(1500)
            found.append(message.data())
            await consumer.acknowledge(message)
    except Timeout:
        return found
    finally:
        await client.close()


@pytest.mark.parametrize("options", [UNBATCHED, BATCHED])
def test_what_was_acknowledged_does_not_come_again(url: str, topic: str, options: dict[str, object]) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, **EARLIEST)
        await publish(client, topic, 21, **options)
        for _ in range(14):
            await consumer.acknowledge(await consumer.receive(WAIT))
        await consumer.close()
        left = await rest(url, topic, consumer_type=ConsumerType.Shared)
        assert sorted(left) == sorted(content(index) for index in range(14, 21))

    run(url, work)


@pytest.mark.parametrize("receipts", [False, True])
def test_cumulative_acknowledgement(url: str, topic: str, receipts: bool) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", ack_receipt_enabled=receipts, **EARLIEST)
        await publish(client, topic, 20, **UNBATCHED)
        received = [await consumer.receive(WAIT) for _ in range(20)]
        await consumer.acknowledge_cumulative(received[11])
        await consumer.close()
        assert await rest(url, topic) == [content(index) for index in range(12, 20)]

    run(url, work)


def test_cumulative_acknowledgement_inside_a_batch_acknowledges_the_entries_before(
    url: str, topic: str
) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        await publish(client, topic, 14, **BATCHED)
        received = [await consumer.receive(WAIT) for _ in range(14)]
        await consumer.acknowledge_cumulative(received[9])
        await consumer.close()
        assert await rest(url, topic) == [content(index) for index in range(7, 14)]

    run(url, work)


def test_acknowledging_with_receipts_waits_for_the_broker(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", ack_receipt_enabled=True, **EARLIEST)
        await publish(client, topic, 30, **UNBATCHED)
        received = [await consumer.receive(WAIT) for _ in range(30)]
        await asyncio.gather(*(consumer.acknowledge(message) for message in received[::2]))
        await consumer.close()
        assert await rest(url, topic) == [content(index) for index in range(1, 30, 2)]

    run(url, work)


def test_negative_acknowledgement_brings_it_back(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=50,
            **EARLIEST,
        )
        await publish(client, topic, 3, **UNBATCHED)
        first = [await consumer.receive(WAIT) for _ in range(3)]
        consumer.negative_acknowledge(first[1])
        again = await consumer.receive(WAIT)
        assert again.message_id() == first[1].message_id()
        assert again.redelivery_count() == 1

    run(url, work)


def test_negative_acknowledgements_with_a_back_off(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_backoff=RedeliveryBackoff(100, 10_000, 3),
        )
        await publish(client, topic, 1)
        loop = asyncio.get_running_loop()
        delays: list[float] = []
        for count in range(4):
            message = await consumer.receive(WAIT)
            delays.append(loop.time())
            assert message.redelivery_count() == count
            consumer.negative_acknowledge(message)
        waited = [later - earlier for earlier, later in pairwise(delays)]
        assert all(
            wanted <= found < wanted + 1 for wanted, found in zip((0.1, 0.3, 0.9), waited, strict=True)
        )

    run(url, work)


def test_redelivery_of_all_that_is_unacknowledged(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        await publish(client, topic, 10, **UNBATCHED)
        first = [await consumer.receive(WAIT) for _ in range(10)]
        await consumer.acknowledge_cumulative(first[3])
        consumer.redeliver_unacknowledged_messages()
        again = [await consumer.receive(WAIT) for _ in range(6)]
        assert [message.data() for message in again] == [content(index) for index in range(4, 10)]

    run(url, work)


@pytest.mark.skipif(
    bool(PEER),
    reason="Apache Pulsar 4.0.8 loses the order here in half of the runs, with its Java client, too",
)
def test_what_was_on_its_way_does_not_come_before_what_was_asked_for_again(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        await publish(client, topic, 300, **UNBATCHED)
        for _ in range(3):
            for index in range(5):
                assert (await consumer.receive(WAIT)).data() == content(index)
            consumer.redeliver_unacknowledged_messages()
        for index in range(300):
            assert (await consumer.receive(WAIT)).data() == content(index)

    run(url, work)


@pytest.mark.parametrize("inclusive", [False, True])
def test_seek_to_a_message(url: str, topic: str, inclusive: bool) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", start_message_id_inclusive=inclusive, **EARLIEST)
        ids = await publish(client, topic, 20, **BATCHED)
        for _ in range(20):
            await consumer.receive(WAIT)
        await consumer.seek(ids[10])
        expected = range(10 if inclusive else 11, 20)
        found = [(await consumer.receive(WAIT)).data() for _ in expected]
        assert found == [content(index) for index in expected]

    run(url, work)


def test_seek_to_a_time_and_to_the_ends(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        await publish(client, topic, 5, **UNBATCHED)
        await asyncio.sleep(0.05)
        producer = await client.create_producer(topic, **UNBATCHED)
        await producer.send(b"later")
        received = [await consumer.receive(WAIT) for _ in range(6)]
        await consumer.seek(received[5].publish_timestamp())
        assert (await consumer.receive(WAIT)).data() == b"later"
        await consumer.seek(MessageId.earliest)
        assert (await consumer.receive(WAIT)).data() == content(0)
        await consumer.seek(MessageId.latest)
        await producer.send(b"last")
        assert (await consumer.receive(WAIT)).data() == b"last"

    run(url, work)


@pytest.mark.parametrize("options", [UNBATCHED, BATCHED])
@pytest.mark.parametrize("inclusive", [False, True])
def test_reader_from_a_message_on(url: str, topic: str, inclusive: bool, options: dict[str, object]) -> None:
    async def work(client: Client) -> None:
        await client.subscribe(topic, "keeps what the reader wants")
        ids = await publish(client, topic, 20, **options)
        reader = await client.create_reader(topic, ids[9], start_message_id_inclusive=inclusive)
        found = []
        while await reader.has_message_available():
            found.append((await reader.read_next(WAIT)).data())
        assert found == [content(index) for index in range(9 if inclusive else 10, 20)]
        assert await reader.get_last_message_id() == ids[-1]
        await reader.seek(ids[3])
        assert (await reader.read_next(WAIT)).data() == content(3 if inclusive else 4)

    run(url, work)


def test_reader_at_the_ends(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        await client.subscribe(topic, "keeps what the reader wants")
        await publish(client, topic, 5, **UNBATCHED)
        first = await client.create_reader(topic, MessageId.earliest)
        assert (await first.read_next(WAIT)).data() == content(0)
        last = await client.create_reader(topic, MessageId.latest)
        assert not await last.has_message_available()
        last = await client.create_reader(topic, MessageId.latest, start_message_id_inclusive=True)
        assert (await last.read_next(WAIT)).data() == content(4)

    run(url, work)


def test_entries_as_they_are_stored(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        ids = await publish(client, topic, 14, compression_type=CompressionType.ZLib, **BATCHED)
        entries = [await consumer.receive_entry(WAIT) for _ in range(2)]
        assert [entry.batch_size for entry in entries] == [7, 7]
        assert [entry.message_id().position for entry in entries] == [ids[0].position, ids[13].position]
        assert entries[0].data[:2] == b"\x0e\x01"
        messages: list[Message] = [message for entry in entries for message in entry.messages(topic)]
        assert [message.data() for message in messages] == [content(index) for index in range(14)]
        await consumer.acknowledge(entries[0])
        await consumer.close()
        assert await rest(url, topic) == [content(index) for index in range(7, 14)]

    run(url, work)


@pytest.mark.parametrize("queue", [0, 1, 3])
def test_small_receiver_queues(url: str, topic: str, queue: int) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", receiver_queue_size=queue, **EARLIEST)
        await publish(client, topic, 20, **UNBATCHED)
        for index in range(20):
            assert (await consumer.receive(WAIT)).data() == content(index)
        with pytest.raises(Timeout):
            await consumer.receive(50)

    run(url, work)


def test_a_consumer_of_a_higher_priority_comes_first(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        shared = {"consumer_type": ConsumerType.Shared}
        low = await client.subscribe(topic, "s", priority_level=1, receiver_queue_size=10, **shared)
        high = await client.subscribe(topic, "s", priority_level=0, receiver_queue_size=2, **shared)
        await publish(client, topic, 6, **UNBATCHED)
        # While the first one has no room, the other one gets what is left.
        others = [(await low.receive(WAIT)).data() for _ in range(4)]
        first = [(await high.receive(WAIT)).data() for _ in range(2)]
        assert (first, others) == ([content(0), content(1)], [content(number) for number in range(2, 6)])

    run(url, work)


def test_who_is_refused(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        await client.subscribe(topic, "s")
        with pytest.raises(ConsumerBusy):
            await client.subscribe(topic, "s")
        shared = await client.subscribe(topic, "shared", consumer_type=ConsumerType.Shared)
        await publish(client, topic, 1)
        with pytest.raises(InvalidConfiguration):
            await shared.acknowledge_cumulative(await shared.receive(WAIT))
        await client.create_producer(topic, producer_name="p")
        other = Client(url)
        with pytest.raises(ProducerBusy):
            await other.create_producer(topic, producer_name="p")
        await other.close()

    run(url, work)


def test_access_modes(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        first = await client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
        with pytest.raises(ProducerFenced):
            await client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
        waiting = asyncio.ensure_future(
            client.create_producer(topic, access_mode=ProducerAccessMode.WaitForExclusive)
        )
        await first.send(b"first")
        assert not waiting.done()
        await first.close()
        second = await waiting
        await second.send(b"second")

    run(url, work)


def test_bounds_of_a_producer(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        producer = await client.create_producer(
            topic, max_pending_messages=2, block_if_queue_full=False, **UNBATCHED
        )
        sending = [asyncio.ensure_future(producer.send(b"x")) for _ in range(3)]
        results = await asyncio.gather(*sending, return_exceptions=True)
        assert [type(result) for result in results] == [MessageId, MessageId, ProducerQueueIsFull]
        with pytest.raises(MessageTooBig):
            await producer.send(bytes(5 * 1024 * 1024 + 1))
        blocking = await client.create_producer(topic, max_pending_messages=2, **UNBATCHED)
        await asyncio.gather(*(blocking.send(b"x") for _ in range(50)))
        told: list[tuple[Result, MessageId | None]] = []
        blocking.send_async(b"y", lambda result, message_id: told.append((result, message_id)))
        await blocking.flush()
        await asyncio.sleep(0)
        assert told[0][0] is Result.Ok
        assert isinstance(told[0][1], MessageId)

    run(url, work)


def test_what_is_closed_says_so(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "s")
        receiving = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0)
        await producer.close()
        await consumer.close()
        for attempt in (receiving, producer.send(b"x"), consumer.receive()):
            with pytest.raises(AlreadyClosed):
                await attempt
        again = await client.subscribe(topic, "s")
        await again.unsubscribe()
        with pytest.raises(PulsarException):
            await again.receive()

    run(url, work)


def test_unsubscribing_removes_the_subscription(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        await publish(client, topic, 3)
        await consumer.unsubscribe()
        assert await rest(url, topic) == []

    run(url, work)


PARTITIONS = 3


def admin_url(url: str) -> str:
    return os.environ.get("MAGNETAR_PEER_ADMIN_URL", "") if PEER else ADMIN[url]


def test_readers_and_consumers_learn_the_end_of_a_topic(url: str, topic: str) -> None:
    async def reached(end: Consumer | Reader) -> None:
        while not end.has_reached_end_of_topic():  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.01)

    async def work(client: Client) -> None:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        assert isinstance(consumer, Consumer)
        ids = await publish(client, topic, 5)
        reader = await client.create_reader(topic, MessageId.earliest)
        for _ in range(4):
            await reader.read_next(WAIT)
            await consumer.acknowledge(await consumer.receive(WAIT))
        await asyncio.to_thread(AdminClient(admin_url(url)).terminate_topic, topic)
        await asyncio.sleep(0.5)
        assert not reader.has_reached_end_of_topic()
        assert not consumer.has_reached_end_of_topic()
        await reader.read_next(WAIT)
        await consumer.acknowledge(await consumer.receive(WAIT))
        await reached(reader)
        await reached(consumer)
        await reader.seek(MessageId.earliest)
        assert not reader.has_reached_end_of_topic()
        for _ in range(5):
            await reader.read_next(WAIT)
        await reached(reader)
        behind_the_last = await client.create_reader(topic, ids[-1])
        assert not await behind_the_last.has_message_available()
        await reached(behind_the_last)

    run(url, work)


def test_topics_with_partitions(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        await asyncio.to_thread(AdminClient(admin_url(url)).create_partitioned_topic, topic, PARTITIONS)
        assert await client.get_topic_partitions(topic) == [
            f"{topic}-partition-{index}" for index in range(PARTITIONS)
        ]
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        producer = await client.create_producer(topic, **UNBATCHED)
        keys = ["a", "b", "c", "d", "e"]
        ids = [await producer.send(b"%d" % index, partition_key=keys[index % 5]) for index in range(50)]
        partitions: dict[str, set[int]] = {key: set() for key in keys}
        received: dict[str, list[int]] = {key: [] for key in keys}
        for _ in ids:
            message = await consumer.receive(WAIT)
            partitions[message.partition_key()].add(message.message_id().partition())
            received[message.partition_key()].append(int(message.data()))
        assert all(len(found) == 1 for found in partitions.values())
        assert len(set.union(*partitions.values())) > 1
        assert all(numbers == sorted(numbers) for numbers in received.values())
        await asyncio.gather(*(producer.send(b"x") for _ in range(2 * PARTITIONS)))
        spread = [(await consumer.receive(WAIT)).message_id() for _ in range(2 * PARTITIONS)]
        assert sorted(each.partition() for each in spread) == [0, 0, 1, 1, 2, 2]
        await consumer.seek(MessageId.earliest)
        again = [await consumer.receive(WAIT) for _ in range(56)]
        assert len({message.message_id() for message in again}) == 56
        for message in again:
            await consumer.acknowledge(message)
        await consumer.close()
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        with pytest.raises(Timeout):
            await consumer.receive(500)
        await consumer.close()
        await producer.close()

    run(url, work)


def test_partitions_that_come_while_a_topic_is_used(url: str, topic: str) -> None:
    async def work(client: Client) -> None:
        admin = AdminClient(admin_url(url))
        await asyncio.to_thread(admin.create_partitioned_topic, topic, 1)
        consumer = await client.subscribe(topic, "s")
        listed = await client.subscribe_to_topics([topic], "of a list")
        producer = await client.create_producer(topic, **UNBATCHED)
        sent = [await producer.send(b"m")]
        await asyncio.to_thread(admin.update_partitioned_topic, topic, PARTITIONS)
        while len({each.partition() for each in sent}) < PARTITIONS:
            sent.append(await producer.send(b"m"))
            await asyncio.sleep(0.02)
        for each in (consumer, listed):
            received = [await each.receive(WAIT) for _ in sent]
            assert {message.message_id() for message in received} == set(sent)
            for message in received:
                await each.acknowledge(message)
            await each.close()
        await producer.close()

    run(url, work, partitions_update_interval_seconds=0.2)
