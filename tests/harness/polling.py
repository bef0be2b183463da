"""Waiting for conditions that a test can only poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], bool], what: str = "the condition", seconds: float = 30.0, every: float = 0.02
) -> None:
    """Waits until a condition is true.

    :param what: describes the condition in the test's failure
    :param seconds: maximum time to wait, after which the test fails
    :param every: interval of the checks, in seconds
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true within {seconds:g} s: {what}"
        time.sleep(every)


def until_wanted(look: Callable[[], T], wanted: Callable[[T], bool], seconds: float = 30.0) -> T:
    """Waits until an observation is as wanted, and returns it; the test fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not wanted(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


async def until_true(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    """Waits on the event loop until a condition is true; the test fails after ``seconds``."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the tested code reports nothing to wait for
            await asyncio.sleep(0.005)
