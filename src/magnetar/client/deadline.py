"""Waiting with an end, on the loop that was handed over."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from magnetar.client.exceptions import Timeout
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import finished, nobody_waits

T = TypeVar("T")


async def within(loop: Loop, seconds: float, coroutine: Coroutine[Any, Any, T], what: str) -> T:
    """What ``coroutine`` answers; after ``seconds`` it is cancelled.

    :raises Timeout: it took longer; the text is ``what``
    """
    task = loop.create_task(coroutine)
    # It may fail in the very moment in which whoever waits is cancelled.
    task.add_done_callback(nobody_waits)
    timer = loop.call_later(seconds, task.cancel)
    try:
        await finished(loop, task)
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
    if task.cancelled():
        raise Timeout(f"{what}: no answer within {seconds:g} s")
    result: T = task.result()
    return result
