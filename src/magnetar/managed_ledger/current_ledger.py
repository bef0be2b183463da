"""The ledger of a managed ledger to which entries are appended, and the creation of the next ledger."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from magnetar.invariants import Fail, must, violated
from magnetar.io.interfaces import Clock, Loop
from magnetar.io.waiting import sleep
from magnetar.ledger.interface import LedgerError, LedgerOutOfOrder, LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.records import LedgerSummary
from magnetar.managed_ledger.settings import ManagedLedgerSettings

log = logging.getLogger(__name__)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
"""The longest pause in seconds before another ledger is created; the pauses double from failure to failure.
Pulsar always waits this long."""
_FRUITLESS = 3
"""The waiting entries fail when this number of ledgers in a row have failed without a durable entry."""
_TRIES = 5
"""The maximum number of ledgers that one attempt creates to get an id above the id of the last ledger."""


class _Nobody:
    """A listener that ignores all outcomes; for the writer of a managed ledger that was closed."""

    def on_durable(self, ledger_id: int, last_entry_id: int) -> None:
        """Does nothing, because nobody waits for the result."""

    def on_failed(self, ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        """Does nothing, because the appends were reported as failed before."""


_NOBODY = _Nobody()


class CurrentLedger:
    """The ledger to which a managed ledger appends; no ledger exists before the first append."""

    __slots__ = ("_clock", "_fail", "_name", "_store", "entries", "made_ms", "size", "summary", "writer")

    def __init__(self, clock: Clock, store: LedgerStore, name: str, fail: Fail) -> None:
        """:param name: the name of the managed ledger
        :param fail: closes the managed ledger after an internal error
        """
        self._fail = fail
        self._clock = clock
        self._store = store
        self._name = name
        self.writer: LedgerWriter | None = None
        """The writer of the current ledger; None: there is no current ledger, or its writer has failed or was
        closed."""
        self.summary: LedgerSummary | None = None
        """The row of the current ledger in the managed ledger's list, which counts its durable entries; None:
        there is no current ledger."""
        self.entries = 0
        """The number of entries appended, durable or not; :class:`ManagedLedger` updates it."""
        self.size = 0
        """The bytes of the appended entries."""
        self.made_ms = 0

    def begin(self, writer: LedgerWriter, summary: LedgerSummary, made_ms: int) -> None:
        """Makes a new, empty ledger the current ledger."""
        self.writer, self.summary, self.made_ms = writer, summary, made_ms
        self.entries = self.size = 0

    def room(self, settings: ManagedLedgerSettings) -> int:
        """Returns how many more entries the ledger accepts."""
        return settings.room(self.entries, self.size, self._clock.wall_ms() - self.made_ms)

    def confirm(self, summary: LedgerSummary, done: Sequence[Append], last_entry_id: int) -> tuple[int, int]:
        """Counts durable appends, which end at ``last_entry_id``; returns their number of entries and
        bytes."""
        before = summary.entries
        size = 0
        for append in done:
            size += append.size
        if not done or done[0].first_entry_id != before:
            what = f"managed ledger {self._name}: next durable entry of ledger {summary.ledger_id}"
            violated(self._fail, what, before, done[0].first_entry_id if done else "no append")
        summary.size += size
        summary.entries = done[-1].first_entry_id + done[-1].count
        if summary.entries != last_entry_id + 1 or summary.size > self.size:
            what = f"managed ledger {self._name}: durable entries and bytes of ledger {summary.ledger_id}"
            expected = f"{last_entry_id + 1} and at most {self.size}"
            violated(self._fail, what, expected, f"{summary.entries} and {summary.size}")
        return summary.entries - before, size

    async def close(self) -> None:
        """Closes the ledger after its last durable entry; does nothing without a ledger or if it is closed.

        :raises LedgerError: the ledger can neither be closed nor recovered
        """
        writer, summary = self.writer, self.summary
        if summary is None or summary.closed_ms:
            return
        if writer is not None:
            try:
                last, length = await writer.close()
            except LedgerError as error:
                self._told_of(writer, error)
                writer = None
            else:
                if last + 1 < summary.entries:
                    what = f"managed ledger {self._name}: entries of closed ledger {summary.ledger_id}"
                    violated(self._fail, what, f"at least {summary.entries}", last + 1)
                summary.entries, summary.size = last + 1, length
        if writer is None:
            # Entries of the failed ledger after the last acknowledged one are never read, because of its
            # stored count.
            reader = await self._store.open(summary.ledger_id, recover=True)
            reader.close()
        summary.closed_ms = max(self._clock.wall_ms(), 1)
        self.writer = None

    async def release(self) -> None:
        """Closes the writer, but does not record the ledger as closed: the next opening recovers it."""
        writer = self.writer
        if writer is not None:
            try:
                await writer.close()
            except LedgerError as error:
                self._told_of(writer, error)

    def let_go(self) -> None:
        """Drops the writer, which refers to the managed ledger and may still report results."""
        if self.writer is not None:
            self.writer.set_listener(_NOBODY)
            self.writer = None

    def _told_of(self, writer: LedgerWriter, error: LedgerError) -> None:
        log.warning(
            "cannot close the ledger",
            extra={"managed_ledger": self._name, "ledger": writer.ledger_id, "error": str(error)},
        )

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: a count is negative
        """
        must(self.entries >= 0 and self.size >= 0, self._name, "appended less than nothing")


class LedgerCreation:
    """The creation of ledgers for one managed ledger, with ascending ids, and with pauses after failures.

    :param name: the name of the managed ledger
    :param last_id: the greatest id that the managed ledger is known to have listed; -1: no ledger
    :param delete: deletes a ledger that no record names
    """

    def __init__(
        self,
        loop: Loop,
        store: LedgerStore,
        name: str,
        last_id: int,
        delete: Callable[[int], Awaitable[None]],
    ) -> None:
        self._loop = loop
        self._store = store
        self._name = name
        self._delete = delete
        self.last_id = last_id
        self._pause = 0.0
        self._not_before = 0.0
        self._fruitless = 0

    def listed(self, ledger_id: int) -> None:
        """Records that a ledger is listed, so that new ledgers must have greater ids."""
        self.last_id = max(self.last_id, ledger_id)
        if self._fruitless < _FRUITLESS:
            self._pause = self._not_before = 0.0

    def count_failure(self, durable: int) -> bool:
        """Counts a failed ledger; returns whether the last :data:`_FRUITLESS` ledgers stored nothing.

        In that case the next ledger is delayed, as after :meth:`failed`. Bookies refuse an entry above their
        frame limit in every ledger; without pauses, such a topic would create ledgers without end.

        :param durable: the number of durable entries of the failed ledger
        """
        self._fruitless = 0 if durable else self._fruitless + 1
        if self._fruitless < _FRUITLESS:
            return False
        self.failed()
        return True

    def failed(self) -> None:
        """Records that no ledger could be created, which delays the next attempt."""
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._not_before = self._loop.time() + self._pause

    @property
    def seconds_left(self) -> float:
        """Returns the seconds until the next attempt, at most :data:`_LONGEST_PAUSE`; 0: now."""
        return max(0.0, self._not_before - self._loop.time())

    async def make(self, quorums: Quorums) -> LedgerWriter:
        """Creates a ledger with an id above the last id, because positions are ordered by ledger id.

        :raises LedgerOutOfOrder: the store repeatedly returns ids that do not ascend
        :raises LedgerError: the store cannot create a ledger
        """
        pause = _FIRST_PAUSE
        for left in reversed(range(_TRIES)):
            writer = await self._store.create(quorums, custom_metadata(self._name))
            if writer.ledger_id > self.last_id:
                return writer
            log.warning(
                "id of the new ledger is not above that of the last one; creating another",
                extra={"managed_ledger": self._name, "ledger": writer.ledger_id, "last": self.last_id},
            )
            await self._delete(writer.ledger_id)
            if left:
                await sleep(self._loop, pause)
                pause *= 2
        raise LedgerOutOfOrder(
            f"{self._name}: the ledger store returned no ledger id above {self.last_id} in {_TRIES} attempts"
        )


def custom_metadata(managed_ledger: str, cursor: str | None = None) -> dict[str, bytes]:
    """Returns the custom metadata of a ledger: the name of its managed ledger and, for a cursor's ledger, of
    the cursor."""
    custom = {
        "component": b"managed-ledger",
        "application": b"pulsar",
        "pulsar/managed-ledger": managed_ledger.encode(),
    }
    if cursor is not None:
        custom["pulsar/cursor"] = cursor.encode()
    return custom
