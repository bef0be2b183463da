"""The cursors of a managed ledger, and the entries that are cached for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from magnetar.invariants import Fail
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import together
from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.entry_cache import LedgerCache
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.ledger_list import LedgerList

AT_ONCE = 64
"""The maximum number of cursors of one managed ledger that are recovered or closed at the same time."""
_LOOKED_AT = 16
"""The average cost of a moved read position, as a number of compared positions: with n active cursors, all n
positions are compared only once per n / 16 moves."""


class Cursors(Mapping[str, Cursor]):
    """The cursors of a managed ledger by name, including non-durable cursors."""

    def __init__(
        self,
        loop: Loop,
        ledgers: LedgerList,
        cache: LedgerCache,
        near: int,
        unneeded: Callable[[], None],
        fenced: Callable[[], None],
        failed: Fail,
    ) -> None:
        """:param near: a cursor with at most this many entries left to read counts as near the end
        :param unneeded: called when there may be ledgers that no cursor needs any more
        :param fenced: called when a cursor cannot be deleted because another broker owns the managed ledger
        :param failed: called after an internal error, which may have left the state of a cursor wrong
        """
        self._fenced = fenced
        self._failed = failed
        self._loop = loop
        self._ledgers = ledgers
        self._cache = cache
        self._near = near
        self._unneeded = unneeded
        self._by_name: dict[str, Cursor] = {}
        self._active: dict[Cursor, None] = {}
        self._moved_unseen = 0
        """The number of moves of read positions since the cache was last trimmed, weighted by their cost."""
        self._rate: float | None = None
        self.mark_deletes = 0
        """The number of moves of mark-delete positions."""

    def __getitem__(self, name: str) -> Cursor:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    # Adding and deleting

    def add(self, cursor: Cursor) -> None:
        self._by_name[cursor.name] = cursor
        if cursor.storage is not None:
            cursor.storage.use_rate(self._rate)
            cursor.storage.on_failure = self._failed

    def use_rate(self, rate: float | None) -> None:
        """Sets how often each cursor is written; see :meth:`CursorStorage.use_rate`."""
        if rate != self._rate:
            self._rate = rate
            for cursor in self._by_name.values():
                if cursor.storage is not None:
                    cursor.storage.use_rate(rate)

    def use_quorums(self, quorums: Quorums) -> None:
        """Sets the quorums of cursor ledgers created from now on."""
        for cursor in self._by_name.values():
            if cursor.storage is not None:
                cursor.storage.use_quorums(quorums)

    def remove(self, cursor: Cursor) -> None:
        if self._by_name.get(cursor.name) is cursor:
            del self._by_name[cursor.name]
        self.set_active(cursor, False)
        self._unneeded()

    async def delete(self, name: str) -> None:
        """Deletes a cursor with its state; does nothing if there is no such cursor.

        :raises ManagedLedgerFenced: another broker owns the managed ledger
        """
        cursor = self._by_name.get(name)
        if cursor is None:
            return
        if cursor.storage is not None:
            try:
                await cursor.storage.delete()
            except ManagedLedgerFenced:
                self._fenced()
                raise
        self.remove(cursor)

    def set_active(self, cursor: Cursor, active: bool) -> None:
        """Marks a cursor as active or not. An active cursor has consumers, and the entries that it will read
        soon are cached."""
        cursor.active = active
        if active and self._by_name.get(cursor.name) is cursor:
            self._active[cursor] = None
        else:
            self._active.pop(cursor, None)

    # All cursors

    async def close(self) -> None:
        """Writes the final states of all cursors, a limited number of cursors at a time."""
        await together(self._loop, list(self._by_name.values()), lambda cursor: cursor.close(), AT_ONCE)

    def storages(self) -> list[CursorStorage]:
        """Returns the storages of the durable cursors."""
        return [cursor.storage for cursor in self._by_name.values() if cursor.storage is not None]

    def forget_all(self) -> None:
        """Drops the references to all cursors of a closed or deleted managed ledger."""
        for cursor in self._by_name.values():
            cursor.active = False
        self._by_name.clear()
        self._active.clear()

    def abandon(self) -> None:
        """Stops all writes, because the cursors belong to another broker."""
        for cursor in self._by_name.values():
            if cursor.storage is not None:
                cursor.storage.abandon()

    # Moves of cursors and of the end

    def read_position_moved(self, cursor: Cursor) -> None:
        if cursor.active:
            active = self._active
            if len(active) == 1:
                self._cache.drop_before(cursor.wanted_from())
                return
            # Comparing all read positions is costly when there are many: not after every move of each.
            self._moved_unseen += _LOOKED_AT
            if active and self._moved_unseen >= len(active):
                self._moved_unseen = 0
                self._cache.drop_before(min(c.wanted_from() for c in active))

    def is_near_end(self, cursor: Cursor) -> bool:
        """Whether a cursor has so few entries left to read that it soon reads entries being appended."""
        ledger_id, entry_id = cursor.read_position
        return self._ledgers.entries_after((ledger_id, entry_id - 1)) <= self._near

    def mark_delete_moved(self, cursor: Cursor) -> None:
        self.mark_deletes += 1
        # Trimming looks at all ledgers and cursors: not after every acknowledgement.
        if cursor.storage is not None and cursor.left_a_ledger():
            self._unneeded()

    def appended(self, appends: Sequence[Append]) -> None:
        """Caches the appended entries if a cursor near the end will read them soon."""
        if not self._active:
            return
        near = max([cursor.read_position for cursor in self._active])
        behind = self._ledgers.entries_after((near[0], near[1] - 1))
        if behind > self._near and behind > self._near + sum([append.count for append in appends]):
            return
        for operation in appends:
            self._cache.insert(operation.as_run())
