"""Background work in slices, between which clients' requests are served, and the lengths of the slices."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from magnetar.io.interfaces import Future, Io, Loop

T = TypeVar("T")

SLICE_SECONDS = 0.001
PAUSE_SECONDS = 0.004
"""The pause in seconds between slices of work that no client waits for; such work gets a fifth of the loop's
time."""


class Slice:
    """A slice of background work that is running, with its length so far.

    :param kind: the kind of work
    """

    __slots__ = ("_began", "_io", "_kind", "_processor")

    def __init__(self, io: Io, kind: str) -> None:
        self._io = io
        self._kind = kind
        self.begin()

    def begin(self) -> None:
        self._began = self._io.clock.monotonic()
        self._processor = self._io.clock.processor()

    def is_over(self) -> bool:
        """Whether the slice is long enough, so that other work should run first."""
        return self._io.clock.monotonic() - self._began >= SLICE_SECONDS

    def end(self) -> None:
        """Records the length of the slice."""
        clock = self._io.clock
        processor = clock.processor() - self._processor
        self._io.slices.note(self._kind, clock.monotonic() - self._began, processor)

    async def rest(self) -> None:
        """Lets other work run first if the slice is over; called between two steps of the work."""
        if self.is_over():
            await next_turn(self._io)
            self.begin()


async def each(
    io: Io, kind: str, items: Iterable[T], work: Callable[[T], object], *, pause: float = 0.0
) -> None:
    """Calls ``work`` for each item, in slices of about a millisecond.

    :param kind: the kind of work, for the lengths of slices
    :param pause: seconds between slices; 0 for one turn of the loop
    """
    running = Slice(io, kind)
    for item in items:
        work(item)
        if running.is_over():
            running.end()
            await next_turn(io, pause)
            running.begin()
    running.end()


def start_each(io: Io, kind: str, steps: Iterator[Callable[[], object]]) -> None:
    """Calls each step: the first steps, for about a millisecond, before this function returns; the others in
    later turns of the loop.

    An error of a step is raised here, or reported to the loop; the following steps are still carried out.

    :param kind: the kind of work, for the lengths of slices
    """
    running = Slice(io, kind)
    try:
        for step in steps:
            step()
            if running.is_over():
                _turn(io).add_done_callback(lambda _turn: start_each(io, kind, steps))
                return
    except Exception:
        _turn(io).add_done_callback(lambda _turn: start_each(io, kind, steps))
        raise
    finally:
        running.end()


async def gone_through(io: Io, kind: str, work: Generator[None, None, T], pause: float = 0.0) -> T:
    """Runs ``work`` in slices of about a millisecond, and returns its result.

    :param kind: the kind of work, for the lengths of slices
    :param work: yields wherever it may be interrupted
    :param pause: seconds between slices; 0 for one turn of the loop
    """
    running = Slice(io, kind)
    try:
        while True:
            next(work)
            if running.is_over():
                running.end()
                await next_turn(io, pause)
                running.begin()
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        running.end()


async def next_turn(io: Io, pause: float = 0.0) -> None:
    """Waits until the next slice may begin: in a later turn of the loop that has no other slice.

    Therefore even a hundred kinds of background work at once never block the loop for longer than one slice.

    :param pause: seconds to wait first
    """
    if pause:
        await let_others(io.loop, pause)
    await _turn(io)


def _turn(io: Io) -> Future[None]:
    """Returns a future that is completed when the next slice may begin."""
    slices, turn = io.slices, io.loop.create_future()
    slices.waiting.append(turn)
    if not slices.giving:
        slices.giving = True
        io.loop.call_soon(_give_turn, io)
    return turn


def _give_turn(io: Io) -> None:
    slices = io.slices
    while slices.waiting:
        turn = slices.waiting.popleft()
        if not turn.done():
            # Otherwise its waiter was cancelled.
            turn.set_result(None)
            break
    slices.giving = bool(slices.waiting)
    if slices.giving:
        io.loop.call_soon(_give_turn, io)


async def let_others(loop: Loop, pause: float = 0.0) -> None:
    """Lets the loop run other work first, for ``pause`` seconds or one turn."""
    turn = loop.create_future()

    def go_on() -> None:
        if not turn.done():
            turn.set_result(None)

    if pause:
        loop.call_later(pause, go_on)
    else:
        loop.call_soon(go_on)
    await turn
