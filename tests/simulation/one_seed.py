"""One seed, as a process that runs many does it."""

from __future__ import annotations

import time

from simulation.scenario import Scenario


def one(seed: int) -> tuple[int, str, str, float]:
    """(seed, hash of the trace, what went wrong, seconds)"""
    began = time.perf_counter()
    scenario = Scenario(seed)
    wrong = ""
    try:
        scenario.run()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the seed is reported with it
        wrong = f"{type(error).__name__}: {error}"
    return seed, scenario.world.trace.digest(), wrong, time.perf_counter() - began
