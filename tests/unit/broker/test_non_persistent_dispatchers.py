"""Who gets what of a run of entries that is stored nowhere, and how much is dropped."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from simulated_io import SimulatedDisk, simulated_io

from magnetar.broker.consumers.consumer import Consumer, NonPersistentRun
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.key_shared import KeySharedMode, KeySharedPolicy
from magnetar.broker.dispatch.key_shared.consumer import KeyedConsumer
from magnetar.broker.dispatch.non_persistent import (
    NonPersistentExclusive,
    NonPersistentFailover,
    NonPersistentKeyShared,
    NonPersistentShared,
)
from magnetar.broker.flow.outgoing import MESSAGES_HIGH_WATER, Outgoing, UnsentBytes
from magnetar.io.interfaces import Buffer
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.hot_codec import batch_sizes, frame_end, next_frame
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata


class Topic:
    def __init__(self, name: str = "non-persistent://public/default/t") -> None:
        self.name = TopicName.parse(name)
        self.full_name = name
        self.clock = simulated_io(1, SimulatedDisk(1)).io.clock
        self.dispatch_settings = DispatchSettings()


class Socket:
    """A transport that takes so many bytes."""

    def __init__(self, takes: int = 1 << 30) -> None:
        self.written = b""
        self._takes = takes
        self.unsent = 0
        self.outgoing: Outgoing | None = None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.written += data
        self.unsent = max(0, len(self.written) - self._takes)
        if self.unsent > self.high and self.outgoing is not None:
            self.outgoing.pause()

    def writelines(self, pieces: Sequence[Buffer]) -> None:
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return False


class Connection:
    address = "127.0.0.1:1"
    client_version = "test"

    def __init__(self, takes: int = 1 << 30) -> None:
        io = simulated_io(1, SimulatedDisk(1)).io
        self.socket = Socket(takes)
        self.outgoing = Outgoing(io.loop, lambda: None, lambda _full: None, UnsentBytes(io.clock))
        self.socket.outgoing = self.outgoing
        self.outgoing.use(self.socket)
        self.queue = self.outgoing.queue
        self.changes: list[tuple[str, bool]] = []

    def send_active_consumer_change(self, consumer: Any, active: bool) -> None:
        self.changes.append((consumer.name, active))

    def numbers(self) -> list[int]:
        """The contents of all MESSAGE frames."""
        self.outgoing.flush()
        data = self.socket.written
        found, position = [], 0
        while position < len(data):
            assert next_frame(data, position, len(data), 1 << 24) == BaseCommand.MESSAGE
            end = frame_end(data, position)
            found.append(int(data[position:end].rpartition(b"=")[2]))
            position = end
        return found


class Subscription:
    def __init__(self) -> None:
        self.sent_messages = 0

    def sent(self, entries: int, messages: int, size: int) -> int:
        self.sent_messages += messages
        return 0


def consumer(
    name: str = "c", permits: int = 1000, *, priority: int = 0, takes: int = 1 << 30, policy: Any = None
) -> Any:
    fields: dict[str, Any] = {
        "priority": priority,
        "epoch": None,
        "metadata": {},
        "connected_ms": 0,
        "partition": -1,
    }
    connection: Any = Connection(takes)
    if policy is not None:
        made: Any = KeyedConsumer(policy, Subscription(), connection, 1, name, **fields)
    else:
        made = Consumer(Subscription(), connection, 1, name, **fields)
    made.permits = permits
    return made


def run_of(
    count: int, *, batch: int = 1, keys: int = 0, padding: int = 0, first: int = 0
) -> NonPersistentRun:
    buffer, starts, ends = b"", array("q"), array("q")
    pieces = []
    for number in range(first, first + count):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        if batch > 1:
            metadata.num_messages_in_batch = batch
        if keys:
            metadata.partition_key = f"k{number % keys}"
        piece = b"junk" + build_entry(metadata, b"x" * padding + b"=%d" % number)
        starts.append(len(buffer) + sum(map(len, pieces)) + 4)
        pieces.append(piece)
        ends.append(sum(map(len, pieces)))
    buffer = b"".join(pieces)
    sizes = array("i", bytes(4 * max(count, 1)))
    batch_sizes(buffer, starts, ends, 0, count, sizes)
    return NonPersistentRun(buffer, starts, ends, sizes, count)


def test_all_go_to_the_one_consumer_as_long_as_it_has_permits() -> None:
    dispatcher = NonPersistentExclusive(Topic())
    assert dispatcher.deliver(run_of(3)) == 3
    only = consumer(permits=7)
    dispatcher.add(only)
    assert dispatcher.deliver(run_of(5)) == 0
    assert dispatcher.deliver(run_of(5, first=5)) == 3
    assert dispatcher.deliver(run_of(5, first=10)) == 5
    assert only.connection.numbers() == [0, 1, 2, 3, 4, 5, 6]
    assert only.permits == 0
    assert only.subscription.sent_messages == 7


def test_the_last_batch_overdraws_permits() -> None:
    dispatcher = NonPersistentExclusive(Topic())
    only = consumer(permits=25)
    dispatcher.add(only)
    assert dispatcher.deliver(run_of(5, batch=10)) == 20
    assert only.connection.numbers() == [0, 1, 2]
    assert only.permits == -5


def test_a_channel_that_is_full_takes_nothing() -> None:
    dispatcher = NonPersistentExclusive(Topic())
    only = consumer(permits=100_000, takes=0)
    dispatcher.add(only)
    run = run_of(100, padding=100_000)
    dropped = dispatcher.deliver(run)
    sent = len(only.connection.numbers())
    # What the transport keeps, and what is queued above that before it says so.
    assert MESSAGES_HIGH_WATER < sent * 100_000 < 3 * MESSAGES_HIGH_WATER
    assert dropped == 100 - sent
    assert dispatcher.deliver(run) == 100


def test_a_burst_larger_than_a_turn_goes_through_a_channel_that_takes_it() -> None:
    dispatcher = NonPersistentExclusive(Topic())
    only = consumer(permits=100_000)
    dispatcher.add(only)
    for first in range(0, 60, 6):
        assert dispatcher.deliver(run_of(6, padding=100_000, first=first)) == 0
    assert only.connection.numbers() == list(range(60))


def test_failover_serves_the_first_by_name_and_tells_at_once() -> None:
    dispatcher = NonPersistentFailover(Topic())
    middle, first, last = consumer("m"), consumer("a"), consumer("z")
    for each in (middle, first, last):
        dispatcher.add(each)
    assert middle.connection.changes == [("m", True), ("m", False)]
    assert first.connection.changes == [("a", True)]
    assert last.connection.changes == [("z", False)]
    assert dispatcher.active is first
    assert dispatcher.deliver(run_of(2)) == 0
    dispatcher.remove(first)
    assert dispatcher.deliver(run_of(2, first=2)) == 0
    assert (first.connection.numbers(), middle.connection.numbers()) == ([0, 1], [2, 3])
    dispatcher.remove(middle)
    dispatcher.remove(last)
    assert dispatcher.active is None
    assert dispatcher.deliver(run_of(2)) == 2


def test_failover_serves_by_the_index_of_a_partition() -> None:
    dispatcher = NonPersistentFailover(Topic("non-persistent://public/default/t-partition-1"))
    for name in ("m", "a", "z"):
        dispatcher.add(consumer(name))
    assert dispatcher.active is not None
    assert dispatcher.active.name == "m"


@pytest.mark.parametrize("sizes", [[1] * 30, [30], [7, 11, 12]])
def test_shared_consumers_get_as_many(sizes: list[int]) -> None:
    dispatcher = NonPersistentShared(Topic())
    three = [consumer(name) for name in "abc"]
    for each in three:
        dispatcher.add(each)
    first = 0
    for size in sizes:
        assert dispatcher.deliver(run_of(size, first=first)) == 0
        first += size
    got = [each.connection.numbers() for each in three]
    assert [len(part) for part in got] == [10, 10, 10]
    assert sorted(number for part in got for number in part) == list(range(30))


def test_what_one_shared_consumer_cannot_take_goes_to_the_others() -> None:
    dispatcher = NonPersistentShared(Topic())
    small, large, none = consumer("s", 2), consumer("l", 20), consumer("n", 0)
    low = consumer("low", 5, priority=1)
    for each in (low, small, large, none):
        dispatcher.add(each)
    assert dispatcher.deliver(run_of(30)) == 3
    assert [len(each.connection.numbers()) for each in (small, large, none, low)] == [2, 20, 0, 5]
    assert dispatcher.deliver(run_of(4)) == 4


def test_keys_stay_with_their_consumer_and_in_order() -> None:
    dispatcher = NonPersistentKeyShared(Topic())
    assert dispatcher.deliver(run_of(3, keys=2)) == 3
    two = [consumer(name, policy=KeySharedPolicy()) for name in "ab"]
    for each in two:
        dispatcher.add(each)
    assert dispatcher.deliver(run_of(200, keys=20)) == 0
    got = [each.connection.numbers() for each in two]
    assert all(part == sorted(part) for part in got)
    keys = [{number % 20 for number in part} for part in got]
    assert keys[0]
    assert keys[1]
    assert keys[0] | keys[1] == set(range(20))
    assert not keys[0] & keys[1]
    dispatcher.remove(two[0])
    assert dispatcher.deliver(run_of(200, keys=20)) == 0
    assert len(two[1].connection.numbers()) == len(got[1]) + 200


def test_a_slot_that_nobody_has_is_a_drop() -> None:
    dispatcher = NonPersistentKeyShared(Topic())
    half = KeySharedPolicy(KeySharedMode.STICKY, ((0, 32767),))
    only = consumer(policy=half, permits=10)
    dispatcher.add(only)
    dropped = dispatcher.deliver(run_of(100, keys=100, batch=2))
    # The fifth batch uses up the permits.
    assert len(only.connection.numbers()) == 5
    assert dropped == 190
