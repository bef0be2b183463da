"""Waiting for a task that belongs to somebody else."""

from __future__ import annotations

from typing import Any

from magnetar.io.interfaces import Loop


async def finished(loop: Loop, task: Any) -> None:
    """Returns when ``task`` has ended, however it did. Whoever waits may be cancelled: the task goes on."""
    if task.done():
        return
    ended = loop.create_future()

    def wake(_task: Any) -> None:
        if not ended.done():
            ended.set_result(None)

    task.add_done_callback(wake)
    await ended
