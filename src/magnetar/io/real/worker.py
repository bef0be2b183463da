"""A thread that runs jobs one after another and reports results on the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from magnetar.io.waiting import tell

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], object]
Job = tuple[Callable[[], object], Done | None]


class ThreadWorker:
    """A worker whose jobs go through a queue, and whose results come through one eventfd, which costs the
    loop little."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._answers: deque[tuple[Done | None, object, BaseException | None]] = deque()
        self._closed = False
        self._wake_descriptor = _eventfd_in(loop, self._read_wake)
        self._thread = threading.Thread(target=self._run, name=f"magnetar-{name}", daemon=True)
        self._thread.start()

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], object] | None = None
    ) -> None:
        """Queues a job.

        :raises RuntimeError: the worker is closed
        """
        if self._closed:
            raise RuntimeError("the worker is closed")
        self._jobs.put((job, done))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        self._thread.join()
        self._deliver()
        if self._wake_descriptor >= 0:
            self._loop.remove_reader(self._wake_descriptor)
            os.close(self._wake_descriptor)
            self._wake_descriptor = -1

    def _run(self) -> None:
        while (next_job := self._jobs.get()) is not None:
            job, done = next_job
            result: object = None
            error: BaseException | None = None
            try:
                result = job()
            except BaseException as raised:  # noqa: BLE001 - passed to the submitter of the job
                error = raised
            self._answers.append((done, result, error))
            # No commit buffer may be kept alive while the thread waits for the next job.
            del next_job, job, done, result, error
            self._wake()

    def _wake(self) -> None:
        if self._wake_descriptor >= 0:
            os.eventfd_write(self._wake_descriptor, 1)
        else:
            self._loop.call_soon_threadsafe(self._deliver)

    def _read_wake(self) -> None:
        os.eventfd_read(self._wake_descriptor)
        self._deliver()

    def _deliver(self) -> None:
        while self._answers:
            done, result, error = self._answers.popleft()
            if done is not None:
                tell(self._loop, done, result, error)
            elif error is not None:
                context = {"message": "a job without a listener failed", "exception": error}
                self._loop.call_exception_handler(context)


def _eventfd_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> int:
    """Returns an eventfd that the loop watches; -1 if the system has none, or no file can be opened."""
    if not hasattr(os, "eventfd"):
        return -1
    try:
        descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError:
        return -1
    try:
        loop.add_reader(descriptor, callback)
    except NotImplementedError:
        os.close(descriptor)
        return -1
    return descriptor
