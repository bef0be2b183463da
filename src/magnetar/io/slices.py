"""Background work in slices, so that what clients wait for comes between; and how long the slices were."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from magnetar.io.interfaces import Io, Loop

T = TypeVar("T")

SLICE_SECONDS = 0.001
PAUSE_SECONDS = 0.004
"""Between slices of work that nobody waits for: it gets a fifth of the loop."""


class Slices:
    """The longest slice of each kind of background work, over the window that runs and the one before."""

    def __init__(self) -> None:
        self._running: dict[str, float] = {}
        self._before: dict[str, float] = {}

    def note(self, kind: str, seconds: float) -> None:
        """A piece of work kept the loop for so long."""
        if seconds >= self._running.get(kind, 0.0):
            self._running[kind] = seconds

    def longest(self) -> dict[str, float]:
        """Seconds by kind."""
        kinds = self._running.keys() | self._before.keys()
        return {
            kind: max(self._running.get(kind, 0.0), self._before.get(kind, 0.0)) for kind in sorted(kinds)
        }

    def new_window(self) -> None:
        self._before, self._running = self._running, {}


async def each(
    io: Io, kind: str, items: Iterable[T], work: Callable[[T], object], *, pause: float = 0.0
) -> None:
    """Calls ``work`` for each item, about a millisecond at a time.

    :param kind: names it among the slices
    :param pause: seconds between slices; 0 for one turn of the loop
    """
    clock = io.clock
    began = clock.monotonic()
    for item in items:
        work(item)
        took = clock.monotonic() - began
        if took >= SLICE_SECONDS:
            io.slices.note(kind, took)
            await let_others(io.loop, pause)
            began = clock.monotonic()
    io.slices.note(kind, clock.monotonic() - began)


async def let_others(loop: Loop, pause: float = 0.0) -> None:
    """Lets the loop do other things first: for ``pause`` seconds, or one turn."""
    turn = loop.create_future()

    def go_on() -> None:
        if not turn.done():
            turn.set_result(None)

    if pause:
        loop.call_later(pause, go_on)
    else:
        loop.call_soon(go_on)
    await turn
