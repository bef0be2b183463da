"""Work that many ask for at the same time, carried out one run after another and for all who wait at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import finished, outcome


class SharedRuns:
    """Of each kind of work one run is under way, and at most one waits for it.

    A caller that comes during a run shares the next one, for the run under way may have passed what this
    caller means already.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._going: dict[Hashable, Any] = {}
        self._next: dict[Hashable, Any] = {}

    async def run(self, kind: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        """Returns when a run has ended that began after this call.

        :param kind: callers that name the same kind share runs
        :param work: what a run does; it is not called where the caller shares the run of another one
        :raises Exception: what the run raised; all who share it are told
        """
        waiting = self._next.get(kind)
        if waiting is None:
            waiting = self._loop.create_task(self._run(kind, work, self._going.get(kind)))
            self._next[kind] = waiting
            waiting.add_done_callback(lambda done: self._ended(kind, done))
        failure = await outcome(self._loop, waiting)
        if failure is not None:
            error, trace = failure
            # Each caller adds to the trace: without this the last of many would log those of all.
            raise error.with_traceback(trace)

    async def _run(self, kind: Hashable, work: Callable[[], Awaitable[None]], before: Any) -> Any:
        """The error that it ended with, and the traceback of that; None: there was none."""
        if before is not None:
            await finished(self._loop, before)
        self._going[kind] = self._next.pop(kind)
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            return error, error.__traceback__
        return None

    def _ended(self, kind: Hashable, run: Any) -> None:
        for runs in (self._going, self._next):
            if runs.get(kind) is run:
                del runs[kind]
