"""One seed, as a process that runs many does it."""

from __future__ import annotations

import time
from collections.abc import Callable

from simulation.bookkeeper.scenario import Scenario as LedgerScenario
from simulation.brokers.deletions import Deletions
from simulation.brokers.recreations import Recreations
from simulation.brokers.scenario import Scenario as BrokersScenario
from simulation.brokers.shadows import ClusterShadows
from simulation.geo.scenario import Scenario as GeoScenario
from simulation.geo.shadows import Shadows
from simulation.scenario import Scenario
from simulation.seeds import free_worlds

AnyScenario = Scenario | LedgerScenario | BrokersScenario | Deletions | GeoScenario | Shadows | ClusterShadows


def shadows(seed: int, *, printing: bool = False) -> Shadows | ClusterShadows:
    """One seed in four has a standalone broker, the others a cluster."""
    return (ClusterShadows if seed % 4 else Shadows)(seed, printing=printing)


STORIES: dict[str, Callable[..., AnyScenario]] = {
    "broker": Scenario,
    "ledgers": LedgerScenario,
    "brokers": BrokersScenario,
    "deletions": Deletions,
    "recreations": Recreations,
    "geo": GeoScenario,
    "shadows": shadows,
}
"""What is simulated, by name."""


def one(story: str, seed: int) -> tuple[int, str, str, float]:
    """(seed, hash of the trace, what went wrong, seconds)"""
    scenario = STORIES[story](seed)
    began = time.perf_counter()
    wrong = ""
    try:
        scenario.run()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the seed is reported with it
        wrong = f"{type(error).__name__}: {error}"
    result = seed, scenario.world.trace.digest(), wrong, time.perf_counter() - began
    if seed % 8 == 0:
        free_worlds()
    return result
