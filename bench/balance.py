"""Compares load managers on simulated load, ours and Apache's classes: ``python -m bench.balance [JARS]``.

Prints the table of docs/measurements/scale-of-brokers.md: how evenly the load is distributed before and
after, how much of it was moved, and what a decision costs. Both load managers get the same load, and moving a
bundle takes no time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, median, pstdev

from magnetar.broker.load.candidates import Kinds, Rules
from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.manager import PLACEMENTS, SHEDDERS
from magnetar.broker.load.planning import Placer
from magnetar.broker.load.reports import BrokerReport, BundleStats, Identity, Resources, Usage, sum_of
from magnetar.broker.load.settings import LoadSettings

BROKERS, BUNDLES, NAMESPACES = 100, 10_000, 100
ROUNDS, GRACE = 60, 30
_MIB = 1 << 20
_JAVA = Path(__file__).with_name("BalanceOfApache.java")
_OURS = "Magnetar"
_STRATEGIES = (
    ("ThresholdShedder", "LeastLongTermMessageRate"),
    ("ThresholdShedder", "LeastResourceUsageWithWeight"),
    ("UniformLoadShedder", "LeastLongTermMessageRate"),
    ("AvgShedder", "AvgShedder"),
)


@dataclass(frozen=True)
class Given:
    """Load and its initial distribution."""

    brokers: Sequence[str]
    stats: dict[str, BundleStats]
    owners: dict[str, str]
    capacity: float
    """Capacity of a broker in bytes per second."""


@dataclass(frozen=True)
class Round:
    moves: int
    micros: float
    usage: Sequence[float]
    """Usage of each broker after the round, as a fraction."""


def scattered(random: Random) -> Given:
    """Returns bundles of very different load, distributed regardless of it."""
    brokers = [f"broker-{number:03}:8080" for number in range(BROKERS)]
    return _given(random, brokers, brokers)


def joined(random: Random) -> Given:
    """Returns the same on nine tenths of the brokers; the others are new."""
    brokers = [f"broker-{number:03}:8080" for number in range(BROKERS)]
    return _given(random, brokers, brokers[: BROKERS * 9 // 10])


def _given(random: Random, brokers: Sequence[str], having: Sequence[str]) -> Given:
    stats = {}
    for number in range(BUNDLES):
        lower = number // NAMESPACES * 0x01000000
        name = f"public/ns{number % NAMESPACES:03}/0x{lower:08x}_0x{lower + 0x01000000:08x}"
        flow = random.lognormvariate(0.0, 1.0) * _MIB
        stats[name] = BundleStats(flow / 1024, flow, topics=2)
    owners = {name: having[index % len(having)] for index, name in enumerate(stats)}
    total = sum(each.throughput_in for each in stats.values())
    return Given(brokers, stats, owners, total / len(brokers) / 0.5)


def ours(given: Given, shedder: str, placement: str) -> list[Round]:
    settings = LoadSettings(shedder=shedder, placement=placement)
    shed, place, load = SHEDDERS[shedder](), PLACEMENTS[placement](), ClusterLoad()
    owners, below = dict(given.owners), Random(1).randrange
    found = []
    for number in range(ROUNDS):
        _report(load, given, owners, number)
        load.forgive(number - GRACE + 1)
        began = time.perf_counter()
        placer = Placer(load, Rules(), settings, place, below)
        plan = placer.plan(shed.find(load, settings), lambda _bundle: Kinds())
        micros = (time.perf_counter() - began) * 1e6
        for move in plan.moves:
            owners[move.bundle] = move.target or move.source
            load.moved[move.bundle] = number
        found.append(Round(len(plan.moves), micros, _usage(given, owners)))
    return found


def _report(load: ClusterLoad, given: Given, owners: dict[str, str], number: int) -> None:
    served: dict[str, dict[str, BundleStats]] = {broker: {} for broker in given.brokers}
    for bundle, owner in owners.items():
        served[owner][bundle] = given.stats[bundle]
    for broker, stats in served.items():
        total = sum_of(stats)
        resources = Resources(cpu=Usage(100 * total.throughput_in / given.capacity, 100))
        report = BrokerReport(
            Identity(), resources, stats, frozenset(stats), updated_ms=number + 1, total=total
        )
        load.take(broker, report, {})


def _usage(given: Given, owners: dict[str, str]) -> list[float]:
    usage = dict.fromkeys(given.brokers, 0.0)
    for bundle, owner in owners.items():
        usage[owner] += given.stats[bundle].throughput_in / given.capacity
    return list(usage.values())


def apaches(given: Given, shedder: str, placement: str, jars: Path) -> list[Round]:
    """:raises subprocess.CalledProcessError: Java failed"""
    told = [f"broker {broker}" for broker in given.brokers]
    for name, each in given.stats.items():
        told.append(f"bundle {name} {given.owners[name]} {each.rate_in} {each.throughput_in}")
    told.append(f"go {shedder} {placement} {ROUNDS} {GRACE} {given.capacity}")
    done = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(_JAVA)],
        input="\n".join(told) + "\n",
        check=True,
        capture_output=True,
        text=True,
    )
    rounds = []
    for line in done.stdout.splitlines():
        words = line.split(" ")
        if len(words) == len(given.brokers) + 2 and words[0].isdigit():
            rounds.append(Round(int(words[0]), float(words[1]), [float(word) for word in words[2:]]))
    return rounds


def row(what: str, who: str, given: Given, rounds: Sequence[Round]) -> str:
    """Returns a row without Java's own times, which include the work of this program around the decisions."""
    before, after = _usage(given, given.owners), rounds[-1].usage
    moves = [each.moves for each in rounds]
    last = max((number + 1 for number, count in enumerate(moves) if count), default=0)
    cells = (
        what,
        who,
        f"{max(before) / fmean(before):.2f}",
        f"{max(after) / fmean(after):.2f}",
        f"{100 * pstdev(before):.1f}",
        f"{100 * pstdev(after):.1f}",
        f"{sum(moves):,}",
        str(last),
        f"{fmean(each.micros for each in rounds) / 1000:.1f}" if who == _OURS else "",
    )
    return "| " + " | ".join(cells) + " |"


def costs() -> None:
    """Prints a leader's work for each report and each placed bundle, and the size of a report."""
    given = scattered(Random(7))
    load = ClusterLoad()
    _report(load, given, given.owners, 0)
    one = load.brokers[given.brokers[0]].report
    text = json.dumps(one.to_json(), separators=(",", ":"))
    print(f"\nA report of {len(one.stats)} bundles: {len(text):,} bytes")
    print(f"reading one, taking it into account: {_micros(lambda n: _take(load, text, n)):,.0f} µs")
    placer = Placer(
        load, Rules(), LoadSettings(), PLACEMENTS["LeastLongTermMessageRate"](), Random(1).randrange
    )
    names = list(given.stats)
    print(f"placing a bundle: {_micros(lambda n: placer.place(names[n], Kinds())):,.0f} µs")


def _take(load: ClusterLoad, text: str, number: int) -> None:
    report = BrokerReport.from_json({**json.loads(text), "lastUpdate": 1000 + number})
    load.take("broker-000:8080", report, {})


def _micros(work: Callable[[int], object]) -> float:
    """Returns the median of many runs in microseconds."""
    times = []
    for number in range(300):
        began = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - began)
    return median(times) * 1e6


def main(arguments: Sequence[str]) -> None:
    jars = Path(arguments[0]) if arguments else None
    heads = (
        "highest, before",
        "after",
        "deviation, before",
        "after",
        "moves",
        "last in round",
        "decision (ms)",
    )
    print("| " + " | ".join(("load", "who", *heads)) + " |")
    print("| --- | --- |" + " ---: |" * len(heads))
    loads: dict[str, Callable[[Random], Given]] = {"scattered": scattered, "ten join": joined}
    for load, make in loads.items():
        given = make(Random(7))
        for shedder, placement in _STRATEGIES:
            what = f"{load}; {shedder}" + ("" if placement == shedder else f", {placement}")
            print(row(what, _OURS, given, ours(given, shedder, placement)), flush=True)
            if jars is not None:
                print(row(what, "Apache", given, apaches(given, shedder, placement, jars)), flush=True)
    costs()


if __name__ == "__main__":
    main(sys.argv[1:])
