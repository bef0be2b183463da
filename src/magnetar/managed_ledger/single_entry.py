"""Appends of single entries to a ledger, each waiting until the entry is durable: cursor states, schemas."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable

from magnetar.io.interfaces import Future, Loop
from magnetar.io.waiting import fail, settle
from magnetar.ledger.interface import LedgerError, LedgerWriter


class SingleEntries:
    """Appends single entries to one ledger; an object of this class is the listener of the ledger's writer.

    :param failed: called once when the ledger accepts no more entries
    :param newest_only: whether only the newest entry is ever read, so that older entries need not take space
        on a full disk
    """

    def __init__(
        self,
        loop: Loop,
        writer: LedgerWriter,
        failed: Callable[[], None] | None = None,
        *,
        newest_only: bool = False,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._failed = failed
        self._newest_only = newest_only
        self.count = 0
        """The number of entries appended, durable or not."""
        self._parted: deque[tuple[int, int]] = deque()
        """The ids of the first and the last entry of each group of entries that belong together; groups that
        are completely durable are removed."""
        self._kept = 0
        """The id of the first entry of the newest group that is known to be completely durable."""
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        writer.set_listener(self)

    def append(self, *parts: bytes) -> int:
        """Appends an entry, or several entries that belong together; returns the last entry's id without
        waiting.

        :raises LedgerClosed: the ledger has failed
        """
        starts, ends = array("q"), array("q")
        at = 0
        for part in parts:
            starts.append(at)
            at += len(part)
            ends.append(at)
        first = self._writer.append(b"".join(parts), starts, ends, 0, len(parts))
        last = first + len(parts) - 1
        self.count = last + 1
        if self._newest_only and len(parts) > 1:
            self._parted.append((first, last))
        return last

    async def append_durably(self, *parts: bytes) -> int:
        """Appends entries that belong together; returns the id of the last entry once all are durable.

        :raises LedgerError: the ledger failed before the entry was durable
        """
        durable = self._loop.create_future()
        entry_id = self.append(*parts)
        self._waiting.append((entry_id, durable))
        await durable
        return entry_id

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        if self._newest_only:
            self._writer.forget_before(self._newest_whole(last_entry_id))
        while self._waiting and self._waiting[0][0] <= last_entry_id:
            settle(self._waiting.popleft()[1])

    def _newest_whole(self, durable: int) -> int:
        """Returns the id of the first entry of the newest group that is completely durable.

        :param durable: the id of the last durable entry
        """
        while self._parted and self._parted[0][0] <= durable:
            first, last = self._parted[0]
            if durable < last:
                # While its last entry is missing, the group before it counts.
                return self._kept
            self._kept = first
            if durable == last:
                return first
            self._parted.popleft()
        self._kept = durable
        return durable

    def on_failed(self, _ledger_id: int, _first_entry_id: int, reason: LedgerError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _entry_id, durable in waiting:
            fail(durable, reason)
        if self._failed is not None:
            self._failed()


class CursorLedger:
    """A ledger to which a cursor writes its states; its newest entry is the cursor's state.

    :param failed: called once when the ledger accepts no more entries
    """

    def __init__(
        self, loop: Loop, writer: LedgerWriter, made_ms: int, failed: Callable[[CursorLedger], None]
    ) -> None:
        self._writer = writer
        self.ledger_id = writer.ledger_id
        self.made_ms = made_ms
        self._states = SingleEntries(loop, writer, lambda: failed(self), newest_only=True)

    @property
    def entries(self) -> int:
        return self._states.count

    def append(self, *state: bytes) -> int:
        """Appends a state, in one or more parts; returns the entry id of the last part without waiting.

        :raises LedgerClosed: the ledger has failed
        """
        return self._states.append(*state)

    async def append_durably(self, *state: bytes) -> None:
        """Appends the state, and waits until it is durable.

        :raises LedgerError: the ledger failed before the state was durable
        """
        await self._states.append_durably(*state)

    async def close(self) -> None:
        """Closes the ledger.

        :raises LedgerError: the ledger had failed
        """
        await self._writer.close()
