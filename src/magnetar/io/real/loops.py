"""Event loops for entry points: uvloop if it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """Makes an event loop that is not running."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_until_done(work: Coroutine[Any, Any, T]) -> T:
    """Runs ``work`` on a new loop, then cancels the tasks that it left behind and waits for their end."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)
