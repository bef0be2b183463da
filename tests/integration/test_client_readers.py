"""Readers: listeners, interceptors, several topics, ranges of keys, and start positions in time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

import pytest
from polling import until, until_true
from server import Server

from magnetar.admin_client import AdminClient
from magnetar.client import (
    Client,
    InitialPosition,
    InvalidConfiguration,
    Message,
    MessageId,
    Reader,
    ReaderInterceptor,
    Timeout,
    aio,
)

WAIT = 20_000
SECONDS = 30.0
HALVES = ((0, 32767), (32768, 65535))


def run(url: str, work: Callable[[aio.Client], Awaitable[None]]) -> None:
    async def with_client() -> None:
        async with aio.Client(url) as client, asyncio.timeout(SECONDS):
            await work(client)

    asyncio.run(with_client())


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


@pytest.fixture
def admin(server: Server) -> AdminClient:
    return AdminClient(server.http_url)


def publish(client: Client, topic: str, *contents: bytes) -> list[MessageId]:
    with client.create_producer(topic) as producer:
        return [producer.send(content, partition_key=content.decode()) for content in contents]


async def contents(reader: aio.Reader) -> list[bytes]:
    found = []
    while await reader.has_message_available():
        found.append((await reader.read_next(WAIT)).data())
    return found


def test_a_reader_begins_in_a_batch(client: Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=200)
    ids: list[MessageId | None] = []
    for number in range(20):
        producer.send_async(b"%d" % number, lambda _result, message_id: ids.append(message_id))
    producer.flush()
    producer.send(b"20")
    start = ids[4]
    assert start is not None
    assert start.batch_size() > 5
    for inclusive in (False, True):
        reader = client.create_reader(topic, start, start_message_id_inclusive=inclusive)
        wanted = [b"%d" % number for number in range(4 if inclusive else 5, 21)]
        assert [reader.read_next(WAIT).data() for _ in wanted] == wanted
        assert not reader.has_message_available()
        reader.close()


class Marks(ReaderInterceptor):
    """Counts what it sees; every second call fails."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, bytes]] = []
        self.partitions: list[tuple[str, int]] = []
        self.closed = 0

    def before_read(self, reader: aio.Reader, message: Message) -> Message:
        self.seen.append((reader, message.data()))
        if len(self.seen) % 2 == 0:
            raise ValueError("an interceptor that fails")
        return message

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self.partitions.append((topic, partitions))

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_listener_gets_all_messages_in_order(
    server: Server, client: Client, topic: str, asynchronous: bool
) -> None:
    wanted = [b"%d" % number for number in range(20)]
    publish(client, topic, *wanted)

    async def work(client: aio.Client) -> None:
        got: list[bytes] = []
        complete = asyncio.Event()
        readers: list[aio.Reader] = []

        def plain(reader: aio.Reader, message: Message) -> None:
            got.append(message.data())
            readers.append(reader)
            if len(got) == len(wanted):
                complete.set()
            if message.data() == b"3":
                raise ValueError("a listener that fails")

        async def slow(reader: aio.Reader, message: Message) -> None:
            await asyncio.sleep(0)
            plain(reader, message)

        listener = slow if asynchronous else plain
        reader = await client.create_reader(topic, MessageId.earliest, message_listener=listener)
        await complete.wait()
        assert got == wanted, "after a failure comes the next message, not the same again"
        assert set(readers) == {reader}
        assert reader.stats.total_msgs_received == len(wanted)
        await reader.close()
        assert not client.services.listenings

    run(server.url, work)


def test_a_listener_of_the_blocking_interface_runs_in_a_thread(client: Client, topic: str) -> None:
    wanted = [b"%d" % number for number in range(20)]
    publish(client, topic, *wanted)
    got: list[bytes] = []
    complete = threading.Event()
    calls: list[tuple[Reader, str]] = []

    def listener(reader: Reader, message: Message) -> None:
        calls.append((reader, threading.current_thread().name))
        assert reader.get_last_message_id().entry_id() >= 0, "it may block"
        got.append(message.data())
        if len(got) == len(wanted):
            reader.close()
            complete.set()

    reader = client.create_reader(topic, MessageId.earliest, message_listener=listener)
    assert complete.wait(SECONDS)
    assert got == wanted
    assert {name for _, name in calls} == {"magnetar-listener"}
    assert all(isinstance(each, Reader) and each.topic() == topic for each, _ in calls)
    reader.close()

    async def coroutine(_reader: Reader, _message: Message) -> None:
        """The blocking interface has no loop for it."""

    with pytest.raises(InvalidConfiguration, match="requires a client of magnetar"):
        client.create_reader(topic, MessageId.earliest, message_listener=coroutine)


def test_interceptors_see_what_is_read(server: Server, client: Client, topic: str) -> None:
    wanted = [b"%d" % number for number in range(4)]
    publish(client, topic, *wanted)
    marks = Marks()
    reader = client.create_reader(topic, MessageId.earliest, interceptors=[marks])
    assert [reader.read_next(WAIT).data() for _ in wanted] == wanted
    assert [content for _, content in marks.seen] == wanted
    assert all(isinstance(each, aio.Reader) for each, _ in marks.seen)
    assert marks.closed == 0
    reader.close()
    assert marks.closed == 1

    async def work(client: aio.Client) -> None:
        again = Marks()
        async with await client.create_reader(topic, MessageId.earliest, interceptors=[again]) as reader:
            assert await contents(reader) == wanted
            assert {each for each, _ in again.seen} == {reader}
        assert again.closed == 1

    run(server.url, work)


def test_interceptors_learn_of_new_partitions(server: Server, admin: AdminClient, topic: str) -> None:
    admin.create_partitioned_topic(topic, 1)
    marks = Marks()
    with Client(server.url, partitions_update_interval_seconds=0.1) as client:
        reader = client.create_reader(topic, MessageId.earliest, interceptors=[marks])
        admin.update_partitioned_topic(topic, 3)
        end = time.monotonic() + SECONDS
        while len(marks.partitions) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert marks.partitions == [(topic, 2), (topic, 3)]
        reader.close()
    assert marks.closed == 1


def test_a_reader_of_several_topics(server: Server, client: Client, admin: AdminClient, topic: str) -> None:
    plain, parts = f"{topic}-plain", f"{topic}-parts"
    admin.create_partitioned_topic(parts, 2)
    publish(client, plain, b"p0", b"p1")
    publish(client, parts, *(b"%d" % number for number in range(8)))

    async def work(client: aio.Client) -> None:
        marks = Marks()
        async with await client.create_reader_of_topics(
            [plain, parts], MessageId.earliest, interceptors=[marks]
        ) as reader:
            found = await contents(reader)
            assert sorted(found) == sorted([b"p0", b"p1", *(b"%d" % number for number in range(8))])
            assert reader.stats.total_msgs_received == 10
            assert reader.is_connected()
            assert not await reader.has_message_available()
            await reader.seek(lambda name: MessageId.earliest if name == plain else MessageId.latest)
            assert await contents(reader) == [b"p0", b"p1"]
        assert marks.closed == 1

    run(server.url, work)
    with client.create_reader_of_topics([plain, parts], MessageId.latest) as reader:
        publish(client, plain, b"later")
        assert reader.read_next(WAIT).data() == b"later"
        reader.seek(MessageId.earliest)
        assert len([reader.read_next(WAIT) for _ in range(11)]) == 11
        assert not reader.has_message_available()
    [middle] = publish(client, plain, b"last")
    with pytest.raises(InvalidConfiguration, match="create a reader of one partition, or seek"):
        client.create_reader_of_topics([plain, parts], middle)


def test_a_reader_reads_what_has_certain_keys(client: Client, topic: str) -> None:
    wanted = [b"key-%d" % number for number in range(40)]
    publish(client, topic, *wanted)
    found = []
    for half in HALVES:
        with client.create_reader(topic, MessageId.earliest, key_hash_ranges=[half]) as reader:
            read = []
            while True:
                try:
                    read.append(reader.read_next(1000).data())
                except Timeout:
                    break
            assert 5 < len(read) < 35
            found.append(read)
    assert sorted(found[0] + found[1]) == sorted(wanted)
    assert not set(found[0]) & set(found[1])


def test_a_reader_begins_some_time_ago(client: Client, admin: AdminClient, topic: str) -> None:
    client.subscribe(topic, "keeps what the reader wants")
    publish(client, topic, b"long ago")
    time.sleep(3)
    publish(client, topic, b"recent", b"last")
    recent = client.create_reader(topic, timedelta(seconds=2))
    everything = client.create_reader_of_topics([topic], timedelta(hours=1))
    assert [recent.read_next(WAIT).data() for _ in range(2)] == [b"recent", b"last"]
    assert not recent.has_message_available()
    assert [everything.read_next(WAIT).data() for _ in range(3)] == [b"long ago", b"recent", b"last"]
    unread = client.create_reader(topic, timedelta(seconds=2))
    assert unread.has_message_available()
    recent.seek(MessageId.earliest)
    assert recent.read_next(WAIT).data() == b"long ago"
    for short in (timedelta(), timedelta(seconds=-5)):
        with pytest.raises(InvalidConfiguration, match="must be at least 1 s in the past"):
            client.create_reader(topic, short)


def test_a_start_in_the_past_stays_when_the_reader_reconnects(
    client: Client, admin: AdminClient, topic: str
) -> None:
    client.subscribe(topic, "keeps what the reader wants")
    publish(client, topic, b"published before the reader began")
    reader = client.create_reader(topic, timedelta(seconds=1), receiver_queue_size=0)
    time.sleep(3)
    admin.unload_topic(topic)
    assert reader.read_next(WAIT).data() == b"published before the reader began"


def test_a_reader_learns_the_end_of_a_topic(
    server: Server, client: Client, admin: AdminClient, topic: str
) -> None:
    batch = client.create_producer(topic, batching_enabled=True)
    for number in range(5):
        batch.send_async(b"%d" % number, lambda _result, _id: None)
    batch.flush()
    last = publish(client, topic, b"5", b"6")[-1]
    with client.create_reader(topic, MessageId.earliest, reader_name="before the end") as reader:
        for _ in range(3):
            reader.read_next(WAIT)
        admin.terminate_topic(topic)
        assert not reader.has_reached_end_of_topic()
        for _ in range(4):
            reader.read_next(WAIT)
        until(reader.has_reached_end_of_topic)
        assert subscriptions(admin, topic) == {"before the end": 0}
        reader.seek(MessageId.earliest)
        assert not reader.has_reached_end_of_topic()
        assert [reader.read_next(WAIT).data() for _ in range(7)] == [b"%d" % number for number in range(7)]
        until(reader.has_reached_end_of_topic)
        with pytest.raises(Timeout):
            reader.read_next(100)

    async def work(client: aio.Client) -> None:
        reader = await client.create_reader(topic, last)
        await until_true(reader.has_reached_end_of_topic)
        heard: list[bytes] = []
        listening = await client.create_reader(
            topic, MessageId.earliest, message_listener=lambda _reader, message: heard.append(message.data())
        )
        await until_true(listening.has_reached_end_of_topic)
        assert heard == [b"%d" % number for number in range(7)]

    run(server.url, work)


def test_a_reader_of_partitions_learns_the_end_of_all(client: Client, admin: AdminClient, topic: str) -> None:
    admin.create_partitioned_topic(topic, 2)
    publish(client, topic, *(b"%d" % number for number in range(10)))
    reader = client.create_reader(topic, MessageId.earliest)
    for _ in range(10):
        reader.read_next(WAIT)
    admin.terminate_topic(f"{topic}-partition-0")
    time.sleep(0.3)
    assert not reader.has_reached_end_of_topic()
    admin.terminate_topic(f"{topic}-partition-1")
    until(reader.has_reached_end_of_topic)


def test_a_consumer_learns_the_end_of_a_topic(client: Client, admin: AdminClient, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, b"1", b"2")
    first, second = consumer.receive(WAIT), consumer.receive(WAIT)
    consumer.acknowledge(first)
    admin.terminate_topic(topic)
    time.sleep(0.3)
    assert not consumer.has_reached_end_of_topic()
    consumer.acknowledge(second)
    until(consumer.has_reached_end_of_topic)
    with pytest.raises(Timeout):
        consumer.receive(100)
    late = client.subscribe(topic, "s2", initial_position=InitialPosition.Earliest)
    assert late.receive(WAIT).data() == b"1"
    assert not late.has_reached_end_of_topic()
    late.acknowledge_cumulative(late.receive(WAIT))
    until(late.has_reached_end_of_topic)


def subscriptions(admin: AdminClient, topic: str) -> dict[str, int]:
    """Returns the backlogs by the name of the consumer."""
    found = admin.topic_stats(topic)["subscriptions"]
    return {each["consumers"][0]["consumerName"]: each["msgBacklog"] for each in found.values()}
