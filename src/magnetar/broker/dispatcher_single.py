"""Dispatching to the one consumer of an exclusive subscription, in order."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from magnetar.broker.consumer import Consumer
from magnetar.ledger.entry_run import EntryRun
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import batch_sizes

if TYPE_CHECKING:
    from magnetar.broker.subscription import Subscription


class SingleConsumerDispatcher:
    """Reads on while the consumer has permits and its socket takes more."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._cursor = subscription.cursor
        self._settings = subscription.topic.dispatch_settings
        self.consumers: list[Consumer] = []
        self._reading: Any = None
        self._sizes = array("i", bytes(4 * 256))
        self._retry: Any = None

    @property
    def active(self) -> Consumer | None:
        return self.consumers[0] if self.consumers else None

    @property
    def is_reading(self) -> bool:
        """Whether a read from the ledger store is under way."""
        return self._reading is not None

    def add(self, consumer: Consumer) -> None:
        self._cursor.rewind()
        self.consumers = [consumer]

    def remove(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._cursor.rewind()

    def flow(self, _consumer: Consumer) -> None:
        self.read_more()

    def read_more(self) -> None:
        """Sends what can be sent now."""
        while self._reading is None and self.consumers:
            consumer = self.consumers[0]
            if not consumer.ready:
                return
            run = self._cursor.read_cached(consumer.permits, self._settings.max_read_bytes)
            if run is None:
                if self._cursor.has_more():
                    self._start_read(consumer.permits)
                return
            self._send(consumer, run)

    def _start_read(self, permits: int) -> None:
        if self._retry is None:
            entries = min(permits, self._settings.max_read_entries)
            self._reading = self._subscription.topic.loop.create_task(self._read(entries))

    async def _read(self, entries: int) -> None:
        try:
            run = await self._cursor.read(entries, self._settings.max_read_bytes)
        except (LedgerError, ManagedLedgerError) as error:
            self._reading = None
            self._subscription.read_failed(error)
            self._retry = self._subscription.topic.wheel.schedule(
                self._settings.read_retry_seconds, self._try_again
            )
            return
        self._reading = None
        if run is not None:
            if self.consumers:
                self._send(self.consumers[0], run)
            else:
                self._cursor.rewind()
        self.read_more()

    def _try_again(self) -> None:
        self._retry = None
        self.read_more()

    def _send(self, consumer: Consumer, run: EntryRun) -> None:
        cursor = self._cursor
        if len(self._sizes) < run.count:
            self._sizes = array("i", bytes(4 * run.count))
        for first, end in cursor.unconsumed_parts(run):
            batch_sizes(run.buffer, run.starts, run.ends, first, end - first, self._sizes)
            if cursor.state.batches or 0 in self._sizes[: end - first]:
                self._send_one_by_one(consumer, run, first, end)
            else:
                consumer.send_first(run, first, end, sum(self._sizes[: end - first]))

    def _send_one_by_one(self, consumer: Consumer, run: EntryRun, first: int, end: int) -> None:
        for index in range(first, end):
            entry_id = run.first_entry_id + index
            messages = self._sizes[index - first]
            if not messages:
                self._cursor.delete(run.ledger_id, entry_id)
                continue
            remaining = self._cursor.remaining_bits(run.ledger_id, entry_id)
            if remaining is None:
                consumer.send_first(run, index, index + 1, messages)
            else:
                consumer.send_again(run, index, remaining.bit_count(), 0, remaining)

    def redeliver_all(self, consumer: Consumer) -> None:
        """Everything not acknowledged again, in order, from the mark-delete position on."""
        self._cursor.rewind()
        self.read_more()

    def redeliver(self, consumer: Consumer, _positions: Sequence[Position]) -> None:
        self.redeliver_all(consumer)

    def rewound(self) -> None:
        """The cursor was moved: nothing is kept of what was read before."""

    def consumed(self, _ledger_id: int, _entry_id: int) -> None:
        """An entry was acknowledged."""

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
