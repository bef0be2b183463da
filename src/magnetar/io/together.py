"""Runs the same work for many items, a limited number at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import finished

Item = TypeVar("Item")
Result = TypeVar("Result")


async def together(
    loop: Loop, items: Sequence[Item], work: Callable[[Item], Awaitable[Result]], most: int
) -> list[Result]:
    """Returns the results of ``work``, in the order of the items. Cancelling the caller cancels all.

    :param most: works in progress at the same time; at least 1
    :raises Exception: the first failure; no other item is started after it, and those in progress have ended
    """
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting = iter(range(len(items)))

    async def worker() -> None:
        for index in waiting:
            if failures:
                return
            try:
                results[index] = await work(items[index])
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)

    tasks = [loop.create_task(worker()) for _ in range(min(most, len(items)))]
    try:
        for task in tasks:
            await finished(loop, task)
    except BaseException:
        for task in tasks:
            task.cancel()
        raise
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(items))]
