"""Measures publishing at a fixed rate: alone, during one compaction by key, and during continuous compaction.

``python -m bench.compaction_beside_publishing`` prints figures as JSON. The three cases take turns, each for
as long as one compaction takes, so that other load on the machine and stalls of its device affect all of them
alike. The figures cover the messages of all rounds. ``docs/compaction.md`` has the results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.conditions import conditions
from bench.servers import Magnetar, Server
from bench.topic_compaction import LOOK_SECONDS, TOPIC, compact, compact_again, fill
from magnetar.admin_client import AdminClient

_REST_SECONDS = 1.0
"""Between two windows, so that the rest of one does not affect the next."""

Figures = dict[str, Any]
Window = tuple[float, float]


class Publisher:
    """Publishes from its creation until :meth:`end`."""

    def __init__(self, server: Server, options: argparse.Namespace) -> None:
        self._out = server.folder / "latencies"
        arguments = (server.port, "persistent://public/default/beside", options.rate, options.size, self._out)
        command = [sys.executable, "-m", "bench.paced_publisher", *map(str, arguments)]
        root = Path(__file__).parent.parent
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=root)

    def end(self) -> tuple[array[float], array[float]]:
        """Returns the due time of each message, in monotonic seconds, and its latency in seconds."""
        self._process.communicate()
        found = array("d")
        found.frombytes(self._out.read_bytes())
        half = len(found) // 2
        return found[:half], found[half:]


def alone(server: Server, seconds: float) -> Window:
    """Sends the status requests of a compaction, because publishing waits for their answers."""
    admin = AdminClient(server.admin_url)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        admin.compaction_status(TOPIC)
        time.sleep(LOOK_SECONDS)
    return began, time.monotonic()


def once(server: Server) -> Window:
    """Compacts everything again."""
    AdminClient(server.admin_url).delete_subscription(TOPIC, "__compaction", force=True)
    time.sleep(_REST_SECONDS)
    began = time.monotonic()
    compact(server)
    return began, time.monotonic()


def again_and_again(server: Server, seconds: float) -> tuple[Window, int]:
    """Compacts the topic with one more message, again and again; returns how often."""
    began = time.monotonic()
    runs = compact_again(server, lambda: time.monotonic() - began > seconds)
    return (began, time.monotonic()), runs


def quantiles(due: array[float], took: array[float], windows: Sequence[Window]) -> dict[str, float]:
    """Returns latencies of messages that were due in the windows, in ms."""
    inside: list[float] = []
    for began, ended in windows:
        inside += took[bisect_left(due, began) : bisect_left(due, ended)]
    inside.sort()
    places = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    found = {name: 1000 * inside[int(share * (len(inside) - 1))] for name, share in places.items()}
    return {name: round(value, 2) for name, value in found.items()} | {"max": round(1000 * inside[-1], 2)}


def measure(server: Server, options: argparse.Namespace) -> Figures:
    admin = AdminClient(server.admin_url)
    admin.create_topic(TOPIC)
    admin.create_subscription(TOPIC, "keeps", -1, -1)
    compact(server)
    fill(server, 0, options)
    windows: dict[str, list[Window]] = {"alone": [], "one": [], "one after the other": []}
    runs = 0
    publisher = Publisher(server, options)
    time.sleep(2)
    for _ in range(options.rounds):
        windows["one"].append(once(server))
        began, ended = windows["one"][-1]
        time.sleep(_REST_SECONDS)
        windows["alone"].append(alone(server, ended - began))
        window, count = again_and_again(server, ended - began)
        windows["one after the other"].append(window)
        runs += count
        time.sleep(_REST_SECONDS)
    due, took = publisher.end()
    found: Figures = {}
    for name, of_rounds in windows.items():
        each = [quantiles(due, took, [window])["p99"] for window in of_rounds]
        found[name] = quantiles(due, took, of_rounds) | {"p99 of each round": each}
    for name in ("one", "one after the other"):
        found[name]["p99, times that alone"] = round(found[name]["p99"] / found["alone"]["p99"], 2)
    seconds = [end - began for began, end in windows["one"]]
    found["one"] |= {"seconds": round(median(seconds), 2)}
    found["one after the other"]["a second"] = round(runs / sum(seconds), 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=6_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=100, help="messages in a batch; 1: none")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message, 8 or more")
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second published beside it")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        server = Magnetar("magnetar", "Magnetar", "magnetar", Path(folder))
        server.start()
        try:
            found = {
                **conditions(),
                **measure(server, options),
            }
        finally:
            server.stop()
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
