"""Event loops for entry points: uvloop where it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop that nobody runs yet."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_until_done(work: Coroutine[Any, Any, T]) -> T:
    """Runs ``work`` on a loop of its own, and what it left behind to its end."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)
