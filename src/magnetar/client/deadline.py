"""Waiting with an end, on the loop that was handed over."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from magnetar.client.exceptions import PulsarException, Timeout
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import finished

T = TypeVar("T")


async def sleep(loop: Loop, seconds: float) -> None:
    passed = loop.create_future()
    timer = loop.call_later(seconds, wake, passed)
    try:
        await passed
    finally:
        timer.cancel()


def wake(waiter: Any) -> None:
    """Ends the waiting of a future, unless it has ended."""
    if not waiter.done():
        waiter.set_result(None)


def fail_at(waiter: Any, error: PulsarException) -> None:
    """Ends the waiting of a future with an error, unless it has ended."""
    if not waiter.done():
        waiter.set_exception(error)


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
        raise Timeout(f"{what}: nothing within {seconds:g} s")
    result: T = task.result()
    return result


def nobody_waits(answer: Any) -> None:
    """To be called with an answer that is of no use to anybody: that it is a failure is no news, either."""
    if not answer.cancelled():
        answer.exception()
