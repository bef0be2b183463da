"""Counts unanswered requests to threads and child processes; while there are any, time does not advance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from magnetar.io.advancing.loop import QuietLoop
from magnetar.io.interfaces import Buffer, Future, Process, Worker
from magnetar.io.waiting import settle

T = TypeVar("T")
Done = Callable[[T | None, BaseException | None], object]


_PROCESS_SECONDS = 30.0
"""Maximum real time for which :meth:`UnderWay.rest` waits for answers of child processes, in seconds."""


class UnderWay:
    """Counts jobs and requests in progress."""

    def __init__(self, loop: QuietLoop) -> None:
        self._loop = loop
        self._count = 0
        self.questions = 0
        """Number of requests to child processes that are not answered yet."""
        self._waiting: list[Future[None]] = []

    def began(self) -> None:
        self._count += 1

    def ended(self) -> None:
        """Counts a job or request as ended; called on the loop after the requester got the answer."""
        self._count -= 1
        if not self._count:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                settle(each)

    def ended_in_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.ended)

    async def rest(self, seconds: float) -> bool:
        """Returns when no work is in progress or ready to run; False if the loop is kept busy.

        :param seconds: maximum real time to wait, in seconds; child processes get up to 30 s for their
            answers
        """
        begun = self._loop.time()
        deadline, end = begun + seconds, begun + _PROCESS_SECONDS
        quiet = 0
        # Twice: between two turns, the loop receives events of sockets.
        while quiet < 2:
            if self._loop.time() >= deadline:
                return False
            if self.questions:
                # Only the broker sends requests to processes: this is no client traffic, and ends.
                await self._none_left(end)
                deadline = min(self._loop.time() + seconds, end)
            elif self._count:
                await self._none_left(deadline)
            await self._turn()
            quiet = quiet + 1 if self._loop.is_quiet and not self._count else 0
        return True

    async def _turn(self) -> None:
        turn = self._loop.create_future()
        self._loop.call_soon(settle, turn)
        await turn

    async def _none_left(self, deadline: float) -> None:
        none_left = self._loop.create_future()
        self._waiting.append(none_left)
        timer = self._loop.call_at(deadline, settle, none_left)
        await none_left
        timer.cancel()


class CountedWorker:
    """A worker whose jobs count as in progress until their results have been delivered."""

    def __init__(self, worker: Worker, under_way: UnderWay) -> None:
        self._worker = worker
        self._under_way = under_way

    def submit(self, job: Callable[[], T], done: Done[T] | None = None) -> None:
        self._under_way.began()
        if done is None:
            self._worker.submit(partial(self._run, job))
        else:
            self._worker.submit(job, partial(self._tell, done))

    def _run(self, job: Callable[[], T]) -> T:
        try:
            return job()
        finally:
            self._under_way.ended_in_thread()

    def _tell(self, done: Done[T], result: T | None, error: BaseException | None) -> None:
        try:
            done(result, error)
        finally:
            self._under_way.ended()

    def close(self) -> None:
        self._worker.close()


class CountedProcess:
    """A child process whose requests count as in progress until they are answered."""

    def __init__(self, process: Process, under_way: UnderWay) -> None:
        self._process = process
        self._under_way = under_way

    def ask(self, question: Sequence[Buffer]) -> Future[bytes]:
        asked = self._process.ask(question)
        self._under_way.began()
        self._under_way.questions += 1
        asked.add_done_callback(self._answered)
        return asked

    def _answered(self, _asked: Future[bytes]) -> None:
        self._under_way.questions -= 1
        self._under_way.ended()

    def close(self) -> None:
        self._process.close()
