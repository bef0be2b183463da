"""Limits the rate of messages."""

from __future__ import annotations

import time
from collections.abc import Iterator


def paced(rate: float) -> Iterator[None]:
    """Yields at most ``rate`` times per second; 0: no limit."""
    due = time.monotonic()
    while True:
        if rate:
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - 1) + 1 / rate
        yield
