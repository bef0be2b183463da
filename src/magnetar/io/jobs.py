"""Awaiting a job on a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from magnetar.io.interfaces import Loop, Worker

T = TypeVar("T")


async def run_job(loop: Loop, worker: Worker, job: Callable[[], T]) -> T:
    """Runs ``job`` on ``worker`` and returns its result, or raises what it raised."""
    future = loop.create_future()

    def done(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    worker.submit(job, done)
    return cast(T, await future)
