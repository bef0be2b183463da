"""Waiting for what belongs to others too: whoever waits may be cancelled, and what is waited for goes on.

To await a task hands it one's own cancellation, and with it all who wait for the same task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.io.interfaces import Cancellable, Loop

Timer = Callable[[Callable[[], object]], Cancellable]
"""Schedules a call, once."""


async def finished(loop: Loop, shared: Any, limit: Timer | None = None) -> bool:
    """Returns when ``shared``, a task or a future, has ended, however it did, and who heard of it before has
    done what they do then: never within this turn of the loop.

    :param limit: schedules the end of waiting
    :returns: False when that came first
    """
    ended = loop.create_future()

    def wake(_shared: Any) -> None:
        settle(ended)

    shared.add_done_callback(wake)
    timer = limit(lambda: settle(ended)) if limit is not None and not shared.done() else None
    try:
        await ended
    finally:
        if timer is not None:
            timer.cancel()
    return bool(shared.done())


async def outcome(loop: Loop, shared: Any) -> Any:
    """What ``shared``, a task or a future, comes to.

    :raises Exception: what it raises
    """
    try:
        await finished(loop, shared)
    except BaseException:
        # Nobody may be left to be told of a failure that comes later.
        shared.add_done_callback(nobody_waits)
        raise
    return shared.result()


async def sleep(loop: Loop, seconds: float) -> None:
    passed = loop.create_future()
    timer = loop.call_later(seconds, settle, passed)
    try:
        await passed
    finally:
        timer.cancel()


def settle(waiter: Any, result: Any = None) -> None:
    """Ends the waiting for a future, unless it has ended: by cancellation, above all."""
    if not waiter.done():
        waiter.set_result(result)


def fail(waiter: Any, error: BaseException) -> None:
    """Ends the waiting for a future with an error, unless it has ended."""
    if not waiter.done():
        waiter.set_exception(error)


def nobody_waits(answer: Any) -> None:
    """To be called with an answer that is of no use to anybody: that it is a failure is no news, either."""
    if not answer.cancelled():
        answer.exception()
