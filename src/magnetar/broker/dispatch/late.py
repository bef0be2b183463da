"""Delayed delivery in dispatchers to several consumers."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from typing import TYPE_CHECKING, Generic, TypeVar

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.delays.index import PROPERTY as DELAY_INDEX
from magnetar.broker.delays.tracker import DelayTracker
from magnetar.broker.dispatch.contract import Replay
from magnetar.broker.dispatch.reading import ReadingDispatcher
from magnetar.broker.dispatch.waiting import AT_END, DELAYED, FILTER, READING, Reason
from magnetar.ledger.interface import EntryRun, LedgerError
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import deliver_at, key_hash

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription


C = TypeVar("C", bound=AnyConsumer)

_LEAPS_AT_ONCE = 100
"""The maximum number of leaps in one call. Each leap skips consecutive entries that wait for their delivery
time: a whole ledger, or a large part of one."""
DUE_AT_ONCE = 5000
"""The number of due entries that are taken at a time, so that neighbouring entries are read together."""
_DUE_AGAIN = 100
"""The next due entries are taken when at most this many positions are in the replay list."""


class LateDelivery(ReadingDispatcher, Generic[C]):
    """The part of a dispatcher that keeps the entries that wait for their delivery time."""

    _delivers_ahead = True
    """Whether due entries may be delivered before earlier entries of the topic were read."""

    def __init__(self, subscription: Subscription, replay: Replay) -> None:
        super().__init__(subscription)
        self.consumers: list[C] = []
        self.replay = replay
        self.delays: DelayTracker | None = None
        """The waiting entries; None until the first such entry is found."""
        self._put_off: dict[Position, None] = {}
        """Entries that a filter rescheduled."""
        self._left: tuple[EntryRun, int, int] | None = None
        self._closed = False

    def _begin_delays(self) -> None:
        """Starts loading a saved index; no entries are read until the index is loaded."""
        storage = self._cursor.storage
        if storage is not None and DELAY_INDEX in storage.side.properties:
            self._reading = self._subscription.topic.tasks.start(
                self._load_delays(), "loading the index of delayed messages"
            )
            self.waits.because(READING)

    def _new_tracker(self) -> DelayTracker:
        topic, subscription = self._subscription.topic, self._subscription
        return DelayTracker(
            topic.loop,
            topic.clock,
            topic.wheel,
            self._settings.delays,
            self._cursor,
            subscription.go_on,
            self._delays_lost,
            topic.fail,
        )

    async def _load_delays(self) -> None:
        """Loads the saved index of delayed messages."""
        delays = self._new_tracker()
        try:
            await delays.load()
        except LedgerError as error:
            self._subscription.read_failed(error)
        self._reading = None
        if self._closed:
            delays.close()
            return
        self.delays = delays
        self._subscription.go_on()

    def _delays_lost(self) -> None:
        """Rewinds the cursor after the index was lost. Entries that a consumer holds, that are in the replay
        list, or that a filter rescheduled are not delivered twice."""
        delays = self.delays
        if delays is None:
            return
        for consumer in self.consumers:
            for ledger_id, held in consumer.pending.items():
                for entry_id in held:
                    delays.hand_out((ledger_id, entry_id))
        for position in (*self.replay, *self._put_off):
            delays.hand_out(position)
        self._left = None
        self._cursor.rewind()
        self._subscription.go_on()

    def forget_delays(self, *, moved: bool) -> None:
        """Discards the waiting entries.

        :param moved: whether the cursor was moved by a seek, and reads from its new position on
        """
        if self.delays is not None:
            self.delays.close(forget=moved)
            self.delays = None

    async def save_delays(self) -> None:
        """Saves the index of waiting entries for the next load."""
        if self.delays is not None:
            await self.delays.finish()

    def let_go_waiting(self, position: Position) -> None:
        """Reports the acknowledgement of an entry that no consumer holds: the entry no longer waits."""
        self.replay.discard(position)
        if self.delays is not None:
            self.delays.discard(position)

    def _keep_back(self, run: EntryRun, first: int, count: int, sizes: array[int], timed: int) -> bool:
        """Keeps back the entries whose delivery time is in the future: their sizes become 0.

        The same happens to entries that are waiting already, or were due and delivered before they were read.

        :param sizes: the number of messages of each entry; index 0 is entry ``first``
        :param timed: how many of the ``count`` entries have a delivery time
        :return: whether any size became 0
        """
        delays = self.delays
        if delays is None:
            if not timed:
                return False
            delays = self.delays = self._new_tracker()
        if not timed and not delays.knows_any_of(run, first, first + count):
            delays.passed_by()
            return False
        kept = False
        ledger_id = run.ledger_id
        for place in range(count):
            index = first + place
            entry_id = run.first_entry_id + index
            if delays.knows((ledger_id, entry_id)):
                sizes[place], kept = 0, True
            elif self._cursor.is_consumed(ledger_id, entry_id):
                continue
            else:
                start, end = run.starts[index], run.ends[index]
                due = deliver_at(run.buffer, start, end)
                if due > 0 and delays.add(due, ledger_id, entry_id, key_hash(run.buffer, start, end)):
                    sizes[place], kept = 0, True
                elif due <= 0:
                    delays.passed_by()
        return kept

    def _leap_over_waiting(self) -> bool:
        """Moves the read position over waiting entries; returns False if delayed delivery pauses reading."""
        delays = self.delays
        if delays is None:
            return True
        if delays.pauses_reading:
            return False
        cursor = self._cursor
        for _ in range(_LEAPS_AT_ONCE):
            position = cursor.next_position()
            found = delays.behind(position, cursor.state.ranges.get(position[0]))
            if found == position:
                break
            cursor.leap_to(found)
        return True

    def _nothing_new(self) -> Reason:
        """Returns the reason why nothing is sent although everything was read."""
        if self.delays is not None and self.delays.waiting.count:
            return DELAYED
        return FILTER if self._put_off else AT_END

    def _take_due(self) -> None:
        """Moves due entries to the replay list, unless it has more than :data:`_DUE_AGAIN` positions."""
        delays = self.delays
        if delays is None or not delays.is_due() or len(self.replay) > _DUE_AGAIN:
            return
        unread = self._unread()
        for position, hashed in delays.take_due(DUE_AT_ONCE, unread, ahead=self._delivers_ahead):
            if not self._cursor.is_consumed(*position):
                self._wait_as_due(position, hashed)

    def _unread(self) -> Position:
        """Returns the first position that was not read, or was read and not processed yet."""
        if self._left is None:
            return self._cursor.read_position
        run, first, _end = self._left
        return run.ledger_id, run.first_entry_id + first

    @abstractmethod
    def _wait_as_due(self, position: Position, hashed: int) -> None:
        """Adds a due entry to the replay list.

        :param hashed: the hash of the entry's key
        """
