"""Workers without threads, and simulated child processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from magnetar.io.interfaces import Buffer, Disk, Future, ProcessFailed, Service
from magnetar.io.serving import answer_to, understood
from magnetar.io.waiting import fail, settle
from simulated_io.disk import PowerLost
from simulated_io.loop import SimulatedLoop

LONGEST_DELAY = 0.002
_Done = Callable[[Any, BaseException | None], object]


class ProcessStopped(BaseException):
    """The process under test has ended itself; the message says why."""


class SimulatedWorker:
    """Jobs run one after another, each as a whole, at moments that the seed decides."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.longest_delay = LONGEST_DELAY
        """The longest delay of a job in virtual seconds; larger for a slow disk."""
        self._loop = loop
        self._random = random
        self._jobs: deque[tuple[Callable[[], object], _Done | None]] = deque()
        self._waiting = False
        self._closed = False
        self._abandoned = False

    @property
    def closed(self) -> bool:
        return self._closed

    def submit(self, job: Callable[[], object], done: _Done | None = None) -> None:
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
        result: object = None
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


class SimulatedProcess:
    """A simulated child process. Requests and answers are bytes, as with real ones."""

    def __init__(
        self, loop: SimulatedLoop, name: str, service: Service, disk: Disk, worker: SimulatedWorker
    ) -> None:
        self.worker = worker
        self.name = name
        self.distort: Callable[[bytes], bytes] = bytes
        """Changes answers on their way."""
        self._loop = loop
        self._service = service
        self._disk = disk
        self._answer: Callable[[bytes], Sequence[Buffer]] | None = None
        self._asked: list[Future[bytes]] = []
        self._ended = ""

    @property
    def ended(self) -> bool:
        return bool(self._ended)

    def ask(self, question: Sequence[Buffer]) -> Future[bytes]:
        asked: Future[bytes] = self._loop.create_future()
        if self._ended:
            fail(asked, ProcessFailed(self._ended))
            return asked
        self._asked.append(asked)
        whole = b"".join(question)

        def answered(found: tuple[int, bytes] | None, error: BaseException | None) -> None:
            if asked in self._asked:
                self._asked.remove(asked)
            if error is not None or found is None:
                fail(asked, error or RuntimeError("no answer"))
                return
            try:
                settle(asked, self.distort(understood(self.name, *found)))
            except ProcessFailed as failed:
                fail(asked, failed)

        self.worker.submit(lambda: self._run(whole), answered)
        return asked

    def _run(self, question: bytes) -> tuple[int, bytes]:
        if self._answer is None:
            self._answer = self._service(self._disk)
        how, parts = answer_to(question, self._answer)
        return how, b"".join(parts)

    def die(self) -> None:
        """Ends the process in the middle of its work."""
        self._end(f"the {self.name} process was ended by SIGKILL")

    def close(self) -> None:
        self._end(f"the {self.name} process was ended")

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = reason
        self.worker.abandon()
        self.worker.close()
        asked, self._asked = self._asked, []
        for each in asked:
            fail(each, ProcessFailed(reason))
