"""A cache of what is read from nodes, valid until they change; used by everything that remembers metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from magnetar.metadata.interface import Change, MetadataStore, SessionEvent

V = TypeVar("V")


class MetadataCache(Generic[V]):
    """Values made of nodes below ``root``, by the node's path.

    A change of a node drops its value; a reconnected or lost session drops everything. A value that was being
    read meanwhile is returned but not cached, as it may be out of date.

    :param read: makes the value of a path; its errors are passed on and not cached
    :param most: limit of the sum of ``weigh`` over all values; beyond it all are dropped
    """

    def __init__(
        self,
        metadata: MetadataStore,
        root: str,
        read: Callable[[str], Awaitable[V]],
        *,
        most: int,
        weigh: Callable[[V], int] = lambda _value: 1,
    ) -> None:
        self._read = read
        self._most = most
        self._weigh = weigh
        self._known: dict[str, V] = {}
        self._weight = 0
        self._drops = 0
        metadata.listen(root, self._changed)
        metadata.listen_session(self._session_changed)

    def __len__(self) -> int:
        return len(self._known)

    def known(self, path: str) -> V | None:
        """Returns None if no value is cached."""
        return self._known.get(path)

    async def get(self, path: str) -> V:
        """Returns the value of a path, and reads it if necessary."""
        known = self._known.get(path)
        if known is not None:
            return known
        drops = self._drops
        value = await self._read(path)
        if drops == self._drops:
            self._remember(path, value)
        return value

    def _remember(self, path: str, value: V) -> None:
        self._take_out(path)
        weight = self._weigh(value)
        if self._weight + weight > self._most:
            self._known.clear()
            self._weight = 0
        if weight <= self._most:
            self._known[path] = value
            self._weight += weight

    def _take_out(self, path: str) -> None:
        known = self._known.pop(path, None)
        if known is not None:
            self._weight -= self._weigh(known)

    def forget(self, path: str) -> None:
        """Drops a value after the caller has changed the node: the store may report the change later."""
        self._drops += 1
        self._take_out(path)

    def forget_all(self) -> None:
        self._drops += 1
        self._known.clear()
        self._weight = 0

    def _changed(self, change: Change) -> None:
        self.forget(change.path)

    def _session_changed(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.LOST):
            self.forget_all()
