"""Which seeds a run of tests takes, and what it does between them."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest


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


def one_finds(
    bug: str,
    chosen: range,
    run: Callable[[int], object],
    found: type[BaseException] | tuple[type[BaseException], ...] = BaseException,
) -> None:
    """Runs seeds until one fails; fails if none does.

    :param bug: the name of the planted bug
    :param found: the exceptions of a seed that finds it; errors of the code that plants it are raised
    """
    for seed in one_by_one(chosen):
        try:
            run(seed)
        except found as error:
            if isinstance(error, TypeError | AttributeError | NameError):
                raise
            print(f"{bug}: found at seed {seed}: {error!r}"[:500])
            return
    pytest.fail(f"{bug}: not found by {len(chosen)} seeds from {chosen.start} on")


def free_worlds() -> None:
    """Frees the worlds of earlier seeds, which have reference cycles and were frozen by their brokers."""
    gc.unfreeze()
    gc.collect()
