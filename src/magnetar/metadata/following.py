"""Follows changes of the metadata: tracks the nodes below a node, notifies listeners, and caches values until
their nodes change."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from magnetar.errors import MetadataFailure
from magnetar.io.interfaces import Io, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import sleep
from magnetar.metadata.interface import (
    Change,
    MetadataError,
    MetadataStore,
    MetadataUnavailable,
    SessionEvent,
    check_path,
    lies_in,
)

log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
V = TypeVar("V")


class Follower:
    """Follows the content below a node. The last content stays in effect until new content was read.

    :param what: the name of the content, for the log
    :param take: reads all content and puts it into effect; called again after
        :class:`~magnetar.metadata.interface.MetadataUnavailable`; other metadata errors are only logged
    :param pause: seconds to wait after each read, for content that changes continually
    """

    def __init__(
        self,
        io: Io,
        metadata: MetadataStore,
        root: str,
        what: str,
        take: Callable[[], Awaitable[None]],
        pause: float = 0.0,
    ) -> None:
        self._io = io
        self._what = what
        self._take = take
        self._pause = pause
        self._tasks = TaskScope(io.loop, what, self._internal_error)
        self._task: Task[None] | None = None
        self._stale = False
        self._stopped = False
        metadata.listen(root, self._changed)
        metadata.listen_session(self._session_changed)

    def stop(self) -> None:
        self._stopped = True
        self._tasks.cancel()

    def _changed(self, _change: Change) -> None:
        self._read_anew()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._read_anew()

    def _read_anew(self) -> None:
        self._stale = True
        if self._task is None and not self._stopped:
            self._task = self._tasks.start(self._follow(), "reading what has changed")

    def _internal_error(self, _work: str, _error: BaseException) -> None:
        self._io.loop.call_later(_RETRY_SECONDS, self._read_anew)

    async def _follow(self) -> None:
        try:
            while self._stale:
                self._stale = False
                try:
                    await self._take()
                except MetadataUnavailable as error:
                    log.warning(
                        "cannot read metadata; trying again later",
                        extra={"what": self._what, "error": str(error)},
                    )
                    self._stale = True
                    await sleep(self._io.loop, _RETRY_SECONDS)
                except (MetadataError, MetadataFailure) as error:
                    log.error(
                        "cannot read metadata; keeping the former values",
                        extra={"what": self._what, "error": str(error)},
                    )
                else:
                    if self._pause:
                        await sleep(self._io.loop, self._pause)
        finally:
            self._task = None


class ChangeListeners:
    """Listeners for changes of nodes; each is called for changes at and below a root path."""

    def __init__(self) -> None:
        self._all: list[tuple[str, Callable[[Change], None]]] = []

    def add(self, root: str, listener: Callable[[Change], None]) -> None:
        """Registers a listener for changes at and below a path.

        :raises ValueError: ``root`` is not a valid path
        """
        check_path(root)
        self._all.append((root, listener))

    def tell(self, change: Change) -> None:
        for root, listener in self._all:
            if not lies_in(root, change.path):
                continue
            try:
                listener(change)
            except Exception:
                log.exception("listener for changes of the metadata failed", extra={"path": change.path})


class SessionListeners:
    """Listeners for events of the metadata session."""

    def __init__(self) -> None:
        self._all: list[Callable[[SessionEvent], None]] = []

    def add(self, listener: Callable[[SessionEvent], None]) -> None:
        self._all.append(listener)

    def tell(self, event: SessionEvent) -> None:
        for listener in tuple(self._all):
            try:
                listener(event)
            except Exception:
                log.exception(
                    "listener for events of the metadata session failed", extra={"event": event.value}
                )


class MetadataCache(Generic[V]):
    """Values made from nodes below ``root``, by the node's path.

    A change of a node drops its value; a reconnected or lost session drops all values. If one
    of these events happens while a value is being read, even for another node below ``root``, the value is
    returned but not cached, because it may be out of date.

    :param read: makes the value of a path; its errors are passed on and not cached
    :param most: the maximum sum of the weights of all values; if it would be exceeded, all values are dropped
    :param weigh: returns the weight of a value
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
        """Returns the cached value of a path; None: no value is cached."""
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
        """Drops a value after the caller has changed the node, because the store may report the change
        later."""
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
