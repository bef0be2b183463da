"""Work that is requested often: one run after another, each for all requests that wait for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from types import TracebackType

from magnetar.io.interfaces import Loop, Task
from magnetar.io.waiting import finished, outcome

Failure = tuple[Exception, TracebackType | None]
"""An error, and its traceback before anybody raised it again."""


class SharedRuns:
    """Of each kind of work, one run is in progress, and at most one waits for it.

    A caller that comes during a run shares the next one, because the present run may already have passed what
    the caller needs.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._going: dict[Hashable, Task[Failure | None]] = {}
        self._next: dict[Hashable, Task[Failure | None]] = {}

    async def run(self, kind: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        """Returns when a run has ended that began after this call.

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
        """Returns the error of the run and its traceback, or None."""
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
