"""An event loop in virtual time: nothing waits, everything happens in a repeatable order."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple, cast

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Deadlock(Exception):
    """Nothing is left to happen and what was waited for has not happened."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """As much of an asyncio loop as futures, tasks and timers need.

    An exception that reaches the loop itself ends the run: it is raised from :meth:`run_until`.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._halted: BaseException | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._running = False
        self._abandoned = False

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
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
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coroutine: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:  # type: ignore[override]
        if self._abandoned:
            # What still runs when coroutines of a dead process are collected begins nothing new.
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
        """Ends the run at once: ``error`` comes out of :meth:`run_until`, nothing more happens."""
        if self._halted is None:
            self._halted = error

    def run_until(self, awaitable: Awaitable[T]) -> T:
        """Runs until ``awaitable`` is done and returns its result.

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
        """Runs all that happens within ``seconds`` of virtual time."""
        passed = self.create_future()
        self.call_later(seconds, passed.set_result, None)
        self.run_until(passed)

    def abandon(self) -> None:
        """Forgets everything that was under way, as a process does that is gone."""
        self._abandoned = True
        self._ready.clear()
        self._timers.clear()
        for task in self._tasks:
            # A task of a process that is gone is not worth a warning.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if (
                inspect.iscoroutine(coroutine)
                and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
            ):
                coroutine.close()
        self._tasks.clear()

    def _run(self, finished: Callable[[], bool]) -> None:
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not finished() and self._step():
                if self._halted is not None:
                    raise self._halted
        finally:
            self._running = False
            asyncio._set_running_loop(None)

    def _step(self) -> bool:
        """Runs one callback; False when there is none."""
        if not self._ready:
            self._advance()
        if not self._ready:
            return False
        handle = self._ready.popleft()
        if not handle.cancelled():
            handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
        return True

    def _advance(self) -> None:
        """Moves on to the next moment at which something happens."""
        while self._timers and not self._ready:
            when, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                self._now = max(self._now, when)
                self._ready.append(handle)
        while self._timers and self._timers[0][0] <= self._now:
            handle = heapq.heappop(self._timers)[2]
            if not handle.cancelled():
                self._ready.append(handle)

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody handled must not pass unseen."""
        error = context.get("exception")
        self.halt(error if error is not None else RuntimeError(context["message"]))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers leave the heap when their time comes."""
