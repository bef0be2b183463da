"""An event loop in virtual time: nothing waits, and everything happens in a repeatable order."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, TypeVar, TypeVarTuple, cast

T = TypeVar("T")
Args = TypeVarTuple("Args")
_EPOCH_MS = 1_700_000_000_000


class Deadlock(Exception):
    """Nothing is left to happen, and the awaited result is still missing."""


class Timeline:
    """Virtual time, and the events in it. The loops of several processes may share one."""

    __slots__ = ("after_step", "count", "halted", "now", "ready", "steps", "timers")

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.count = 0
        self.steps = 0
        """The number of callbacks that have run."""
        self.halted: BaseException | None = None
        self.after_step: Callable[[], None] | None = None
        """Called after each callback: for checks of invariants."""

    def advance(self) -> None:
        """Moves on to the next moment at which something happens."""
        ready, timers = self.ready, self.timers
        while timers and not ready:
            when, _, handle = heapq.heappop(timers)
            if not handle.cancelled():
                self.now = max(self.now, when)
                ready.append(handle)
        while timers and timers[0][0] <= self.now:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                ready.append(handle)

    def forget(self, loop: SimulatedLoop) -> None:
        """Drops all pending events of one loop."""
        for handle in self.ready:
            if handle._loop is loop:  # type: ignore[attr-defined]
                handle.cancel()
        self.ready = deque(handle for handle in self.ready if not handle.cancelled())
        self.timers = [timer for timer in self.timers if timer[2]._loop is not loop]  # type: ignore[attr-defined]
        heapq.heapify(self.timers)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """As much of an asyncio loop as futures, tasks and timers need.

    An exception that reaches the loop itself ends the run: :meth:`run_until` raises it.

    :param timeline: shared with the loops of other processes; None for its own
    """

    def __init__(self, timeline: Timeline | None = None) -> None:
        self.timeline = timeline if timeline is not None else Timeline()
        self._tasks: list[asyncio.Task[object]] = []
        self._abandoned = False
        self._held: list[asyncio.Handle] | None = None

    def time(self) -> float:
        return self.timeline.now

    def pending_tasks(self) -> list[asyncio.Task[object]]:
        """Tasks that have begun here and have not ended; ended tasks and their results are released."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return list(self._tasks)

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self._abandoned:
            handle.cancel()
        else:
            self.timeline.ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """There are no threads here."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.timeline.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self._abandoned:
            handle.cancel()
        else:
            timeline = self.timeline
            timeline.count += 1
            heapq.heappush(timeline.timers, (when, timeline.count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coroutine: Coroutine[object, None, T], **options: Any) -> asyncio.Task[T]:  # type: ignore[override]
        if self._abandoned:
            # A coroutine of a dead process that is still collected starts nothing new.
            coroutine.close()
            nothing = self.create_future()
            nothing.cancel()
            return cast("asyncio.Task[T]", nothing)
        task = asyncio.Task(coroutine, loop=self, **options)
        self._tasks.append(task)
        if len(self._tasks) > 1000:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    def halt(self, error: BaseException) -> None:
        """Ends the run at once: :meth:`run_until` raises ``error``, and nothing more happens."""
        if self.timeline.halted is None:
            self.timeline.halted = error

    def run_until(self, awaitable: Awaitable[T]) -> T:
        """Runs until ``awaitable`` is done and returns its result; other loops of the timeline run as well.

        :raises Deadlock: nothing is left that could happen before
        """
        if asyncio.iscoroutine(awaitable):
            task: asyncio.Future[T] = self.create_task(awaitable)
        else:
            assert isinstance(awaitable, asyncio.Future)
            task = awaitable
        self._run(task.done)
        if not task.done():
            raise Deadlock("nothing is left to happen")
        return task.result()

    def run_for(self, seconds: float) -> None:
        """Runs everything that happens within ``seconds`` of virtual time."""
        passed = self.create_future()
        self.call_later(seconds, passed.set_result, None)
        self.run_until(passed)

    def abandon(self) -> None:
        """Drops everything in progress, like the end of a process."""
        self._abandoned = True
        self._held = None
        self.timeline.forget(self)
        for task in self._tasks:
            # A task of a dead process needs no warning.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if (
                inspect.iscoroutine(coroutine)
                and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
            ):
                coroutine.close()
        self._tasks.clear()

    def pause(self) -> None:
        """Stops this loop until :meth:`resume`, like a process after SIGSTOP; time goes on."""
        if self._held is None:
            self._held = []

    def resume(self) -> None:
        """Runs now what should have happened meanwhile."""
        held, self._held = self._held or [], None
        self.timeline.ready.extend(held)

    def _run(self, finished: Callable[[], bool]) -> None:
        timeline = self.timeline
        current: SimulatedLoop | None = None
        try:
            while not finished():
                if not timeline.ready:
                    timeline.advance()
                    if not timeline.ready:
                        return
                handle: Any = timeline.ready.popleft()
                if handle._cancelled:
                    continue
                if handle._loop is not current:
                    if handle._loop._held is not None:
                        handle._loop._held.append(handle)
                        continue
                    current = handle._loop
                    asyncio._set_running_loop(current)
                timeline.steps += 1
                handle._context.run(handle._callback, *handle._args)
                if timeline.halted is not None:
                    raise timeline.halted
                if timeline.after_step is not None:
                    timeline.after_step()
        finally:
            timeline.halted = None
            asyncio._set_running_loop(None)

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Ends the run with an unhandled error, unless the process is dead."""
        if self._abandoned:
            return
        error = context.get("exception")
        self.halt(error if isinstance(error, BaseException) else RuntimeError(context["message"]))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers leave the heap when their time comes."""


class SimulatedClock:
    """The wall clock follows the loop's time, and jumps on request."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.offset_ms = 0
        """The error of the wall clock; may be below 0."""

    def wall_ms(self) -> int:
        return _EPOCH_MS + self.offset_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def processor(self) -> float:
        """Work takes no virtual time."""
        return 0.0


class SimulatedRandomness:
    def __init__(self, random: Random) -> None:
        self._random = random

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def fraction(self) -> float:
        return self._random.random()

    def token(self, length: int) -> bytes:
        return self._random.randbytes(length)
