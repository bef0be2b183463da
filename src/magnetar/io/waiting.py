"""Waits for shared tasks, for jobs and for operations in progress, and wakes the waiting tasks.

A waiting task may be cancelled without cancelling the shared task. If it awaited the shared task directly,
its cancellation would be passed on to the shared task, and from there to all other waiting tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from magnetar.io.interfaces import Cancellable, Loop, Worker

if TYPE_CHECKING:
    from magnetar.io.interfaces import Future, Task

T = TypeVar("T")
Timer = Callable[[Callable[[], object]], Cancellable]
"""Schedules one call of a function; returns the handle that cancels the call."""
Item = TypeVar("Item")
Result = TypeVar("Result")
Failure = tuple[Exception, TracebackType | None]
"""An error, and its traceback when it was first raised."""


async def finished(loop: Loop, shared: Future[T], limit: Timer | None = None) -> bool:
    """Waits until ``shared``, a task or a future, has ended in any way, and the callbacks that were added
    before this call have run; always waits at least until the next turn of the loop.

    :param limit: schedules the end of the wait; None: no time limit
    :returns: whether ``shared`` has ended; False if the time limit was reached first
    """
    ended = loop.create_future()

    def wake(_shared: Future[T]) -> None:
        settle(ended)

    shared.add_done_callback(wake)
    timer = limit(lambda: settle(ended)) if limit is not None and not shared.done() else None
    try:
        await ended
    finally:
        if timer is not None:
            timer.cancel()
    return bool(shared.done())


async def outcome(loop: Loop, shared: Future[T]) -> T:
    """Returns the result of ``shared``, a task or a future.

    :raises Exception: the error of ``shared``
    """
    try:
        await finished(loop, shared)
    except BaseException:
        # A later failure may have no other waiter that retrieves it.
        shared.add_done_callback(nobody_waits)
        raise
    return shared.result()


async def sleep(loop: Loop, seconds: float) -> None:
    passed = loop.create_future()
    timer = loop.call_later(seconds, settle, passed)
    try:
        await passed
    finally:
        timer.cancel()


def settle(waiter: Future[Any], result: object = None) -> None:
    """Completes a future, unless it has ended, for example by cancellation."""
    if not waiter.done():
        waiter.set_result(result)


def fail(waiter: Future[T], error: BaseException) -> None:
    """Completes a future with an error, unless it has ended."""
    if not waiter.done():
        waiter.set_exception(error)


def nobody_waits(answer: Future[T]) -> None:
    """Retrieves an answer that is not needed, so that its failure is not reported."""
    if not answer.cancelled():
        answer.exception()


class InProgress:
    """Counts operations in progress: each operation runs in a ``with`` block of this object."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._count = 0
        self._idle: Future[None] | None = None

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._count -= 1
        if not self._count and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def none(self) -> None:
        """Waits until no operation is in progress."""
        while self._count:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await finished(self._loop, self._idle)


async def run_job(loop: Loop, worker: Worker, job: Callable[[], T]) -> T:
    """Runs ``job`` on ``worker``; returns its result, or raises its error."""
    results: list[T] = []
    future: Future[None] = loop.create_future()

    def done(_: object, error: BaseException | None) -> None:
        if error is None:
            settle(future)
        else:
            fail(future, error)

    worker.submit(lambda: results.append(job()), done)
    await future
    return results[0]


async def together(
    loop: Loop, items: Sequence[Item], work: Callable[[Item], Awaitable[Result]], most: int
) -> list[Result]:
    """Returns the results of ``work`` in the order of the items.

    Cancelling the caller cancels all calls of ``work``.

    :param most: the maximum number of concurrent calls of ``work``, at least 1
    :raises Exception: the first error of ``work``; it is raised after the calls in progress have ended, and
        no other calls are made
    """
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting = iter(range(len(items)))

    async def worker() -> None:
        for index in waiting:
            if failures:
                return
            try:
                results[index] = await work(items[index])
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)

    tasks = [loop.create_task(worker()) for _ in range(min(most, len(items)))]
    try:
        for task in tasks:
            await finished(loop, task)
    except BaseException:
        for task in tasks:
            task.cancel()
        raise
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(items))]


class SharedRuns:
    """Runs of work, of each kind at most one at a time, and at most one more that waits for its turn.

    A caller that comes during a run waits for the next run, and shares it with other such callers: the
    current run may already have passed the place that matters to the caller.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._going: dict[Hashable, Task[Failure | None]] = {}
        self._next: dict[Hashable, Task[Failure | None]] = {}

    async def run(self, kind: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        """Waits until a run that began after this call has ended.

        :param kind: callers with the same kind share runs
        :param work: the run; not called if the caller shares another caller's run
        :raises Exception: as raised by the run, for all callers that share it
        """
        waiting = self._next.get(kind)
        if waiting is None:
            waiting = self._loop.create_task(self._run(kind, work, self._going.get(kind)))
            self._next[kind] = waiting
            waiting.add_done_callback(lambda done: self._ended(kind, done))
        failure = await outcome(self._loop, waiting)
        if failure is not None:
            error, trace = failure
            # Each caller extends the traceback: without this, the last of many would have those of all.
            raise error.with_traceback(trace)

    async def _run(
        self, kind: Hashable, work: Callable[[], Awaitable[None]], before: Task[Failure | None] | None
    ) -> Failure | None:
        """Runs ``work`` after the run ``before``; returns the error and its traceback, or None: no error."""
        if before is not None:
            await finished(self._loop, before)
        self._going[kind] = self._next.pop(kind)
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised in the waiting callers
            return error, error.__traceback__
        return None

    def _ended(self, kind: Hashable, run: Task[Failure | None]) -> None:
        for runs in (self._going, self._next):
            if runs.get(kind) is run:
                del runs[kind]


class Reminder:
    """Wakes a task. A reminder that comes while the task works is not lost; several such reminders count as
    one.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._reminded = False
        self._waiter: Future[None] | None = None

    def remind(self) -> None:
        """Wakes the waiting task, or ends its next wait at once."""
        self._reminded = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Waits for a reminder; returns at once if one has come since the last wait. Only one task may
        wait.
        """
        if not self._reminded:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._reminded = False


def tell(loop: Loop, listener: Callable[..., object], *arguments: object) -> None:
    """Calls a listener. Its errors are reported to the loop, and do not prevent calls of other listeners."""
    try:
        listener(*arguments)
    except Exception as error:  # noqa: BLE001 - reported
        report(loop, listener, error)


def report(loop: Loop, listener: Callable[..., object], error: Exception) -> None:
    """Reports an error of a listener to the loop, which logs the error; a simulation ends with it."""
    loop.call_exception_handler({"message": f"{listener!r} failed", "exception": error})
