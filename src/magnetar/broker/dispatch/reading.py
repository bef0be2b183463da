"""How dispatchers read entries from the ledger store: one read at a time, with a pause after a failed
read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, NoReturn

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.dispatch.contract import EntrySource
from magnetar.broker.dispatch.waiting import READ_FAILED, READING, Waiting
from magnetar.broker.flow.loop_budget import READ_PRICE
from magnetar.invariants import violated
from magnetar.io.interfaces import Cancellable, Task
from magnetar.ledger.interface import EntryRun, LedgerError
from magnetar.managed_ledger.entry_cache import lasting_run
from magnetar.managed_ledger.errors import ManagedLedgerError

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription


class ReadingDispatcher(ABC):
    """The part of a dispatcher that reads entries."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._cursor = subscription.cursor
        self._source: EntrySource = self._cursor
        self._settings = subscription.topic.dispatch_settings
        self._budget = subscription.topic.budget
        self._reading: Task[None] | None = None
        self._reads_again = False
        """Whether the current or last read repeats an earlier read."""
        self._retry: Cancellable | None = None
        self.waits = Waiting(subscription.topic.clock)

    @property
    def is_reading(self) -> bool:
        """Whether new entries are being read from the ledger store."""
        return self._reading is not None and not self._reads_again

    @property
    def is_reading_again(self) -> bool:
        """Whether entries that were read before are being read again."""
        return self._reading is not None and self._reads_again

    @abstractmethod
    def read_more(self) -> None:
        """Sends what can be sent now, and reads more entries if consumers wait for them."""

    @abstractmethod
    def _is_served(self) -> bool:
        """Whether a consumer waits for entries."""

    @abstractmethod
    def _keep(self, run: EntryRun) -> None:
        """Keeps entries that were read, to send them in a later turn of the loop."""

    def _start(
        self,
        reading: Coroutine[object, None, None],
        consumer: AnyConsumer,
        max_bytes: int,
        *,
        again: bool = False,
    ) -> None:
        """Starts a read, except during the pause after a failed read.

        :param consumer: the consumer whose connection is expected to send the entries
        :param again: whether the entries were read before
        """
        if self._retry is not None:
            reading.close()
            self.waits.because(READ_FAILED)
            return
        self._budget.spend(READ_PRICE)
        self._reads_again = again
        self._reading = self._subscription.topic.tasks.start(reading, "reading entries")
        self.waits.because(READING)
        consumer.connection.outgoing.unsent.expect(self._reading, max_bytes)

    async def _read(self, entries: int, max_bytes: int) -> None:
        """Reads at most ``entries`` new entries from the ledger store."""
        try:
            run = await self._source.read(entries, max_bytes)
        except (LedgerError, ManagedLedgerError) as error:
            self._read_failed(error)
            return
        self._reading = None
        if run is not None:
            if self._is_served():
                # It may be kept long, so it should not keep a much larger buffer in memory.
                self._keep(lasting_run(run))
            else:
                self._rewind()
        # The read used up this turn.
        self._subscription.go_on()

    def _rewind(self) -> None:
        """Moves the read position back to the first unacknowledged message."""
        self._source.rewind()

    def _read_failed(self, error: Exception) -> None:
        self._reading = None
        if self._is_served():
            self.waits.because(READ_FAILED)
        self._subscription.read_failed(error)
        self._retry = self._subscription.topic.wheel.schedule(
            self._settings.read_retry_seconds, self._try_again
        )

    def _try_again(self) -> None:
        self._retry = None
        self._subscription.read_more()

    def _violated(self, what: str, expected: object, found: object) -> NoReturn:
        subscription = self._subscription
        name = f"{what} of subscription {subscription.name} of {subscription.topic.full_name}"
        violated(subscription.fail, name, expected, found)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
