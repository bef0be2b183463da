"""Which seeds a run of tests takes, and what it does between them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator


def seeds(default: int) -> range:
    """``MAGNETAR_SIMULATED_SEEDS`` of them, from ``MAGNETAR_FIRST_SEED`` on."""
    first = int(os.environ.get("MAGNETAR_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("MAGNETAR_SIMULATED_SEEDS", str(default))))


def one_by_one(chosen: range) -> Iterator[int]:
    """Yields seeds, and frees the worlds of earlier ones after every eighth."""
    for number, seed in enumerate(chosen, 1):
        yield seed
        if number % 8 == 0:
            free_worlds()


def free_worlds() -> None:
    """Frees the worlds of earlier seeds, which have reference cycles and were frozen by their brokers."""
    gc.unfreeze()
    gc.collect()
