"""Measures a broker of the pytest plugin: its start and end, an advance of time, a restart after a kill.

``python -m bench.plugin_start`` prints JSON: seconds, of each the median and the worst of 20.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from statistics import median

from magnetar.testing import Broker
from magnetar.testing.kept import Keeper

ROUNDS = 20


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def main() -> None:
    """Prints the figures."""
    taken: dict[str, list[float]] = {}
    keeper: list[Keeper] = []

    def begin_session() -> Broker:
        keeper.append(Keeper())
        return start()

    def start() -> Broker:
        broker = Broker(keeper[0])
        broker.start()
        return broker

    brokers: list[Broker] = []
    first = seconds(lambda: brokers.append(begin_session()))
    brokers.pop().close()
    for _ in range(ROUNDS):
        found = {"start": seconds(lambda: brokers.append(start()))}
        broker = brokers.pop()
        found["advance by 3 hours"] = seconds(lambda broker=broker: broker.advance(hours=3))
        found["advance by 2 days"] = seconds(lambda broker=broker: broker.advance(days=2))
        found["kill and start"] = seconds(lambda broker=broker: (broker.kill(), broker.start()))
        found["end"] = seconds(broker.close)
        for what, each in found.items():
            taken.setdefault(what, []).append(each)
    keeper[0].close()
    figures = {
        what: {"median": round(median(each), 4), "worst": round(max(each), 4)} for what, each in taken.items()
    }
    machine = {"python": platform.python_version(), "processors": os.cpu_count()}
    print(json.dumps({"first of a session": round(first, 3), **figures, "machine": machine}, indent=2))


if __name__ == "__main__":
    main()
