"""Measures reading and writing with Spark, and writes ``docs/measurements/spark-benchmarks.md``.

    python -m bench.spark [--rounds 3] [--rows 2000000] [--only NAME,...] [--what read,...] [--page-only]

Both servers run, each system has one Spark session at a time, and rounds alternate between systems. All runs
are kept in ``docs/measurements/benchmarks/spark.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.__main__ import ROOT, machine
from bench.peer_jars import CACHE, fetch_jars
from bench.servers import SMALL, ApachePulsar, Magnetar, Server
from bench.spark.page import write_page
from bench.spark.sessions import Session, connector_session, own_session
from bench.spark.workloads import System, Void, read, read_topic, store, write

RESULTS = ROOT / "docs" / "measurements" / "benchmarks" / "spark.json"
READS = [("bytes", 100), ("bytes", 1000), ("avro", 100), ("avro", 1000)]
WRITES = [100, 1000]
STORED = 100
CORES = [1, 2]
WHAT = ("read", "write", "store")


def systems(work: Path) -> tuple[list[Server], list[System]]:
    """Returns the servers, and the ways of using Spark with them."""
    own = Magnetar("magnetar", "Magnetar", "magnetar", work / "magnetar")
    settings = {"transactionCoordinatorEnabled": "true"}
    with_transactions = Magnetar(
        "magnetar-txn", "Magnetar", "magnetar", work / "magnetar-txn", settings=settings
    )
    apache = ApachePulsar("pulsar", "Apache Pulsar", "pulsar", work / "pulsar")
    apache.jars, apache.memory = fetch_jars(), list(SMALL)
    files = {"read.mode": "segments", "segments.directory": str(work / "magnetar" / "data")}

    def connector(master: str, folder: Path) -> Session:
        return connector_session(master, folder, CACHE)

    blocking = {"pulsar.producer.blockIfQueueFull": "true"}
    return [own, with_transactions, apache], [
        System("magnetar", "magnetar.spark, Magnetar", own, own_session, writes=False),
        System(
            "segments", "magnetar.spark, files of Magnetar's store", own, own_session, files, writes=False
        ),
        System("once", "magnetar.spark, Magnetar, exactly once", own, own_session, reads=False, once=True),
        System(
            "transactional",
            "magnetar.spark, Magnetar, a transaction for each batch",
            with_transactions,
            own_session,
            {"delivery": "transactional"},
            reads=False,
            once=True,
        ),
        System("direct", "magnetar.spark, Magnetar, at least once", own, own_session, reads=False),
        System("own-apache", "magnetar.spark, Apache Pulsar", apache, own_session, writes=False),
        *(
            System(f"to-{kind}", title, own, own_session, reads=False, writes=False, stores=kind)
            for kind, title in (
                ("delta", "pipeline table, Delta, Magnetar"),
                ("iceberg", "pipeline table, Iceberg, Magnetar"),
                ("archive", "pipeline archive, Magnetar"),
            )
        ),
        System("connector", "JVM connector, Apache Pulsar", apache, connector, blocking, stores="parquet"),
        System("connector-own", "JVM connector, Magnetar", own, connector, blocking, stores="parquet"),
    ]


class Measuring:
    """The runs and their results."""

    def __init__(self, results: dict[str, Any], work: Path, options: argparse.Namespace) -> None:
        self._results, self._work, self._rounds, self._rows = results, work, options.rounds, options.rows
        self._only, self._what = _names(options.only), _names(options.what)

    def all(self, servers: list[Server], ways: list[System]) -> None:
        ways = [way for way in ways if not self._only or way.name in self._only]
        used = [server for server in servers if any(way.server is server for way in ways)]
        self._results["systems"] = self._results.get("systems", {}) | {w.name: w.title for w in ways}
        try:
            for server in used:
                server.start()
            topics = self._fill(used)
            for cores in CORES:
                for way in ways:
                    self._measure(way, cores, topics)
        finally:
            for server in used:
                server.stop()

    def _fill(self, servers: list[Server]) -> dict[tuple[str, str, int], str]:
        found = {}
        for server in servers:
            for kind, size in READS if "read" in self._what else [("bytes", STORED)]:
                sys.stderr.write(f"filling {server.title} with {kind} of {size} B\n")
                found[server.name, kind, size] = read_topic(server, kind, size, self._count(size))
        return found

    def _count(self, size: int) -> int:
        return self._rows if size <= 100 else self._rows // 10 * 2

    def _measure(self, way: System, cores: int, topics: dict[tuple[str, str, int], str]) -> None:
        with ExitStack() as stack:
            folder = self._work / f"{way.name}-{cores}"
            session = stack.enter_context(way.open(f"local[{cores}]", folder))
            # The first query of a session compiles code for the others.
            for round_number in range(-1, self._rounds):
                if way.reads and "read" in self._what:
                    for kind, size in READS:
                        topic, rows = topics[way.server.name, kind, size], self._count(size)
                        run = read(way, session, topic, kind, size, rows)
                        self._keep(f"read-{kind}-{size}-{cores}", way, round_number, run)
                if way.stores and cores == 1 and "store" in self._what:
                    topic, rows = topics[way.server.name, "bytes", STORED], self._count(STORED)
                    run = store(way, session, topic, rows, folder / f"stored-{round_number}")
                    self._keep(f"store-{STORED}-{cores}", way, round_number, run)
                if way.writes and "write" in self._what:
                    for size in WRITES:
                        run = write(way, session, size, self._count(size) // 2, folder / "staging")
                        self._keep(f"write-{size}-{cores}", way, round_number, run)
        shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, what: str, way: System, round_number: int, run: dict[str, Any]) -> None:
        text = f"{run['rows_per_second']:,.0f} rows/s, {run['cpu_seconds_per_million']:.2f} s CPU a million"
        sys.stderr.write(f"{what} {round_number + 1}/{self._rounds} {way.name:10} {text}\n")
        if round_number < 0:
            return
        kept = self._results.setdefault("runs", {}).setdefault(what, {})
        kept[way.name] = [*(kept.get(way.name, []) if round_number else []), run]
        RESULTS.write_text(json.dumps(self._results, indent=1) + "\n")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 B; a fifth of them of 1,000 B")
    parser.add_argument("--only", default="", help="systems, separated by commas")
    parser.add_argument("--what", default=",".join(WHAT), help="workloads, separated by commas")
    parser.add_argument("--page-only", action="store_true", help="write the page from the kept results")
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not arguments.page_only:
        if "read" in _names(arguments.what):
            results["machine"] = machine()
            results["conditions"] = {"rounds": arguments.rounds, "rows": arguments.rows}
        work = CACHE / f"spark-{os.getpid()}"
        try:
            Measuring(results, work, arguments).all(*systems(work))
        except Void as reason:
            sys.stderr.write(f"void: {reason}\n")
            return 3
        finally:
            shutil.rmtree(work, ignore_errors=True)
    write_page(results, ROOT / "docs" / "measurements")
    return 0


if __name__ == "__main__":
    sys.exit(main())
