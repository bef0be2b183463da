"""What the worlds of all kinds have in common: work on one simulated loop, and the log while it runs."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from simulated_io import SimulatedLoop


class Driven:
    """A world, whose loop everything in it shares."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()  # type: ignore[abstract]

    def steps(self) -> int:
        """What has happened so far: orders everything."""
        return self.loop.timeline.steps

    def ended(self, task: Any) -> None:
        """A task of the world is over: what it raised ends the run."""
        if not task.cancelled() and task.exception() is not None:
            self.loop.halt(task.exception())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs work of clients or of fate; what it raises ends the run."""
        task = self.loop.create_task(work)
        task.add_done_callback(self.ended)
        return task

    async def sleep(self, seconds: float) -> None:
        passed = self.loop.create_future()
        self.loop.call_later(seconds, passed.set_result, None)
        await passed

    async def finished(self, task: Any) -> None:
        """Waits for somebody else's task, however it ends."""
        ended = self.loop.create_future()

        def wake(_task: Any) -> None:
            if not ended.done():
                ended.set_result(None)

        task.add_done_callback(wake)
        await ended


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """What the product logs goes there, and nowhere else."""
    logger = logging.getLogger("magnetar")
    before = (logger.propagate, logger.level)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate, logger.level = before
