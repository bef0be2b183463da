"""Measures Magnetar and its peers in turn, and writes ``docs/measurements/benchmarks.md``.

    python -m bench [--rounds 3] [--seconds 6] [--only NAME,...] [--servers NAME,...] [--page-only]

The servers run at the same time, and all except the measured one are idle. Each round of a workload measures
all servers, so that changes of the machine's load affect all of them. The figures of every run are kept in
``docs/measurements/benchmarks/results.json``. ``PEERS=redis,nats`` adds these servers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.generators import JavaPerf, Void
from bench.others import others
from bench.page import write_page
from bench.peer_jars import CACHE, fetch_jars
from bench.servers import SHIPPED, SMALL, ApachePulsar, Magnetar, Server
from bench.workloads import WORKLOADS, Bench, Workload
from magnetar import hot

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "measurements" / "benchmarks" / "results.json"


def servers(folder: Path, jars: Path | None) -> list[Server]:
    """Returns all compared servers."""
    found: list[Server] = [
        Magnetar("magnetar", "Magnetar", "magnetar", folder / "magnetar"),
        Magnetar("magnetar-pure", "Magnetar, interpreted", "pure", folder / "magnetar-pure", pure=True),
    ]
    if jars is not None:
        for name, title, memory, settings in (
            ("pulsar", "Apache Pulsar, as shipped", SHIPPED, {}),
            ("pulsar-small", "Apache Pulsar, small heap", SMALL, {}),
            (
                "pulsar-no-delay",
                "Apache Pulsar, managedLedgerNewEntriesCheckDelayInMillis=0",
                SMALL,
                {"managedLedgerNewEntriesCheckDelayInMillis": "0"},
            ),
        ):
            server = ApachePulsar(name, title, "pulsar", folder / name)
            server.jars, server.memory, server.settings = jars, list(memory), dict(settings)
            found.append(server)
    return found


def machine() -> dict[str, str]:
    """Returns a description of the machine."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    memory = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return {
        "processor": f"{os.cpu_count()} x {cpu}",
        "memory": f"{int(memory.split()[1]) // 1_000_000} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java.splitlines()[0] if java else "none",
        "hot modules": ", ".join(sorted({form.value for form in hot.status().forms.values()})),
        "date": time.strftime("%Y-%m-%d"),
    }


def warm_up(bench: Bench, server: Server) -> None:
    """Warms up a server, because a JVM is fast only after compiling hot code."""
    longer = Bench(bench.seconds * 2, bench.java, count=1_000_000)
    next(each for each in WORKLOADS if each.name == "unbatched").measure(longer, server)


def measure(workload: Workload, bench: Bench, server: Server) -> dict[str, Any]:
    """Measures one run; repeats a void one once."""
    for last in (False, True):
        try:
            return dict(workload.measure(bench, server))
        except Void as reason:
            sys.stderr.write(f"    void: {reason}\n")
            if last:
                return {"void": str(reason)}
    raise AssertionError("not reached")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of one run")
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    parser.add_argument("--servers", default="", help="servers, separated by commas")
    parser.add_argument("--page-only", action="store_true", help="write the page from the kept results")
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not arguments.page_only:
        collect(arguments, results)
    write_page(results, ROOT / "docs" / "measurements")
    return 0


def collect(arguments: argparse.Namespace, results: dict[str, Any]) -> None:
    """Runs the requested workloads and records the figures of each run."""
    only = [name for name in arguments.only.split(",") if name]
    unknown = set(only) - {workload.name for workload in WORKLOADS}
    if unknown:
        raise SystemExit(f"no workload is called {', '.join(sorted(unknown))}")
    wanted = [name for name in arguments.servers.split(",") if name]
    jars = fetch_jars()
    work = CACHE / f"work-{os.getpid()}"
    running = [server for server in servers(work, jars) if not wanted or server.name in wanted]
    peers = [name for name in os.environ.get("PEERS", "").split(",") if name]
    running += others(peers, CACHE, work)
    bench = Bench(arguments.seconds, JavaPerf(jars, work / "java"))
    results["machine"] = machine()
    results["conditions"] = {"rounds": arguments.rounds, "seconds": arguments.seconds}
    runs = results.setdefault("runs", {})
    results["servers"] = results.get("servers", {}) | {s.name: [s.title, s.group] for s in running}
    try:
        for server in running:
            took = server.start()
            runs.setdefault("start", {}).setdefault(server.name, []).append({"start_seconds": took})
            sys.stderr.write(f"{server.title} serves after {took:.2f} s\n")
        workloads = [each for each in WORKLOADS if not only or each.name in only]
        warm = False
        for workload in workloads:
            if not warm and workload.name != "idle":
                warm = True
                for server in running:
                    warm_up(bench, server)
            rounds = min(arguments.rounds, workload.most_rounds)
            runs[workload.name] = _rounds(rounds, workload, bench, running, runs.get(workload.name))
            RESULTS.parent.mkdir(parents=True, exist_ok=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    finally:
        for server in running:
            server.stop()
        shutil.rmtree(work, ignore_errors=True)


def _rounds(
    rounds: int, workload: Workload, bench: Bench, running: list[Server], kept: dict[str, Any] | None
) -> dict[str, Any]:
    """Runs all rounds of one workload; figures of servers that do not run stay unchanged."""
    found: dict[str, Any] = dict(kept or {})
    taking_part = [s for s in running if not workload.servers or s.name in workload.servers]
    for server in taking_part:
        found[server.name] = []
    for number in range(rounds):
        for server in taking_part:
            figures = measure(workload, bench, server)
            found[server.name].append(figures)
            text = "  ".join(
                f"{row.figure} {figures[row.figure]:.4g}" for row in workload.rows if row.figure in figures
            )
            sys.stderr.write(f"{workload.name} {number + 1}/{rounds}  {server.name:16} {text}\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
