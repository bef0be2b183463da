"""What threads and processes have been asked and have not answered: time is not put ahead over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from magnetar.io.advancing.loop import QuietLoop
from magnetar.io.interfaces import Buffer, Process, Worker
from magnetar.io.waiting import settle

T = TypeVar("T")
Done = Callable[[T | None, BaseException | None], object]


_PROCESS_SECONDS = 30.0
"""Real ones, that processes may take for all they are asked."""


class UnderWay:
    """Counts it."""

    def __init__(self, loop: QuietLoop) -> None:
        self._loop = loop
        self._count = 0
        self.questions = 0
        """Those to processes."""
        self._waiting: list[Any] = []

    def began(self) -> None:
        self._count += 1

    def ended(self) -> None:
        """In the loop, when whoever asked has been told."""
        self._count -= 1
        if not self._count:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                settle(each)

    def ended_in_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.ended)

    async def rest(self, seconds: float) -> bool:
        """Returns when nothing is under way or ready to run; False: somebody keeps the loop from it.

        :param seconds: real ones, within which it has to be so; processes may take longer to answer
        """
        begun = self._loop.time()
        deadline, end = begun + seconds, begun + _PROCESS_SECONDS
        quiet = 0
        # Twice: between two turns the loop hears what sockets have to tell.
        while quiet < 2:
            if self._loop.time() >= deadline:
                return False
            if self.questions:
                # Only the broker asks processes: this is no traffic of clients, and has an end.
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
    """A worker whose jobs count as under way until their answers have been given."""

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
    """A process of its own whose questions count as under way until they are answered."""

    def __init__(self, process: Process, under_way: UnderWay) -> None:
        self._process = process
        self._under_way = under_way

    def ask(self, question: Sequence[Buffer]) -> Any:
        asked = self._process.ask(question)
        self._under_way.began()
        self._under_way.questions += 1
        asked.add_done_callback(self._answered)
        return asked

    def _answered(self, _asked: Any) -> None:
        self._under_way.questions -= 1
        self._under_way.ended()

    def close(self) -> None:
        self._process.close()
