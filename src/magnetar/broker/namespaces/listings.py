"""Lists of the names of topics, made once for all who ask at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import finished, outcome
from magnetar.naming.namespace_name import NamespaceName


class ListedNames(NamedTuple):
    """What is listed."""

    namespace: NamespaceName
    mode: str
    """``PERSISTENT``, ``NON_PERSISTENT`` or ``ALL``."""
    system: bool
    """The system's own topics too."""


class NameListings:
    """Of the same names one list at a time is made.

    Who asks while it is being made gets the next one, with all others who do so: a list holds whatever was
    there when it was asked for.
    """

    def __init__(self, loop: Loop, make: Callable[[ListedNames], Awaitable[Sequence[str]]]) -> None:
        self._loop = loop
        self._make = make
        self._running: dict[ListedNames, Any] = {}
        self._next: dict[ListedNames, Any] = {}

    async def names(self, listed: ListedNames) -> Sequence[str]:
        """The list; it is shared.

        :raises Exception: what making it raises
        """
        listing = self._next.get(listed)
        if listing is None:
            listing = self._loop.create_task(self._list(listed, self._running.get(listed)))
            self._next[listed] = listing
        names: Sequence[str] = await outcome(self._loop, listing)
        return names

    async def _list(self, listed: ListedNames, before: Any) -> Sequence[str]:
        if before is not None:
            await finished(self._loop, before)
        running = self._running[listed] = self._next.pop(listed)
        try:
            return await self._make(listed)
        finally:
            if self._running.get(listed) is running:
                del self._running[listed]
