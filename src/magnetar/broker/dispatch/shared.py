"""Dispatching to the consumers of a Shared subscription: round robin, by priority level and permits.

The chunks of one message go to one consumer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.dispatch.late import DUE_AT_ONCE
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.dispatch.waiting import DELAYED, NOBODY_READY, RATE_LIMIT, TURN, Reason, lack_of_all
from magnetar.broker.flow.loop_budget import LOOK_PRICE
from magnetar.invariants import must
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.hot_codec import CHUNKED, MARKED, TRANSACTIONAL, batch_sizes
from magnetar.protocol.metadata import chunks_follow, metadata_of

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription


_TRIMMED = 1000
"""A sorted list of positions is trimmed when it has this many unused elements before its first position."""
_FEW = 100
"""Added positions are inserted one by one if the sorted list is over this many times as long as the list of
added positions; otherwise all are sorted together."""
_GAP_BYTES = 16 * 1024
"""Reading this many unneeded bytes costs less than another read."""
_MOST_MESSAGES = 10_000
"""The maximum number of remembered messages of which some chunks were sent; a producer may never send the
rest."""
_Message = tuple[str, str]
"""The producer's name and the uuid of the message."""


class ReplayPositions:
    """A set of positions from which the lowest positions can be taken."""

    __slots__ = ("_begin", "_row", "_set", "_unsorted")

    def __init__(self) -> None:
        self._set: set[Position] = set()
        self._row: list[Position] = []
        """Positions, sorted from index ``_begin`` on; some of them have been removed from the set."""
        self._begin = 0
        self._unsorted: list[Position] = []
        """Positions added since the last sort; some may be in the list twice, or have been removed from the
        set."""

    def __len__(self) -> int:
        return len(self._set)

    def __contains__(self, position: Position) -> bool:
        return position in self._set

    def __iter__(self) -> Iterator[Position]:
        return iter(self._set)

    def add(self, position: Position) -> None:
        if position not in self._set:
            self._set.add(position)
            self._unsorted.append(position)

    def discard(self, position: Position) -> None:
        """Removes a position. The sorted lists may still contain it, and reads of the lists then skip it."""
        self._set.discard(position)
        if not self._set:
            self.clear()

    def lowest(self, limit: int, gap: int) -> list[Position]:
        """Returns the lowest positions of one ledger in order, at most ``limit``; consecutive entry ids
        differ by at most ``gap``.

        :raises IndexError: the set is empty
        """
        if self._unsorted:
            self._sort()
        row, present = self._row, self._set
        at = self._begin
        while row[at] not in present:
            at += 1
        self._begin = at
        if at > _TRIMMED:
            del row[:at]
            self._begin = at = 0
        found = [row[at]]
        ledger_id, last = row[at]
        for place in range(at + 1, len(row)):
            position = row[place]
            if len(found) == limit or position[0] != ledger_id or position[1] - last > gap:
                break
            if position in present:
                found.append(position)
                last = position[1]
        return found

    def _sort(self) -> None:
        """Merges added positions into the sorted list, without duplicates."""
        added, self._unsorted = sorted(set(self._unsorted)), []
        row = self._row
        if self._begin == len(row) or row[-1] < added[0]:
            row += added
        elif len(added) * _FEW < len(row):
            for position in added:
                at = bisect_left(row, position, self._begin)
                if at == len(row) or row[at] != position:
                    row.insert(at, position)
        else:
            at = bisect_left(row, added[0], self._begin)
            row[at:] = sorted({*row[at:], *added})

    def drop_through(self, last: Position) -> None:
        """Removes all positions at or below ``last``."""
        self._set = {each for each in self._set if each > last}
        if not self._set:
            self.clear()

    def clear(self) -> None:
        self._set.clear()
        self._row.clear()
        self._begin = 0
        self._unsorted.clear()


class SharedDispatcher(ManyConsumersDispatcher[AnyConsumer]):
    """Gives each consumer a few entries per turn; redelivered entries go before new entries."""

    replay: ReplayPositions

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription, ReplayPositions())
        self._next = 0
        self._chunks = ChunkHolders()

    def add(self, consumer: AnyConsumer) -> None:
        if not self.consumers:
            self._cursor.rewind()
            self.rewound()
        self.consumers.append(consumer)
        if len(self.consumers) == 1:
            self.waits.because(NOBODY_READY)
        self.consumers.sort(key=lambda c: c.priority)

    def remove(self, consumer: AnyConsumer) -> None:
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        pending, consumer.pending, consumer.unacked = consumer.pending, {}, 0
        self._again(self._chunks.left(consumer))
        if not self.consumers:
            self._cursor.rewind()
            self.rewound()
            return
        for ledger_id, held in pending.items():
            for entry_id, messages in held.items():
                self.unacked -= messages
                self.replay.add((ledger_id, entry_id))
        self._unblock()
        self.read_more()

    def rewound(self) -> None:
        self._chunks.clear()
        super().rewound()

    def consumed_elsewhere(self) -> None:
        self._chunks.drop_through(self._cursor.mark_delete)
        super().consumed_elsewhere()

    def let_go_waiting(self, position: Position) -> None:
        self._chunks.discard(position)
        super().let_go_waiting(position)

    def _delays_lost(self) -> None:
        self._again(self._chunks.take_all())
        super()._delays_lost()

    def _again(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self.replay.add(position)

    def _next_consumer(self) -> AnyConsumer | None:
        """Returns the next consumer among the ready consumers of the highest priority; None if no consumer is
        ready.
        """
        consumers = self.consumers
        count = len(consumers)
        best: AnyConsumer | None = None
        best_index = 0
        for step in range(count):
            index = (self._next + step) % count
            consumer = consumers[index]
            if (best is None or consumer.priority < best.priority) and consumer.ready:
                best, best_index = consumer, index
                if consumer.priority == consumers[0].priority:
                    # They are sorted: the others have no better priority.
                    break
        if best is not None:
            self._next = (best_index + 1) % count
        return best

    def read_more(self) -> None:
        while self._reading is None:
            if self.blocked:
                self.waits.because(self._blocked_by())
                return
            begin = self._next
            consumer = self._next_consumer()
            if consumer is None:
                if self.consumers:
                    self.waits.because(NOBODY_READY)
                return
            self._take_due()
            if self._chunks.waiting:
                self._again(self._chunks.take_ready())
            throttle = self._subscription.throttle
            if throttle is not None and not (self._has_more() and throttle.admits()):
                self.waits.because(RATE_LIMIT)
                self._next = begin
                return
            if not self._budget.admits(self._subscription):
                self.waits.because(TURN)
                self._next = begin
                return
            limit = min(consumer.permits, self._settings.round_robin_entries)
            if self.replay:
                if not self._send_replay(consumer, limit):
                    return
            elif not self._send_new(consumer, limit):
                return

    def _send_new(self, consumer: AnyConsumer, limit: int) -> bool:
        """Sends up to ``limit`` new entries; returns False if no entry can be taken from the cache now."""
        left = self._left
        if self._must_wait_for_acks():
            return False
        if left is None:
            if not self._leap_over_waiting():
                self.waits.because(DELAYED)
                return False
            max_bytes = consumer.read_bytes(self._settings.max_read_bytes)
            run = self._cursor.read_cached(self._entries_at_once(), max_bytes)
            if run is None:
                if self._cursor.has_more():
                    self._start(self._read(self._settings.max_read_entries, max_bytes), consumer, max_bytes)
                else:
                    self.waits.because(self._nothing_new())
                return False
            left = (run, 0, run.count)
        run, first, end = left
        stop = self._send(consumer, run, first, min(first + limit, end))
        self._left = (run, stop, end) if stop < end else None
        return True

    def _send(self, consumer: AnyConsumer, run: EntryRun, first: int, end: int) -> int:
        """Sends entries [first, end) within the permits; returns the index after the last sent entry."""
        ledger_id = run.ledger_id
        count = end - first
        if len(self._sizes) < count:
            self._sizes = array("i", bytes(4 * count))
        sizes = self._sizes
        timed = batch_sizes(run.buffer, run.starts, run.ends, first, count, sizes)
        marked, chunked = timed & MARKED, timed & CHUNKED
        if timed & TRANSACTIONAL:
            timed -= TRANSACTIONAL
            marked |= self._leave_out_aborted(run, first, count, sizes)
        timed &= ~(MARKED | CHUNKED)
        if marked:
            self._consume_markers(run, first, count, sizes)
        if chunked:
            consumer, count = self._chunks.receiver(run, range(first, end), consumer)
            if not count:
                self._wait_for_holder(consumer, (ledger_id, run.first_entry_id + first))
                return first + 1
        kept = False
        if timed or self.delays is not None:
            kept = self._keep_back(run, first, count, sizes, timed)
        count = consumer.entries_within_permits(sizes, count, self._allowance(consumer))
        if self._subscription.throttle is not None:
            count = self._subscription.throttle.fitting(run, first, count, sizes)
        end = first + count
        if self._filters is not None:
            self._filter(consumer, run, range(first, end), sizes[:count], ())
        if kept:
            self._budget.spend(count * LOOK_PRICE)
        if not self.redelivery_counts and self._is_untouched(run, first) and 0 not in sizes[:count]:
            consumer.hold_range(ledger_id, run.first_entry_id + first, sizes, count)
            messages = sum(sizes[:count])
            consumer.send_first(run, first, end, messages)
            self.unacked += messages
        else:
            self._send_mixed(consumer, run, first, end, kept=kept or marked > 0)
        if chunked:
            self._chunks.sent(run, range(first, end))
        self._check_limits(consumer)
        return end

    def _send_mixed(self, consumer: AnyConsumer, run: EntryRun, first: int, end: int, *, kept: bool) -> None:
        """Sends entries of which some are acknowledged, at least in part, or were delivered before.

        :param kept: whether some entries have size 0, because they are kept back or are markers
        """
        sizes, ledger_id, counts = self._sizes, run.ledger_id, self.redelivery_counts
        plain_from = first
        messages = 0
        for index in range(first, end):
            entry_id = run.first_entry_id + index
            size = sizes[index - first]
            found = None if kept and not size else self._remaining(ledger_id, entry_id, size)
            redelivered = counts.get((ledger_id, entry_id), 0) if counts else 0
            if found is not None and found[1] is None and not redelivered:
                consumer.hold(ledger_id, entry_id, size)
                messages += size
                continue
            if plain_from < index:
                consumer.send_first(run, plain_from, index, messages)
                self.unacked += messages
                messages = 0
            plain_from = index + 1
            if found is None:
                continue
            left, remaining = found
            consumer.hold(ledger_id, entry_id, left)
            self.unacked += left
            consumer.send_again(run, index, left, redelivered, remaining)
        if plain_from < end:
            consumer.send_first(run, plain_from, end, messages)
            self.unacked += messages

    # Redelivery

    def _send_replay(self, consumer: AnyConsumer, limit: int) -> bool:
        """Sends up to ``limit`` entries of the replay list; returns False if they are not in the cache."""
        max_bytes = consumer.read_bytes(self._settings.max_read_bytes)
        gap = self._gap()
        waiting = self.replay.lowest(limit, gap)
        first, last = waiting[0], waiting[-1]
        reader = self._subscription.topic.managed_ledger.reader
        run = reader.read_cached(first, last, last[1] - first[1] + 1, max_bytes)
        if run is None:
            # The same read brings entries into the cache that will be sent next.
            last = self.replay.lowest(DUE_AT_ONCE, gap)[-1]
            self._start(self._read_replay(first, last, max_bytes), consumer, max_bytes, again=True)
            return False
        self._replay_run(consumer, run, waiting)
        return True

    def _gap(self) -> int:
        """Returns the maximum distance, in entries, between two waiting entries that are read together; the
        unneeded entries between them are read, too.
        """
        ledgers = self._subscription.topic.managed_ledger.ledgers
        summary = ledgers.get(self.replay.lowest(1, 0)[0][0])
        if summary is None or not summary.size:
            return 1
        return max(1, _GAP_BYTES * summary.entries // summary.size)

    async def _read_replay(self, first: Position, last: Position, max_bytes: int) -> None:
        run = await self._read_again(first, last, last[1] - first[1] + 1, max_bytes)
        consumer = self._next_consumer()
        if run is not None and consumer is not None and not self.blocked and first in self.replay:
            limit = min(consumer.permits, self._settings.round_robin_entries)
            waiting = self.replay.lowest(limit, self._gap())
            if waiting[0] == first:
                self._replay_run(consumer, run, waiting)
        self.read_more()

    def _replay_run(self, consumer: AnyConsumer, run: EntryRun, waiting: Sequence[Position]) -> None:
        """Sends waiting entries of a run within the permits; the first entry of the run is a waiting
        entry.
        """
        chosen = array("q", [p[1] - run.first_entry_id for p in waiting if p[1] <= run.last_entry_id])
        sizes, size = array("i"), array("i", [0])
        chunked = 0
        for index in chosen:
            chunked |= batch_sizes(run.buffer, run.starts, run.ends, index, 1, size) & CHUNKED
            sizes.append(size[0])
        if chunked:
            consumer, together = self._chunks.receiver(run, chosen, consumer)
            if not together:
                self.replay.discard(waiting[0])
                self._wait_for_holder(consumer, waiting[0])
                return
            chosen = chosen[:together]
        count = consumer.entries_within_permits(sizes, len(chosen), self._allowance(consumer))
        if self._subscription.throttle is not None:
            count = self._subscription.throttle.fitting_of(run, chosen[:count], sizes)
        chosen = chosen[:count]
        if self._filters is not None:
            self._filter(consumer, run, chosen, sizes[:count], ())
        self._send_chosen(consumer, run, chosen, sizes)
        if chunked:
            self._chunks.sent(run, chosen)
        for position in waiting[:count]:
            self.replay.discard(position)
        self._check_limits(consumer)

    def _send_chosen(
        self, consumer: AnyConsumer, run: EntryRun, chosen: array[int], sizes: array[int]
    ) -> None:
        """Sends the entries with the indexes ``chosen``, without their acknowledged messages."""
        ledger_id, counts = run.ledger_id, self.redelivery_counts
        plain, messages = array("q"), 0
        for index, size in zip(chosen, sizes, strict=False):
            entry_id = run.first_entry_id + index
            found = self._remaining(ledger_id, entry_id, size)
            if found is None:
                continue
            left, remaining = found
            consumer.hold(ledger_id, entry_id, left)
            self.unacked += left
            redelivered = counts.get((ledger_id, entry_id), 0) if counts else 0
            if remaining is None and not redelivered:
                plain.append(index)
                messages += left
                continue
            if plain:
                consumer.send_chosen(run, plain, messages)
                plain, messages = array("q"), 0
            consumer.send_again(run, index, left, redelivered, remaining)
        if plain:
            consumer.send_chosen(run, plain, messages)

    def _wait_again(self, consumer: AnyConsumer, position: Position) -> int | None:
        messages: int | None = consumer.let_go(*position)
        if messages is not None:
            self.replay.add(position)
        return messages

    def _wait_for_filter(self, position: Position, _slot: int) -> None:
        self.replay.add(position)

    def _wait_as_due(self, position: Position, _hashed: int) -> None:
        self.replay.add(position)

    def _wait_for_holder(self, consumer: AnyConsumer, position: Position) -> None:
        """Lets a chunk wait until the consumer of the message's other chunks is ready."""
        if consumer not in self.consumers:
            self._violated(f"consumer of the chunk {position}", "a connected one", consumer.name)
        if position in self.replay:
            self._violated(f"lists in which the chunk {position} waits", 1, 2)
        self._chunks.wait(consumer, position)

    def _nothing_new(self) -> Reason:
        waiting = self._chunks.waiting
        return lack_of_all(waiting) if waiting else super()._nothing_new()

    def check(self) -> None:
        super().check()
        waiting = set(self._chunks)
        must(waiting.isdisjoint(self.replay), self._subscription.name, "lets chunks wait twice")
        for consumer in self.consumers:
            for ledger_id, entry_id in waiting:
                held = entry_id in consumer.pending.get(ledger_id, {})
                must(not held, consumer.name, "holds a chunk that waits:", (ledger_id, entry_id))
        for consumer in self._chunks.waiting:
            must(consumer in self.consumers, self._subscription.name, "lets chunks wait for who has gone")


class ChunkHolders:
    """The consumers of chunked messages in a Shared subscription: one consumer gets all chunks of a message.

    Pulsar's ``SharedConsumerAssignor`` has followed this rule since 2.11 (PIP-37). An instance knows the
    consumers that got the first chunks of messages, and the chunks that wait for these consumers.
    """

    def __init__(self) -> None:
        self._holders: dict[_Message, AnyConsumer] = {}
        self.waiting: dict[AnyConsumer, set[Position]] = {}
        """The waiting chunks of each consumer."""

    def __iter__(self) -> Iterator[Position]:
        """Yields all waiting chunks."""
        return chain.from_iterable(self.waiting.values())

    def receiver(
        self, run: EntryRun, indexes: Sequence[int], offered: AnyConsumer
    ) -> tuple[AnyConsumer, int]:
        """Returns the consumer of the first of these entries, and how many entries go to that consumer. If
        the number is 0, the caller must call :meth:`wait`.

        :param indexes: the indexes of the entries in the run, at least one
        :param offered: the consumer for other entries, and for chunks of messages that no consumer has yet
        """
        consumer = self._of(run, indexes[0], offered)
        if not consumer.ready or consumer in self.waiting:
            return consumer, 0
        count = 1
        while count < len(indexes) and self._of(run, indexes[count], consumer) is consumer:
            count += 1
        return consumer, count

    def _of(self, run: EntryRun, index: int, offered: AnyConsumer) -> AnyConsumer:
        found = _chunk_at(run, index)
        if found is None:
            return offered
        message, first, _last = found
        holder = self._holders.get(message)
        if holder is None or (first and not holder.ready):
            self._holders.pop(message, None)
            if len(self._holders) >= _MOST_MESSAGES:
                del self._holders[next(iter(self._holders))]
            self._holders[message] = holder = offered
        return holder

    def sent(self, run: EntryRun, indexes: Sequence[int]) -> None:
        """Records that these entries were sent. A message whose last chunk is among them is complete."""
        for index in indexes:
            found = _chunk_at(run, index)
            if found is not None and found[2]:
                self._holders.pop(found[0], None)

    def wait(self, consumer: AnyConsumer, position: Position) -> None:
        """Lets a chunk wait until its consumer is ready."""
        self.waiting.setdefault(consumer, set()).add(position)

    def take_ready(self) -> list[Position]:
        """Removes and returns the waiting chunks whose consumers are ready."""
        return [
            each for consumer in tuple(self.waiting) if consumer.ready for each in self.waiting.pop(consumer)
        ]

    def take_all(self) -> list[Position]:
        """Removes and returns all waiting chunks."""
        waiting, self.waiting = list(self), {}
        return waiting

    def left(self, consumer: AnyConsumer) -> set[Position]:
        """Reports that a consumer has left, so that other consumers may get its chunks; returns its waiting
        chunks.
        """
        self._holders = {message: each for message, each in self._holders.items() if each is not consumer}
        return self.waiting.pop(consumer, set())

    def discard(self, position: Position) -> None:
        """Reports that a chunk was acknowledged."""
        if self.waiting:
            self._keep({each for each in self if each != position})

    def drop_through(self, last: Position) -> None:
        """Reports that all entries at or below ``last`` were acknowledged."""
        if self.waiting:
            self._keep({each for each in self if each > last})

    def _keep(self, positions: set[Position]) -> None:
        kept = {consumer: waiting & positions for consumer, waiting in self.waiting.items()}
        self.waiting = {consumer: waiting for consumer, waiting in kept.items() if waiting}

    def clear(self) -> None:
        """Forgets all chunks, after the cursor was moved."""
        self._holders.clear()
        self.waiting.clear()


def _chunk_at(run: EntryRun, index: int) -> tuple[_Message, bool, bool] | None:
    """Returns the message of a chunk, whether the chunk is its first, and whether it is its last; None if the
    entry is not a chunk.
    """
    try:
        metadata = metadata_of(run.buffer, run.starts[index], run.ends[index])
    except EntryError:
        # It is delivered as it is: the client reports what is wrong with it.
        return None
    if not metadata.HasField("chunk_id"):
        return None
    message = (metadata.producer_name, metadata.uuid)
    return message, metadata.chunk_id == 0, not chunks_follow(metadata)
