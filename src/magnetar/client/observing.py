"""Observers, which measure the connections, lookups, producers and consumers of a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from magnetar.io.interfaces import Loop

if TYPE_CHECKING:
    from magnetar.client.attachment import Attached

T = TypeVar("T")


class Observer:
    """Base class of observers; its methods do nothing."""

    def opened(self, part: Attached) -> None:
        """Called when a producer or consumer has been opened."""

    def closed(self, part: Attached) -> None:
        """Called when an open producer or consumer is closed or has failed."""

    def answered(self, part: Attached, seconds: float, count: int, *, stored: bool) -> None:
        """Called when an entry of a producer has a receipt, or has failed.

        :param seconds: time since the entry was sent to the broker, in seconds
        :param count: the number of messages in the entry
        :param stored: whether the broker has stored the messages
        """

    def connected(self) -> None:
        """Called when a connection is established."""

    def disconnected(self) -> None:
        """Called when an established connection is closed."""

    def not_connected(self) -> None:
        """Called when an attempt to connect has failed."""

    def looked_up(self, kind: str, seconds: float, *, answered: bool) -> None:
        """Called at the end of a lookup.

        :param kind: ``topic``, ``metadata``, ``schema`` or ``list-topics``
        :param seconds: duration of the lookup, in seconds
        :param answered: whether the lookup succeeded
        """


Observed = tuple[Observer, Loop]
"""An observer, and the event loop whose clock it uses."""


async def timed(observed: Observed | None, kind: str, lookup: Callable[[], Awaitable[T]]) -> T:
    """Awaits ``lookup`` and returns its result; passes the duration to :meth:`Observer.looked_up`."""
    if observed is None:
        return await lookup()
    observer, loop = observed
    began = loop.time()
    answered = False
    try:
        found = await lookup()
        answered = True
        return found
    finally:
        observer.looked_up(kind, loop.time() - began, answered=answered)
