"""Measures replication between two clusters of one broker each, of Magnetar and of Apache Pulsar in turn.

    python -m bench.replication [--rounds 3] [--only NAME,...] [--servers NAME,...] [--jars JARS] [--out FILE]

Prints a table, and writes the figures of every run to FILE as JSON. Both pairs run at the same time, and the
one that is not measured is idle. All servers share the cores with what publishes, so throughput and latencies
depend on what else the machine does; the CPU time of a message hardly does. Both clusters list each other, as
clusters do: the receiver's own replicator reads everything it gets, and sends none of it back.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.conditions import conditions
from bench.generators import Void, perf
from bench.peer_jars import add_jars, chosen_jars
from bench.replicated_pair import Pair, ask, entries, started_pair
from bench.replicated_topics import many_topics
from bench.replication_lag import Listening

Figures = dict[str, float]
_LOOK_SECONDS = 0.1
_SINGLE = ("-db", "-s", "100")
_BATCHED = ("-bm", "100", "-s", "1024")
_WARM_UP = 200_000


def catch_up(pair: Pair, count: int, flags: tuple[str, ...]) -> Figures:
    """Measures the replication of a backlog of a topic that the receiver does not have."""
    topic = f"{pair.namespace(replicated=False)}/backlog"
    ask(pair.east, "PUT", f"/persistent/{topic}")
    stored = pair.fill(topic, count, flags)
    before = pair.cpu_seconds()
    pair.replicate(topic.rpartition("/")[0])
    # Before the first entries arrive, the topic is created and connections are opened.
    while not (there := entries(pair.west, topic)):
        time.sleep(_LOOK_SECONDS)
    began, first = time.monotonic(), there
    while (there := entries(pair.west, topic)) < stored:
        time.sleep(_LOOK_SECONDS)
    passed = time.monotonic() - began
    pair.wait_until_replicated(topic)
    used = [after - then for after, then in zip(pair.cpu_seconds(), before, strict=True)]
    if there != stored:
        raise Void(f"{there} entries arrived instead of {stored}")
    pair.delete(topic)
    return {
        "messages/s": count * (stored - first) / stored / passed if passed > _LOOK_SECONDS else 0.0,
        "sender, µs": used[0] / count * 1e6,
        "receiver, µs": used[1] / count * 1e6,
    }


def steady(pair: Pair, rate: int, seconds: float, flags: tuple[str, ...]) -> Figures:
    """Measures replication during publishing; the CPU time of the sender includes publishing."""
    topic = f"{pair.namespace(replicated=True)}/steady"
    ask(pair.east, "PUT", f"/persistent/{topic}")
    pair.wait_until_replicated(topic)
    before, began = pair.cpu_seconds(), time.monotonic()
    arguments = ("-r", str(rate), "-time", str(seconds), *flags)
    published = perf(pair.east, "produce", f"persistent://{topic}", *arguments)["published"]
    pair.wait_until_replicated(topic)
    passed = time.monotonic() - began
    used = [after - then for after, then in zip(pair.cpu_seconds(), before, strict=True)]
    pair.delete(topic)
    return {
        "messages/s": published / passed,
        "sender, µs": used[0] / published * 1e6,
        "receiver, µs": used[1] / published * 1e6,
    }


def lag(pair: Pair, seconds: float) -> Figures:
    """Measures the time from the publisher's receipt to a consumer in the west, at 1,000 messages per s."""
    prefix = f"{pair.namespace(replicated=True)}/lag"
    # Apache's brokers refuse a producer until a request has made them own its bundle.
    ask(pair.east, "PUT", f"/persistent/{prefix}-0")
    pair.wait_until_replicated(f"{prefix}-0")
    listening = Listening(pair, prefix, 1, 1000)
    listening.begin()
    time.sleep(seconds)
    return {f"{name}, ms": value for name, value in listening.end().items()}


@dataclass(frozen=True)
class Workload:
    """A workload that is measured on one pair after the other."""

    name: str
    title: str
    measure: Callable[[Pair, argparse.Namespace], Figures]
    only_magnetar: bool = False


WORKLOADS = (
    Workload("backlog", "backlog, 100 B one by one", lambda pair, o: catch_up(pair, o.messages, _SINGLE)),
    Workload(
        "batches", "backlog, 1 KB in batches of 100", lambda pair, o: catch_up(pair, o.messages, _BATCHED)
    ),
    Workload(
        "steady", "20,000/s, 100 B one by one", lambda pair, o: steady(pair, 20_000, o.seconds, _SINGLE)
    ),
    Workload(
        "steady-batches",
        "20,000/s, 1 KB in batches",
        lambda pair, o: steady(pair, 20_000, o.seconds, _BATCHED),
    ),
    Workload("lag", "1,000/s, receipt to consumer", lambda pair, o: lag(pair, o.seconds)),
    Workload(
        "topics",
        "many topics, one of them with a backlog",
        lambda pair, o: many_topics(pair, o.topics, o.noise),
        only_magnetar=True,
    ),
)


def measured(workload: Workload, pair: Pair, options: argparse.Namespace) -> Figures:
    """Measures one run; repeats a void one once."""
    try:
        return workload.measure(pair, options)
    except Void as reason:
        sys.stderr.write(f"void: {reason}\n")
        return workload.measure(pair, options)


def table(runs: dict[str, dict[str, list[Figures]]], pairs: list[Pair]) -> str:
    """Returns medians, each with the lowest and the highest run."""
    lines = []
    for workload in WORKLOADS:
        of_pairs = runs.get(workload.name)
        if not of_pairs:
            continue
        taking_part = [pair for pair in pairs if pair.name in of_pairs]
        lines += ["", f"| {workload.title} | " + " | ".join(pair.title for pair in taking_part) + " |"]
        lines.append("| --- |" + " ---: |" * len(taking_part))
        for figure in of_pairs[taking_part[0].name][0]:
            cells = [_cell([run[figure] for run in of_pairs[pair.name]]) for pair in taking_part]
            lines.append(f"| {figure} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(values: list[float]) -> str:
    middle = f"{median(values):,.4g}" if median(values) < 10_000 else f"{median(values):,.0f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.3g} … {max(values):,.3g})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of one run at a fixed rate")
    parser.add_argument("--messages", type=int, default=500_000, help="of a backlog")
    parser.add_argument("--topics", type=int, default=10_000, help="in the workload of many topics")
    parser.add_argument("--noise", type=int, default=1_000_000, help="messages of the backlog among them")
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--only", default=",".join(names), help="workloads, separated by commas")
    parser.add_argument("--servers", default="magnetar,pulsar")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where all figures go, as JSON")
    add_jars(parser)
    options = parser.parse_args()
    only, servers = options.only.split(","), options.servers.split(",")
    if unknown := set(only) - set(names):
        parser.error(f"no workload is called {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    jars = chosen_jars(options) if "pulsar" in servers else None
    runs: dict[str, dict[str, list[Figures]]] = {}
    before = conditions()
    with tempfile.TemporaryDirectory(prefix="replication-bench-") as folder, ExitStack() as stack:
        pairs = [stack.enter_context(started_pair(name, Path(folder) / name, jars)) for name in servers]
        for pair in pairs:
            # A JVM is fast only after compiling hot code.
            catch_up(pair, _WARM_UP, _SINGLE)
        for workload in (each for each in WORKLOADS if each.name in only):
            taking_part = [pair for pair in pairs if pair.name == "magnetar" or not workload.only_magnetar]
            runs[workload.name] = {pair.name: [] for pair in taking_part}
            for _ in range(1 if workload.only_magnetar else options.rounds):
                for pair in taking_part:
                    found = measured(workload, pair, options)
                    runs[workload.name][pair.name].append(found)
                    sys.stderr.write(f"{workload.name} {pair.name}: {found}\n")
        sys.stdout.write(table(runs, pairs))
    if options.out is not None:
        options.out.write_text(json.dumps({**before, "runs": runs}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
