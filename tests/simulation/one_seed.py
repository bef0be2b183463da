"""One seed, as a process that runs many does it."""

from __future__ import annotations

import time

from simulation.bookkeeper.scenario import Scenario as LedgerScenario
from simulation.scenario import Scenario


def one_of_ledgers(seed: int) -> tuple[int, str, str, float]:
    """As :func:`one`, of ledgers on bookies."""
    return _one(seed, LedgerScenario(seed))


def one(seed: int) -> tuple[int, str, str, float]:
    """(seed, hash of the trace, what went wrong, seconds)"""
    return _one(seed, Scenario(seed))


def _one(seed: int, scenario: Scenario | LedgerScenario) -> tuple[int, str, str, float]:
    began = time.perf_counter()
    wrong = ""
    try:
        scenario.run()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the seed is reported with it
        wrong = f"{type(error).__name__}: {error}"
    return seed, scenario.world.trace.digest(), wrong, time.perf_counter() - began
