"""The blocking face, from several threads."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from server import Server

from magnetar import pulsar
from magnetar.client import (
    AlreadyClosed,
    Client,
    ConsumerType,
    InitialPosition,
    InvalidUrl,
    MessageId,
    Producer,
    Result,
    Timeout,
)

WAIT = 20_000


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


def test_send_and_receive(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(topic)
    ids = [producer.send(b"%d" % index, properties={"i": str(index)}) for index in range(20)]
    received = [consumer.receive(WAIT) for _ in ids]
    assert [message.message_id() for message in received] == ids
    assert [message.properties() for message in received] == [{"i": str(index)} for index in range(20)]
    assert producer.last_sequence_id() == 19
    for message in received[:15]:
        consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert [consumer.receive(WAIT).data() for _ in range(5)] == [b"%d" % index for index in range(15, 20)]
    with pytest.raises(Timeout):
        consumer.receive(50)


def test_callbacks_of_many_sends_come_in_order(client: Client, topic: str) -> None:
    producer = client.create_producer(
        topic, max_pending_messages=100, block_if_queue_full=True, batching_enabled=True
    )
    told: list[tuple[Result, MessageId | None]] = []
    for index in range(1000):
        producer.send_async(b"%d" % index, lambda result, message_id: told.append((result, message_id)))
    producer.flush()
    producer.close()
    assert [result for result, _ in told] == [Result.Ok] * 1000
    ids = [message_id for _, message_id in told if message_id is not None]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000


def test_too_many_pending_are_told_to_the_callback(client: Client, topic: str) -> None:
    producer = client.create_producer(topic, max_pending_messages=1)
    told: list[Result] = []
    for _ in range(500):
        producer.send_async(b"x" * 1000, lambda result, _id: told.append(result))
    producer.close()
    assert len(told) == 500
    assert set(told) == {Result.Ok, Result.ProducerQueueIsFull}


def test_several_threads_share_a_producer_and_a_consumer(client: Client, topic: str) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
    )
    producer = client.create_producer(topic)
    taken: list[bytes] = []

    def publish(first: int) -> None:
        for index in range(first, first + 100):
            producer.send(b"%d" % index)

    def take() -> None:
        for _ in range(100):
            message = consumer.receive(WAIT)
            taken.append(message.data())
            consumer.acknowledge(message)

    with ThreadPoolExecutor(8) as threads:
        work = [threads.submit(publish, first) for first in (0, 100, 200, 300)]
        work += [threads.submit(take) for _ in range(4)]
        for each in work:
            each.result()
    assert sorted(taken, key=int) == [b"%d" % index for index in range(400)]


def test_no_thread_waits_while_a_message_was_taken_ahead_by_another(client: Client, topic: str) -> None:
    """One of two waiting threads took both messages of a read, and the other one waited on."""
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            waiting = [threads.submit(consumer.receive, 5000) for _ in range(4)]
            time.sleep(0.02)
            for index in range(4):
                producer.send_async(b"%d" % index, lambda _result, _id: None)
            producer.flush()
            assert sorted(each.result().data() for each in waiting) == [b"0", b"1", b"2", b"3"]


def test_seek_forgets_what_was_taken_ahead(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(topic)
    for index in range(30):
        producer.send(b"%d" % index)
    assert consumer.receive(WAIT).data() == b"0"
    consumer.seek(MessageId.earliest)
    assert [consumer.receive(WAIT).data() for _ in range(3)] == [b"0", b"1", b"2"]
    consumer.redeliver_unacknowledged_messages()
    assert consumer.receive(WAIT).data() == b"0"
    assert consumer.get_last_message_id().entry_id() >= 0
    consumer.unsubscribe()


def test_reader(client: Client, topic: str) -> None:
    keeps = client.subscribe(topic, "keeps what the reader wants")
    producer = client.create_producer(topic)
    for index in range(3):
        producer.send(b"%d" % index)
    reader = client.create_reader(topic, MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT).data())
    assert found == [b"0", b"1", b"2"]
    reader.seek(MessageId.earliest)
    assert reader.read_next_entry(WAIT).payload == b"0"
    reader.close()
    keeps.close()


def test_table_view(client: Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for key, content in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        producer.send(content, partition_key=key)
    changes: queue.Queue[tuple[str, bytes]] = queue.Queue()
    with client.create_table_view(topic) as view:
        assert (view.contents(), len(view), view.get("a")) == ({"a": b"3", "b": b"2"}, 2, b"3")
        assert view.listen(lambda key, content: changes.put((key, content))) == view.contents()
        producer.send(b"4", partition_key="c")
        assert changes.get(timeout=30) == ("c", b"4")
        assert view.get("c") == b"4"
    view.close()


def test_what_is_closed_says_so_and_threads_end(server: Server, topic: str) -> None:
    before = threading.active_count()
    client = Client(server.url)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    waiting = client.create_producer(topic, max_pending_messages=1, block_if_queue_full=True)
    client.close()
    client.close()
    with pytest.raises(AlreadyClosed):
        client.create_producer(topic)
    with pytest.raises(AlreadyClosed):
        consumer.acknowledge(MessageId(-1, 0, 0))
    message = MessageId(-1, 0, 0)
    calls: list[Callable[[], object]] = [
        consumer.receive,
        consumer.batch_receive,
        consumer.redeliver_unacknowledged_messages,
        lambda: consumer.seek(message),
        lambda: consumer.negative_acknowledge(message),
        producer.flush,
        lambda: producer.send(b"x"),
        lambda: producer.send_async(b"x", lambda *_: None),
        # The second one does not wait for the place of the first.
        *[lambda: waiting.send_async(b"x", lambda *_: None)] * 2,
    ]
    for call in calls:
        with pytest.raises(AlreadyClosed, match="the client is closed"):
            call()
    with pytest.raises(InvalidUrl):
        Client("localhost:6650")
    assert threading.active_count() == before


def test_a_blocking_call_in_a_callback_is_refused(client: Client, topic: str) -> None:
    producer = client.create_producer(topic)
    told: list[BaseException] = []
    done = threading.Event()

    def callback(result: Result, message_id: MessageId | None) -> None:
        try:
            producer.flush()
        except RuntimeError as error:
            told.append(error)
        done.set()

    producer.send_async(b"x", callback)
    assert done.wait(WAIT / 1000)
    assert len(told) == 1


@pytest.mark.parametrize("options", [{"max_pending_messages": 2}, {"max_pending_messages": 1000}])
def test_threads_that_wait_for_room_end_with_the_client(
    server: Server, topic: str, options: dict[str, int]
) -> None:
    client = Client(server.url, memory_limit_bytes=10)
    refused, _results = _until_all_end(
        client.create_producer(
            topic,
            block_if_queue_full=True,
            batching_enabled=True,
            batching_max_publish_delay_ms=600_000,
            **options,
        ),
        client.close,
        itertools.count(),
    )
    assert refused == 12


def test_threads_that_wait_for_room_end_with_the_official_client(server: Server, topic: str) -> None:
    client = pulsar.Client(server.url)
    refused, results = _until_all_end(
        client.create_producer(
            topic,
            block_if_queue_full=True,
            max_pending_messages=2,
            batching_enabled=True,
            batching_max_publish_delay_ms=600_000,
        ),
        client.close,
    )
    assert refused == 0
    assert results[pulsar.Result.AlreadyClosed] > 0


def _until_all_end(
    producer: Producer | pulsar.Producer, close: Callable[[], None], sends: Iterable[int] = range(100)
) -> tuple[int, Counter[Result | pulsar.Result]]:
    """Lets threads wait for room while the client is closed; returns the number of refused ones, and results
    of the messages.

    :param sends: an element for each message of a thread
    """
    refused: list[AlreadyClosed] = []
    results: Counter[Result | pulsar.Result] = Counter()

    def told(result: Result | pulsar.Result, _id: object) -> None:
        results[result] += 1

    def send() -> None:
        try:
            for _ in sends:
                producer.send_async(b"x" * 10, told)
        except AlreadyClosed as error:
            refused.append(error)

    threads = [threading.Thread(target=send) for _ in range(12)]
    for thread in threads:
        thread.start()
    close()
    for thread in threads:
        thread.join(WAIT / 1000)
    assert not any(thread.is_alive() for thread in threads)
    return len(refused), results
