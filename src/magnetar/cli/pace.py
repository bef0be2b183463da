"""Messages at a rate."""

from __future__ import annotations

import time
from collections.abc import Iterator


def paced(rate: float) -> Iterator[None]:
    """Each next one waits for its turn; ``rate`` a second, 0: no bound."""
    due = time.monotonic()
    while True:
        if rate:
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - 1) + 1 / rate
        yield
