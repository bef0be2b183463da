"""Workers without threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from magnetar.io.simulated.disk import PowerLost
from magnetar.io.simulated.loop import SimulatedLoop

LONGEST_DELAY = 0.002


class ProcessStopped(BaseException):
    """The process under test has ended itself; the message says why."""


class SimulatedWorker:
    """Jobs run one after another, each as a whole, at moments that the seed decides."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.longest_delay = LONGEST_DELAY
        """The longest delay of a job in virtual seconds; larger for a slow disk."""
        self._loop = loop
        self._random = random
        self._jobs: deque[tuple[Callable[[], Any], Any]] = deque()
        self._waiting = False
        self._closed = False
        self._abandoned = False

    @property
    def closed(self) -> bool:
        return self._closed

    def submit(self, job: Callable[[], object], done: object = None) -> None:
        """:raises RuntimeError: the worker is closed"""
        if self._abandoned:
            return
        if self._closed:
            raise RuntimeError("the worker is closed")
        self._jobs.append((job, done))
        self._next()

    def close(self) -> None:
        self._closed = True
        while self._jobs:
            self._run()

    def abandon(self) -> None:
        """Drops the submitted jobs: the process has ended."""
        self._jobs.clear()
        self._abandoned = True

    def _next(self) -> None:
        if self._jobs and not self._waiting:
            self._waiting = True
            self._loop.call_later(self._random.random() * self.longest_delay, self._take_turn)

    def _take_turn(self) -> None:
        self._waiting = False
        if self._jobs:
            self._run()
            self._next()

    def _run(self) -> None:
        job, done = self._jobs.popleft()
        result: Any = None
        error: BaseException | None = None
        try:
            result = job()
        except (PowerLost, ProcessStopped):
            raise
        except BaseException as raised:  # noqa: BLE001 - passed to the submitter of the job
            error = raised
        if done is not None:
            done(result, error)
        elif error is not None:
            raise error
