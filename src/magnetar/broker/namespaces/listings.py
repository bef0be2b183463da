"""Lists of topic names, made once for all that ask at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from magnetar.io.interfaces import Loop, Task
from magnetar.io.waiting import finished, outcome
from magnetar.naming.namespace_name import NamespaceName


class ListedNames(NamedTuple):
    """Identifies a list."""

    namespace: NamespaceName
    mode: str
    """``PERSISTENT``, ``NON_PERSISTENT`` or ``ALL``."""
    system: bool
    """Include system topics."""


class NameListings:
    """Makes at most one list of the same names at a time.

    A request that arrives meanwhile shares the next list with others like it: a list contains everything that
    existed when it was requested.
    """

    def __init__(self, loop: Loop, make: Callable[[ListedNames], Awaitable[Sequence[str]]]) -> None:
        self._loop = loop
        self._make = make
        self._running: dict[ListedNames, Task[Sequence[str]]] = {}
        self._next: dict[ListedNames, Task[Sequence[str]]] = {}

    async def names(self, listed: ListedNames) -> Sequence[str]:
        """Returns the list, which is shared.

        :raises Exception: the error of making it
        """
        listing = self._next.get(listed)
        if listing is None:
            listing = self._loop.create_task(self._list(listed, self._running.get(listed)))
            self._next[listed] = listing
        names: Sequence[str] = await outcome(self._loop, listing)
        return names

    async def _list(self, listed: ListedNames, before: Task[Sequence[str]] | None) -> Sequence[str]:
        if before is not None:
            await finished(self._loop, before)
        running = self._running[listed] = self._next.pop(listed)
        try:
            return await self._make(listed)
        finally:
            if self._running.get(listed) is running:
                del self._running[listed]
