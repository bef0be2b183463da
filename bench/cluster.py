"""Measures a broker on ZooKeeper and three bookies, and Apache Pulsar's on the same (3/3/2, synced journals).

``python -m bench.cluster`` prints figures as JSON, those of each run: the CPU time per message of the broker
and of the bookies, throughput, messages per entry, latencies at 1,000 messages a second, reading of a
backlog, memory and start. The brokers are measured in turn, each with its own ZooKeeper and bookies.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.cluster_servers import KINDS, ClusterBroker
from bench.conditions import conditions
from bench.generators import Void, perf
from bench.peer_jars import add_jars, chosen_jars
from magnetar.admin_client import AdminClient

Figures = dict[str, Any]
_KEPT = ("publish_rate", "deliver_rate", "server_cpu_us_per_message", "server_cores", "server_rss_mb")

WORKLOADS: dict[str, tuple[str, ...]] = {
    "100 B, unbatched": ("-s", "100", "-db", "-q", "10000"),
    "100 B, batched": ("-s", "100", "-q", "10000"),
    "1 KB, unbatched": ("-s", "1024", "-db", "-q", "10000"),
    "1 KB, batched": ("-s", "1024", "-q", "10000"),
    "100 B, 1,000/s": ("-s", "100", "-db", "-r", "1000", "--acks-delay-millis", "100"),
}

_CATCH_UP = "catching up"


class Run:
    """Workloads on one broker."""

    def __init__(self, server: ClusterBroker, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self._topics = 0

    def topic(self) -> str:
        self._topics += 1
        return f"persistent://public/default/bench-{self._topics}"

    def warm_up(self) -> None:
        """Warms up, because a JVM is fast only after compiling hot code, and bookies are JVMs."""
        flags = ("-s", "100", "-db", "-q", "10000", "-time", str(self._seconds * 3), "--warmup-time", "0")
        perf(self._server, "run", self.topic(), *flags)

    def measured(self, *flags: str) -> Figures:
        topic = self.topic()
        duration = ("-time", str(self._seconds), "--warmup-time", "2")
        found = self._with_bookies(lambda: perf(self._server, "run", topic, "--keep", *duration, *flags))
        # Brokers are compared per message, but work per entry, so the number of messages in an entry matters.
        admin = AdminClient(self._server.admin_url)
        entries = admin.topic_internal_stats(topic)["entriesAddedCounter"]
        admin.delete_topic(topic, force=True)
        found["messages_per_entry"] = round(found.pop("published") / entries, 1)
        return found

    def caught_up(self) -> Figures:
        topic = self.topic()
        count = str(int(60_000 * self._seconds))
        perf(self._server, "produce", topic, "-m", count, "-r", "0", "-s", "100", "-db", "--warmup-time", "0")
        # Without a subscription the broker would delete the messages.
        AdminClient(self._server.admin_url).create_subscription(topic, "sub", -1, -1)
        # Restart, so that messages are not read from the broker's memory.
        self._server.stop()
        self._server.start()
        flags = ("-sp", "Earliest", "-m", count, "-q", "10000")
        found: Figures = perf(self._server, "consume", topic, *flags)
        return {name: found[name] for name in _KEPT if found.get(name) is not None}

    def _with_bookies(self, work: Callable[[], Figures]) -> Figures:
        assert self._server.bookkeeper is not None
        before = self._server.bookkeeper.cpu_seconds()
        found = work()
        used = self._server.bookkeeper.cpu_seconds() - before
        figures = {name: found[name] for name in ("published", *_KEPT)}
        figures["bookies_cpu_us_per_message"] = round(used / found["published"] * 1e6, 2)
        for kind in ("publish", "end_to_end"):
            for quantile, value in (found[f"{kind}_latency_ms"] or {}).items():
                figures[f"{kind}_{quantile}_ms"] = value
        return figures


def measure(server: ClusterBroker, seconds: float, only: list[str]) -> Figures:
    found: Figures = {"start_seconds": round(server.start(), 2)}
    try:
        run = Run(server, seconds)
        found["healthy"] = server.healthy()
        found["idle_rss_mb"] = server.resident_mb()
        run.warm_up()
        for name, flags in WORKLOADS.items():
            if not only or name in only:
                found[name] = run.measured(*flags)
                sys.stderr.write(f"{server.title}: {name}: {found[name]}\n")
        if not only or _CATCH_UP in only:
            found[_CATCH_UP] = run.caught_up()
    finally:
        server.stop_all()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of one run")
    parser.add_argument("--servers", default="magnetar,pulsar")
    parser.add_argument("--only", action="append", default=[], choices=[*WORKLOADS, _CATCH_UP])
    add_jars(parser)
    options = parser.parse_args()
    jars = chosen_jars(options)
    found: Figures = {
        **conditions(),
    }
    for name in options.servers.split(","):
        kind, title = KINDS[name]
        with tempfile.TemporaryDirectory(prefix="cluster-bench-") as folder:
            server = kind(name, title, name, Path(folder) / "broker", jars=jars)
            try:
                found[name] = measure(server, options.seconds, options.only)
            except Void as void:
                sys.stderr.write(f"void: {void}\n")
                return 1
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
