"""Entries that wait for their delivery time, in dispatchers to several consumers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from typing import Any, Generic, TypeVar

from magnetar.broker.delays.index import PROPERTY as DELAY_INDEX
from magnetar.broker.delays.tracker import DelayTracker
from magnetar.broker.dispatch.contract import AnyConsumer, DispatchedSubscription, Replay
from magnetar.broker.dispatch.waiting import AT_END, DELAYED, FILTER, READING, Reason, Waiting
from magnetar.ledger.entry_run import EntryRun
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import deliver_at, key_hash

C = TypeVar("C", bound=AnyConsumer)

_LEAPS_AT_ONCE = 100
"""Ledgers, or large parts of them, that are left out at a time because all in them waits or is consumed."""
DUE_AT_ONCE = 5000
"""Entries whose time has come that are to be delivered are taken so many at a time: what lies close together
is read together."""
_DUE_AGAIN = 100
"""The next ones are taken when no more than so many are left."""


class LateDelivery(ABC, Generic[C]):
    """What a dispatcher has of entries before it sends them, and which of these wait for their time."""

    _delivers_ahead = True
    """Whether what has become due may be delivered before what lies in front of it was read."""

    def __init__(self, subscription: DispatchedSubscription, replay: Replay) -> None:
        self._subscription = subscription
        self._cursor = subscription.cursor
        self._settings = subscription.topic.dispatch_settings
        self.consumers: list[C] = []
        self.replay = replay
        self.delays: DelayTracker | None = None
        """Entries that wait for their time; None until the first one comes."""
        self._put_off: dict[Position, None] = {}
        """What a filter wants to be asked about again."""
        self._left: tuple[EntryRun, int, int] | None = None
        self._reading: Any = None
        self._closed = False
        self.waits = Waiting(subscription.topic.clock)

    def _begin_delays(self) -> None:
        """Nothing is read before it is known what waits."""
        storage = self._cursor.storage
        if storage is not None and DELAY_INDEX in storage.side.properties:
            self._reading = self._subscription.topic.loop.create_task(self._load_delays())
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
        )

    async def _load_delays(self) -> None:
        """Takes up what the last life knew of what waits."""
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
        """What waits is not known any more: everything is read again but what is delivered or about to be."""
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
        """Nothing waits for its time any more.

        :param moved: the cursor is elsewhere, and what lies there is read anew
        """
        if self.delays is not None:
            self.delays.close(forget=moved)
            self.delays = None

    async def save_delays(self) -> None:
        """Writes what the next life is to know of what waits."""
        if self.delays is not None:
            await self.delays.finish()

    def let_go_waiting(self, position: Position) -> None:
        """It was consumed, and is held by nobody: then it does not wait for delivery either."""
        self.replay.discard(position)
        if self.delays is not None:
            self.delays.discard(position)

    def _keep_back(self, run: EntryRun, first: int, count: int, sizes: array[int], timed: int) -> bool:
        """Lets those of ``count`` entries wait whose time is to come: their sizes become 0.

        So do those of what waits already, or became due and was delivered before it was read.

        :param sizes: messages of the entries, that of entry ``first`` at 0
        :param timed: how many of them have a delivery time
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
        """Sees to it that what is read next does not wait already; whether anything is to be read now."""
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
        """Why nothing is sent although nothing is left to be read."""
        if self.delays is not None and self.delays.waiting.count:
            return DELAYED
        return FILTER if self._put_off else AT_END

    def _take_due(self) -> None:
        """Lets what has become due wait for delivery, as long as not much waits for it."""
        delays = self.delays
        if delays is None or not delays.is_due() or len(self.replay) > _DUE_AGAIN:
            return
        unread = self._cursor.read_position
        if self._left is not None:
            run, first, _end = self._left
            unread = (run.ledger_id, run.first_entry_id + first)
        for position, hashed in delays.take_due(DUE_AT_ONCE, unread, ahead=self._delivers_ahead):
            if not self._cursor.is_consumed(*position):
                self._wait_as_due(position, hashed)

    @abstractmethod
    def _wait_as_due(self, position: Position, hashed: int) -> None:
        """Lets an entry whose time has come wait for delivery.

        :param hashed: hash of its key
        """
