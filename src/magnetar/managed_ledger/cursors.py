"""The cursors of a managed ledger, and what of its cache they still want."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from magnetar.io.interfaces import Loop
from magnetar.io.together import together
from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.entry_cache import LedgerCache
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.ledger_list import LedgerList

AT_ONCE = 64
"""Cursors of one managed ledger that are recovered, or closed, at the same time."""
_LOOKED_AT = 16
"""At how many read positions it looks, on average, when one of many has moved."""


class Cursors(Mapping[str, Cursor]):
    """By name, non-durable ones among them."""

    def __init__(
        self,
        loop: Loop,
        ledgers: LedgerList,
        cache: LedgerCache,
        near: int,
        unneeded: Callable[[], None],
        fenced: Callable[[], None],
    ) -> None:
        """:param near: entries behind the end from which on a cursor reads what is just being appended

        :param unneeded: called when there may be ledgers that no cursor needs any more
        :param fenced: called when one cannot be deleted because somebody else owns the managed ledger
        """
        self._fenced = fenced
        self._loop = loop
        self._ledgers = ledgers
        self._cache = cache
        self._near = near
        self._unneeded = unneeded
        self._by_name: dict[str, Cursor] = {}
        self._active: dict[Cursor, None] = {}
        self._moved_unseen = 0
        """Moves of read positions since the cache was last told what may go."""
        self._rate: float | None = None
        self.mark_deletes = 0
        """Moves of mark-delete positions."""

    def __getitem__(self, name: str) -> Cursor:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    # Cursors come and go

    def add(self, cursor: Cursor) -> None:
        self._by_name[cursor.name] = cursor
        if cursor.storage is not None:
            cursor.storage.use_rate(self._rate)

    def use_rate(self, rate: float | None) -> None:
        """How often each is written from now on, as :meth:`CursorStorage.use_rate` takes it."""
        if rate != self._rate:
            self._rate = rate
            for cursor in self._by_name.values():
                if cursor.storage is not None:
                    cursor.storage.use_rate(rate)

    def use_quorums(self, quorums: Quorums) -> None:
        """For the ledgers that are made for them from now on."""
        for cursor in self._by_name.values():
            if cursor.storage is not None:
                cursor.storage.use_quorums(quorums)

    def remove(self, cursor: Cursor) -> None:
        if self._by_name.get(cursor.name) is cursor:
            del self._by_name[cursor.name]
        self.set_active(cursor, False)
        self._unneeded()

    async def delete(self, name: str) -> None:
        """Removes a cursor with its state; one that does not exist is fine.

        :raises ManagedLedgerFenced: the managed ledger belongs to somebody else
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
        """An active cursor has consumers: what it will read soon is kept in memory."""
        cursor.active = active
        if active and self._by_name.get(cursor.name) is cursor:
            self._active[cursor] = None
        else:
            self._active.pop(cursor, None)

    # All of them

    async def close(self) -> None:
        """Writes their states, a bounded number of them at once."""
        await together(self._loop, list(self._by_name.values()), lambda cursor: cursor.close(), AT_ONCE)

    def storages(self) -> list[CursorStorage]:
        """Of those that are durable."""
        return [cursor.storage for cursor in self._by_name.values() if cursor.storage is not None]

    def forget_all(self) -> None:
        """Their managed ledger is closed or deleted; they refer to it, and it to none of them any more."""
        for cursor in self._by_name.values():
            cursor.active = False
        self._by_name.clear()
        self._active.clear()

    def abandon(self) -> None:
        """They belong to somebody else: none is written any more."""
        for cursor in self._by_name.values():
            if cursor.storage is not None:
                cursor.storage.abandon()

    # They move, and so does the end

    def read_position_moved(self, cursor: Cursor) -> None:
        if cursor.active:
            active = self._active
            if len(active) == 1:
                self._cache.drop_before(cursor.wanted_from())
                return
            # To look at all of them costs as much as they are many: so not for every move of each.
            self._moved_unseen += _LOOKED_AT
            if active and self._moved_unseen >= len(active):
                self._moved_unseen = 0
                self._cache.drop_before(min(c.wanted_from() for c in active))

    def is_near_end(self, cursor: Cursor) -> bool:
        """Whether a cursor reads what is just being appended, or will soon."""
        ledger_id, entry_id = cursor.read_position
        return self._ledgers.entries_after((ledger_id, entry_id - 1)) <= self._near

    def mark_delete_moved(self, cursor: Cursor) -> None:
        self.mark_deletes += 1
        # To look what may go costs a walk over all ledgers and cursors: not for every acknowledgement.
        if cursor.storage is not None and cursor.left_a_ledger():
            self._unneeded()

    def appended(self, appends: Sequence[Append]) -> None:
        """Caches what a cursor near the end is about to read."""
        if not self._active:
            return
        near = max([cursor.read_position for cursor in self._active])
        behind = self._ledgers.entries_after((near[0], near[1] - 1))
        if behind > self._near and behind > self._near + sum([append.count for append in appends]):
            return
        for operation in appends:
            self._cache.insert(operation.as_run())
