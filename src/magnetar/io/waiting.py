"""Waits for shared tasks and futures: the waiter may be cancelled without cancelling what it waits for.

Awaiting a task directly would pass the cancellation on to it, and to all others that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from magnetar.io.interfaces import Cancellable, Future, Loop

T = TypeVar("T")

Timer = Callable[[Callable[[], object]], Cancellable]
"""Schedules one call."""


async def finished(loop: Loop, shared: Future[Any], limit: Timer | None = None) -> bool:
    """Returns when ``shared``, a task or a future, has ended in any way, and its earlier callbacks have run:
    never within this turn of the loop.

    :param limit: schedules the end of the wait
    :returns: False if the limit came first
    """
    ended = loop.create_future()

    def wake(_shared: Future[Any]) -> None:
        settle(ended)

    shared.add_done_callback(wake)
    timer = limit(lambda: settle(ended)) if limit is not None and not shared.done() else None
    try:
        await ended
    finally:
        if timer is not None:
            timer.cancel()
    return bool(shared.done())


async def outcome(loop: Loop, shared: Future[T]) -> T:
    """Returns the result of ``shared``, a task or a future.

    :raises Exception: as raised by it
    """
    try:
        await finished(loop, shared)
    except BaseException:
        # A later failure may have no other waiter that retrieves it.
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


def settle(waiter: Future[Any], result: object = None) -> None:
    """Completes a future, unless it has ended, for example by cancellation."""
    if not waiter.done():
        waiter.set_result(result)


def fail(waiter: Future[Any], error: BaseException) -> None:
    """Completes a future with an error, unless it has ended."""
    if not waiter.done():
        waiter.set_exception(error)


def nobody_waits(answer: Future[Any]) -> None:
    """Retrieves an answer that is not needed, so that its failure is not reported either."""
    if not answer.cancelled():
        answer.exception()
