"""Time limits on a given event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from magnetar.client.exceptions import Timeout
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import finished, nobody_waits

T = TypeVar("T")


async def within(loop: Loop, seconds: float, coroutine: Coroutine[Any, Any, T], what: str) -> T:
    """Returns the result of ``coroutine``; after ``seconds`` it is cancelled.

    :raises Timeout: the coroutine took longer; the text is ``what``
    """
    task = loop.create_task(coroutine)
    # It may fail at the moment in which the caller is cancelled.
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
