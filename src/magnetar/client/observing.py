"""Observers of a client: they measure its connections, lookups, producers and consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from magnetar.io.interfaces import Loop

if TYPE_CHECKING:
    from magnetar.client.attachment import Attached

T = TypeVar("T")


class Observer:
    """Base of observers; its methods do nothing."""

    def opened(self, part: Attached) -> None:
        """Called when a producer or consumer is open."""

    def closed(self, part: Attached) -> None:
        """Called when one ends that was open."""

    def answered(self, part: Attached, seconds: float, count: int, *, stored: bool) -> None:
        """Called when sent messages of a producer have receipts, or have failed.

        :param seconds: the time since they were sent to the broker
        :param count: the number of messages
        """

    def connected(self) -> None:
        """Called when a connection is ready."""

    def disconnected(self) -> None:
        """Called when a connection ends that was ready."""

    def not_connected(self) -> None:
        """Called when a connection could not be opened."""

    def looked_up(self, kind: str, seconds: float, *, answered: bool) -> None:
        """Called at the end of a lookup.

        :param kind: ``topic``, ``metadata``, ``schema`` or ``list-topics``
        """


Observed = tuple[Observer, Loop]
"""An observer, and the loop whose time it gets."""


async def timed(observed: Observed | None, kind: str, lookup: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of a lookup; the observer gets its duration. The parameters are those of
    :meth:`Observer.looked_up`."""
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
