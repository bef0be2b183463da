"""A connected consumer of a subscription."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from magnetar.broker.flow.rates import Rate
from magnetar.invariants import must, violated
from magnetar.io.interfaces import LARGE_PIECE
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.hot_ranges import same_ledger_until
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import words_from_bits
from magnetar.protocol.hot_codec import (
    encode_alike,
    encode_chosen,
    encode_message,
    encode_messages,
    key_slots,
    message_head,
)
from magnetar.protocol.hot_keys import RANGE_SLOTS
from magnetar.protocol.metadata import BROKER_MAGIC, broker_metadata_size
from magnetar.security.authentication import BROKER, Principal

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection

NON_PERSISTENT_ID: Position = (0, 0)
"""The position of all messages of non-persistent topics, also in their receipts."""

DROPPED_ID: Position = (-1, -1)
"""The position in the receipt of a message that was dropped because too many messages were in flight."""


class NonPersistentRun:
    """``count`` entries ``buffer[starts[i]:ends[i]]`` with ``sizes[i]`` messages each, ``messages`` in total.

    A run must not be kept after the call that it is passed to, because its arrays are reused.
    """

    __slots__ = ("buffer", "count", "ends", "messages", "sizes", "starts")

    def __init__(
        self, buffer: bytes, starts: array[int], ends: array[int], sizes: array[int], count: int
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.ends = ends
        self.sizes = sizes
        self.count = count
        self.messages = sum(sizes[:count])

    def only(self, chosen: Sequence[int]) -> NonPersistentRun:
        """Returns a run of the entries with the indexes ``chosen``."""
        return NonPersistentRun(
            self.buffer,
            array("q", [self.starts[index] for index in chosen]),
            array("q", [self.ends[index] for index in chosen]),
            array("i", [self.sizes[index] for index in chosen]),
            len(chosen),
        )

    def messages_in(self, first: int, end: int) -> int:
        """Returns the number of messages in the entries [first, end)."""
        if first == 0 and end == self.count:
            return self.messages
        return sum(self.sizes[first:end])

    def entry_bytes(self, first: int, end: int) -> int:
        """Returns the size of the entries [first, end), in bytes."""
        return sum(self.ends[first:end]) - sum(self.starts[first:end])

    def bytes_in(self, first: int, end: int) -> int:
        """Returns the size of the entries [first, end) and of the gaps between them, in bytes."""
        return self.ends[end - 1] - self.starts[first] if first < end else 0


class ConsumerSubscription(Protocol):
    """The methods of a subscription that its consumers call."""

    def sent(self, entries: int, messages: int, size: int) -> int:
        """Counts entries that were sent; returns the current time, in ms since 1970.

        :param size: bytes of the entries as stored
        """
        ...

    def fail(self, error: BaseException) -> None:
        """Closes the topic after an internal error."""
        ...


S_co = TypeVar("S_co", bound=ConsumerSubscription, covariant=True)
MAX_BATCH = 1 << 20
"""The maximum size of a batch whose messages are acknowledged one by one, because the broker keeps a bit for
each. A larger batch is acknowledged as a whole."""
_LEAST_PERMITS = -(2**31)
"""The lowest number of permits. The last entry may exceed the permits by a whole batch, whose size producers
state in 31 bits."""
_FEW = 8
"""The number of entries up to which adding their sizes is as fast as calculating the sum from frames."""


def entry_bytes(run: EntryRun, first: int, end: int, frames: bytes | bytearray = b"") -> int:
    """Returns the size of entries [first, end) of a run as stored, in bytes.

    :param frames: the frames in which the entries are sent for the first time, if known; they allow a faster
        calculation
    """
    if end - first == 1:
        return run.ends[first] - run.starts[first]
    if frames and end - first > _FEW:
        low, high = run.first_entry_id + first, run.first_entry_id + end - 1
        if (low.bit_length() + 6) // 7 == (high.bit_length() + 6) // 7:
            # The frames of all entries have headers of the same size.
            header = int.from_bytes(frames[:4], "big") + 4 - run.ends[first] + run.starts[first]
            return len(frames) - header * (end - first)
    return sum(run.ends[first:end]) - sum(run.starts[first:end])


def goes_in_place(run: EntryRun, count: int, size: int) -> bool:
    """Whether entries are sent without a copy: they are large, and make up most of their buffer.

    :param size: bytes of ``count`` entries of the run, possibly with small gaps between them
    """
    return size >= 2 * LARGE_PIECE * count and 4 * size >= len(run.buffer)


def has_broker_entry_metadata(run: EntryRun, first: int, last: int) -> bool:
    """Whether entries from ``first`` to ``last`` of a run have broker entry metadata; only the entries
    ``first`` and ``last`` are checked. In a ledger of a topic, either all entries have this metadata or none
    has it. A compacted ledger can contain entries with and without it, because a restart can change the
    setting.
    """
    start, end = run.starts[first], run.starts[last]
    return run.buffer[start : start + 2] == BROKER_MAGIC or (
        end != start and run.buffer[end : end + 2] == BROKER_MAGIC
    )


def without_broker_entry_metadata(run: EntryRun, indexes: Iterable[int]) -> EntryRun:
    """Returns the run with the entries at ``indexes`` as their producers sent them."""
    starts = run.starts[:]
    for index in indexes:
        starts[index] += broker_metadata_size(run.buffer, starts[index])
    return EntryRun(run.ledger_id, run.first_entry_id, run.count, run.buffer, starts, run.ends)


class Consumer(Generic[S_co]):
    """A consumer, which receives MESSAGE frames within its permits.
    On a Shared or Key_Shared subscription, ``pending`` has the numbers of unacknowledged messages, by ledger
    and entry.
    """

    __slots__ = (
        "acks",
        "address",
        "blocked",
        "client_version",
        "closed",
        "connected_ms",
        "connection",
        "consumer_id",
        "entries_out",
        "epoch",
        "last_acked_ms",
        "last_consumed_flow_ms",
        "last_consumed_ms",
        "metadata",
        "name",
        "partition",
        "pending",
        "permits",
        "permits_while_blocked",
        "principal",
        "priority",
        "rate_out",
        "read_compacted",
        "redelivered",
        "shows_broker_entry_metadata",
        "subscription",
        "takes_any_schema",
        "unacked",
    )

    def __init__(
        self,
        subscription: S_co,
        connection: Connection,
        consumer_id: int,
        name: str,
        *,
        priority: int,
        epoch: int | None,
        metadata: Mapping[str, str],
        connected_ms: int,
        partition: int,
        principal: Principal = BROKER,
    ) -> None:
        """:param principal: the principal of the consumer's client"""
        self.subscription = subscription
        self.connection = connection
        self.consumer_id = consumer_id
        self.name = name
        self.priority = priority
        self.epoch = epoch
        self.metadata = dict(metadata)
        self.connected_ms = connected_ms
        self.address = connection.address
        self.client_version = connection.client_version
        self.partition = partition
        self.principal = principal
        self.shows_broker_entry_metadata = False
        """Whether the consumer's client accepts broker entry metadata."""
        self.takes_any_schema = False
        """Whether the consumer declared the schema AUTO_CONSUME."""
        self.read_compacted = False
        """Whether the consumer gets only the newest message of each key in the compacted part of the
        topic."""
        self.permits = 0
        self.permits_while_blocked = 0
        self.unacked = 0
        self.blocked = False
        self.closed = False
        self.pending: dict[int, dict[int, int]] = {}
        self.rate_out = Rate()
        self.redelivered = Rate()
        self.acks = Rate()
        self.entries_out = 0
        self.last_acked_ms = 0
        self.last_consumed_ms = 0
        self.last_consumed_flow_ms = 0

    @property
    def ready(self) -> bool:
        """Whether a message may be sent now."""
        return self.permits > 0 and not self.blocked and self.connection.outgoing.room > 0

    def read_bytes(self, limit: int) -> int:
        """Returns the number of bytes to read at a time for this consumer, at most ``limit``."""
        return max(1, min(limit, self.connection.outgoing.room))

    def entries_within_permits(self, sizes: Sequence[int], count: int, allowed: int | None = None) -> int:
        """Returns how many of ``count`` entries with ``sizes[i]`` messages each may be sent.

        The last entry may exceed the permits.

        :param allowed: a limit on messages besides the permits, above 0; None: no other limit
        """
        left = self.permits if allowed is None else min(self.permits, allowed)
        if sum(sizes[:count]) <= left:
            return count
        for index in range(count):
            left -= sizes[index]
            if left <= 0:
                return index + 1
        return count

    def send_first(self, run: EntryRun, first: int, end: int, messages: int) -> None:
        """Sends entries [first, end) of a run for the first time; they cost ``messages`` permits."""
        if not self.shows_broker_entry_metadata and has_broker_entry_metadata(run, first, end - 1):
            run = without_broker_entry_metadata(run, range(first, end))
        # A client that asked for redelivery of everything discards messages of an earlier epoch.
        epoch = -1 if self.epoch is None else self.epoch
        if epoch < -1:
            self._send_one_by_one(run, first, end, messages)
            return
        if goes_in_place(run, end - first, run.ends[end - 1] - run.starts[first]):
            self._queue_in_place(run, range(first, end), epoch)
            self._sent(end - first, messages, entry_bytes(run, first, end))
            return
        frames = encode_messages(
            self.consumer_id,
            run.ledger_id,
            run.first_entry_id + first,
            run.buffer,
            run.starts,
            run.ends,
            first,
            end - first,
            self.partition,
            epoch,
        )
        self.connection.queue(frames)
        self._sent(end - first, messages, entry_bytes(run, first, end, frames))

    def _send_one_by_one(self, run: EntryRun, first: int, end: int, messages: int) -> None:
        for index in range(first, end):
            self.connection.queue(self._frame(run, index, 0, None))
        self._sent(end - first, messages, entry_bytes(run, first, end))

    def send_chosen(self, run: EntryRun, chosen: array[int], messages: int) -> None:
        """Sends the entries of a run with the indexes ``chosen``, in ascending order, for the first time.

        Only for consumers of Shared and Key_Shared subscriptions, because these consumers have no epoch.
        """
        if not self.shows_broker_entry_metadata and has_broker_entry_metadata(run, chosen[0], chosen[-1]):
            run = without_broker_entry_metadata(run, chosen)
        size = sum(map(run.ends.__getitem__, chosen)) - sum(map(run.starts.__getitem__, chosen))
        if goes_in_place(run, len(chosen), size):
            self._queue_in_place(run, chosen, -1)
            self._sent(len(chosen), messages, size)
            return
        frames = encode_chosen(
            self.consumer_id,
            run.ledger_id,
            run.first_entry_id,
            run.buffer,
            run.starts,
            run.ends,
            chosen,
            len(chosen),
            self.partition,
        )
        self.connection.queue(frames)
        self._sent(len(chosen), messages, size)

    def _queue_in_place(self, run: EntryRun, indexes: Iterable[int], epoch: int) -> None:
        view = memoryview(run.buffer)
        for index in indexes:
            start, end = run.starts[index], run.ends[index]
            head = message_head(
                self.consumer_id,
                run.ledger_id,
                run.first_entry_id + index,
                end - start,
                self.partition,
                epoch,
            )
            self.connection.queue(head)
            self.connection.queue(view[start:end])

    def send_non_persistent(self, run: NonPersistentRun, first: int, end: int, messages: int) -> None:
        """Sends entries [first, end) of a non-persistent topic; they cost ``messages`` permits."""
        ledger_id, entry_id = NON_PERSISTENT_ID
        epoch = -1 if self.epoch is None else self.epoch
        if epoch < -1:
            for index in range(first, end):
                start, stop = run.starts[index], run.ends[index]
                self.connection.queue(
                    encode_message(
                        self.consumer_id,
                        ledger_id,
                        entry_id,
                        0,
                        None,
                        epoch,
                        run.buffer,
                        start,
                        stop,
                        self.partition,
                    )
                )
        else:
            self.connection.queue(
                encode_alike(
                    self.consumer_id,
                    ledger_id,
                    entry_id,
                    run.buffer,
                    run.starts,
                    run.ends,
                    first,
                    end - first,
                    self.partition,
                    epoch,
                )
            )
        self._sent(end - first, messages, run.entry_bytes(first, end))

    def send_again(
        self, run: EntryRun, index: int, messages: int, redelivery_count: int, remaining: int | None
    ) -> None:
        """Sends one entry with a redelivery count, or only some messages of a batch.

        :param messages: the number of permits that the entry costs
        :param remaining: a bit for each message of the batch that is to be delivered; None: all messages
        """
        if not self.shows_broker_entry_metadata and has_broker_entry_metadata(run, index, index):
            run = without_broker_entry_metadata(run, (index,))
        words: Sequence[int] | None = None if remaining is None else words_from_bits(remaining)
        self.connection.queue(self._frame(run, index, redelivery_count, words))
        self._sent(1, messages, run.ends[index] - run.starts[index])

    def _frame(
        self, run: EntryRun, index: int, redelivery_count: int, words: Sequence[int] | None
    ) -> bytearray:
        return encode_message(
            self.consumer_id,
            run.ledger_id,
            run.first_entry_id + index,
            redelivery_count,
            words,
            self.epoch,
            run.buffer,
            run.starts[index],
            run.ends[index],
            self.partition,
        )

    def _sent(self, entries: int, messages: int, size: int) -> None:
        self.permits -= messages
        if self.permits <= _LEAST_PERMITS:
            self._violated("permits", f"more than {_LEAST_PERMITS}", self.permits)
        self.entries_out += entries
        self.rate_out.messages += messages
        self.rate_out.bytes += size
        self.last_consumed_ms = self.subscription.sent(entries, messages, size)

    # Unacknowledged messages (Shared)

    def hold(self, ledger_id: int, entry_id: int, messages: int) -> None:
        held = self.pending.get(ledger_id)
        if held is None:
            held = self.pending[ledger_id] = {}
        held[entry_id] = messages
        self.unacked += messages

    def hold_range(self, ledger_id: int, first_entry_id: int, messages: Sequence[int], count: int) -> None:
        """Records that the consumer holds ``count`` consecutive entries with ``messages[i]`` messages
        each.
        """
        held = self.pending.get(ledger_id)
        if held is None:
            held = self.pending[ledger_id] = {}
        held.update(zip(range(first_entry_id, first_entry_id + count), messages, strict=False))
        self.unacked += sum(messages[:count])

    def let_go(self, ledger_id: int, entry_id: int) -> int | None:
        """Removes a held entry; returns the number of its unacknowledged messages, or None if it was not
        held."""
        held = self.pending.get(ledger_id)
        if held is None:
            return None
        found = held.pop(entry_id, None)
        if found is None:
            return None
        if not held:
            del self.pending[ledger_id]
        messages = self._gone((found,))
        self.unacked -= messages
        if self.unacked < 0:
            self._violated("unacknowledged messages", "at least 0", self.unacked)
        return messages

    def let_go_run(
        self, ledger_ids: array[int], entry_ids: array[int], count: int
    ) -> tuple[int, Sequence[int]]:
        """Removes ``count`` held entries, like :meth:`let_go`.

        :return: the number of their unacknowledged messages, and the indexes of entries that were not held
        """
        found: list[int | None] = []
        index = 0
        while index < count:
            stop = same_ledger_until(ledger_ids, index, count)
            held = self.pending.get(ledger_ids[index])
            if held is None:
                found += [None] * (stop - index)
            else:
                pop = held.pop
                found += [pop(entry_id, None) for entry_id in entry_ids[index:stop]]
                if not held:
                    del self.pending[ledger_ids[index]]
            index = stop
        gone = [each for each in found if each is not None]
        released = self._gone(gone)
        self.unacked -= released
        if self.unacked < 0:
            self._violated("unacknowledged messages", "at least 0", self.unacked)
        if len(gone) == count:
            return released, ()
        return released, [index for index, each in enumerate(found) if each is None]

    def _gone(self, held: Sequence[int]) -> int:
        """Returns the number of messages in entries that are no longer held.
        :param held: the values that ``pending`` had for these entries
        """
        return sum(held)

    def reduce(self, ledger_id: int, entry_id: int, messages: int) -> int:
        """Subtracts acknowledged messages of a batch from the unacknowledged messages that this consumer
        holds; returns how many were subtracted.

        A client may acknowledge more messages than the batch has.
        """
        held = self.pending.get(ledger_id)
        if held is None or entry_id not in held:
            return 0
        messages = min(messages, held[entry_id])
        held[entry_id] -= messages
        self.unacked -= messages
        if self.unacked < 0:
            self._violated("unacknowledged messages", "at least 0", self.unacked)
        return messages

    def messages_held(self, ledger_id: int, entry_id: int) -> int:
        """Returns the number of unacknowledged messages of an entry; 0 if the entry is not held."""
        return self.pending.get(ledger_id, {}).get(entry_id, 0)

    def average_messages_per_entry(self) -> int:
        return round(self.rate_out.messages / self.entries_out) if self.entries_out else 0

    def _violated(self, what: str, expected: object, found: object) -> NoReturn:
        violated(self.subscription.fail, f"{what} of consumer {self.name}", expected, found)

    def check(self) -> None:
        """Checks the counters of unacknowledged messages and permits.

        :raises BrokenInvariant: a counter does not match the entries that the consumer holds
        """
        held = sum(
            self.messages_held(ledger_id, entry_id)
            for ledger_id, entries in self.pending.items()
            for entry_id in entries
        )
        must(self.unacked == held, self.name, "counts", self.unacked, "unacknowledged, and holds", held)
        must(all(self.pending.values()), self.name, "holds a ledger without entries")
        must(self.permits > _LEAST_PERMITS, self.name, "has", self.permits, "permits")


AnyConsumer: TypeAlias = Consumer[ConsumerSubscription]
"""A consumer of any kind of subscription."""


class ConsumerFacts(TypedDict):
    """The properties of a consumer from its SUBSCRIBE and its connection, for any type of subscription."""

    principal: Principal
    priority: int
    epoch: int | None
    metadata: Mapping[str, str]
    connected_ms: int
    partition: int


class RangedConsumer(Consumer[S_co]):
    """A consumer of an Exclusive subscription that requests only some of the keys, as a reader can.

    The consumer receives the entries whose slots are in its ranges; other entries stay unacknowledged.
    """

    __slots__ = ("ranges",)

    def __init__(
        self,
        ranges: Sequence[tuple[int, int]],
        subscription: S_co,
        connection: Connection,
        consumer_id: int,
        name: str,
        **more: Unpack[ConsumerFacts],
    ) -> None:
        """:param ranges: the first and last slot of each range, both included

        :param more: further arguments of :class:`Consumer`
        """
        super().__init__(subscription, connection, consumer_id, name, **more)
        self.ranges = ranges

    def wanted(self, run: EntryRun | NonPersistentRun, first: int, end: int) -> list[int]:
        """Returns the indexes of the entries in [first, end) of a run that this consumer receives."""
        slots = array("i", bytes(4 * (end - first)))
        key_slots(run.buffer, run.starts, run.ends, first, end - first, RANGE_SLOTS, slots)
        return [
            first + index
            for index, slot in enumerate(slots)
            if any(low <= slot <= high for low, high in self.ranges)
        ]
