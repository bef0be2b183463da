"""Measures how long a store with 100,000 ledgers takes to open, and what the ledgers cost.

``python -m bench.ledgers`` prints figures as JSON.

``--topics 10000 --ledgers 100000 --bytes 200e9``: the contents of the data directory, which
:mod:`bench.ledger_fixture` creates. ``docs/measurements/ledgers.md`` has the results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.conditions import conditions
from bench.ledger_fixture import SUBSCRIPTION, LedgerFixture, Shape, topic
from bench.scale_client import ScaleClient
from bench.scale_server import ScaleServer
from magnetar.ledger.embedded.checkpoint import decode_checkpoint

_IN_FLIGHT = 100
_STEPS = (1, 100, 1000)
_QUIET_SECONDS = 1.0
_SEALING_MESSAGES = 40
"""Messages of a megabyte that fill the log's first segments, of 1, 2, 4 ... MiB."""

Figures = dict[str, Any]


def settle(server: ScaleServer) -> None:
    """Waits until the process is idle, after the background work of a start."""
    used = -1.0
    while (now := server.cpu_seconds()) - used > 0.02 * _QUIET_SECONDS:
        used = now
        time.sleep(_QUIET_SECONDS)


def starts(server: ScaleServer, runs: int) -> tuple[list[float], int, int]:
    """Returns the seconds of each start; memory and peak of the last one, which is left running."""
    taken = []
    for number in range(runs):
        taken.append(server.start())
        if number + 1 < runs:
            server.stop()
    settle(server)
    return taken, server.resident_bytes(), server.peak_bytes()


def each_topic(numbers: Sequence[int], send: Callable[[int], None], take: Callable[[], Any]) -> None:
    """Sends a request to each, with a limit of requests in flight, and takes the answers."""
    asked = 0
    for answered in range(len(numbers)):
        while asked < len(numbers) and asked - answered < _IN_FLIGHT:
            send(numbers[asked])
            asked += 1
        take()


def read_first(client: ScaleClient, numbers: Sequence[int]) -> None:
    """Looks up topics, subscribes, and reads the first message of each from its first sealed ledger."""

    def lookup(number: int) -> None:
        client.request("LOOKUP", "lookupTopic", topic=topic(number))

    def subscribe(number: int) -> None:
        name, kind = topic(number), 0
        client.request(
            "SUBSCRIBE", "subscribe", topic=name, subscription=SUBSCRIPTION, subType=kind, consumer_id=number
        )

    def flow(number: int) -> None:
        client.send("FLOW", "flow", consumer_id=number, messagePermits=1)

    each_topic(numbers, lookup, lambda: client.take("LOOKUP_RESPONSE"))
    each_topic(numbers, subscribe, lambda: client.take("SUCCESS"))
    each_topic(numbers, flow, lambda: client.take("MESSAGE"))


def open_topics(server: ScaleServer, shape: Shape) -> Figures:
    """Returns the seconds until topics are open and have delivered a message; then loads all."""
    found: Figures = {}
    client = ScaleClient(server.port)
    begin = 0
    for count in _STEPS:
        numbers = range(begin, min(begin + count, shape.real))
        if len(numbers) == count:
            began = time.perf_counter()
            read_first(client, numbers)
            found[f"open and read {count}, s"] = time.perf_counter() - began
        begin += count
    before = server.resident_bytes()
    left = range(begin, shape.topics)

    def produce(number: int) -> None:
        client.request("PRODUCER", "producer", topic=topic(number), producer_id=number)

    began = time.perf_counter()
    each_topic(left, produce, lambda: client.take("PRODUCER_SUCCESS"))
    found["load the others, s"] = time.perf_counter() - began
    settle(server)
    if left:
        found["memory of a loaded topic, bytes"] = (server.resident_bytes() - before) / len(left)
    found["memory, all loaded, MB"] = server.resident_bytes() / 1e6
    client.close()
    return found


def seal(server: ScaleServer, folder: Path) -> Figures:
    """Fills segments, so that checkpoints are written; returns publish latencies and slices meanwhile."""
    client = ScaleClient(server.port)
    client.request("PRODUCER", "producer", topic=topic(0) + "-sealing", producer_id=1)
    client.take("PRODUCER_SUCCESS")
    path = folder / "data" / "ledgers" / "checkpoint"
    written = {path.stat().st_mtime_ns}
    longest = 0.0
    for number in range(_SEALING_MESSAGES):
        began = time.perf_counter()
        client.publish([1], number, b"x" * (1 << 20))
        client.take("SEND_RECEIPT")
        longest = max(longest, time.perf_counter() - began)
        written.add(path.stat().st_mtime_ns)
    settle(server)
    written.add(path.stat().st_mtime_ns)
    client.close()
    return {
        "checkpoint, bytes": path.stat().st_size,
        "checkpoints while sealing": len(written) - 1,
        "publish of 1 MB while sealing, longest, ms": longest * 1000,
        "checkpoint, longest slice, ms": server.metric("magnetar_longest_slice_checkpoint_seconds") * 1000,
    }


def answers(server: ScaleServer) -> Figures:
    """Returns the durations of requests over all topics."""
    found = {}
    for name, path in (("storage report", "/admin/v2/magnetar/storage"), ("metrics", "/metrics")):
        began = time.perf_counter()
        size = len(server.get(path))
        found[f"{name}, s"] = time.perf_counter() - began
        found[f"{name}, bytes"] = size
    return found


def measure(shape: Shape, runs: int, folder: Path) -> Figures:
    empty = ScaleServer(_folder(folder / "empty"))
    taken, empty_bytes, _ = starts(empty, runs)
    empty.stop()
    found: Figures = {
        "start, nothing on disk, s": median(taken),
        "memory, nothing on disk, MB": empty_bytes / 1e6,
    }
    place = _folder(folder / "full")
    server = ScaleServer(place)
    server.start()
    server.stop()
    began = time.perf_counter()
    found["segments"] = LedgerFixture(place / "data", shape).make()
    found["made in, s"] = time.perf_counter() - began
    taken, full_bytes, peak = starts(server, runs)
    found |= {
        "start, s": median(taken),
        "starts, s": taken,
        "memory, idle, MB": full_bytes / 1e6,
        "memory, peak of the start, MB": peak / 1e6,
        "memory of an idle ledger, bytes": (full_bytes - empty_bytes) / shape.ledgers,
    }
    found |= {f"idle: {name}": value for name, value in answers(server).items()}
    found |= seal(server, place)
    server.kill()
    found["start after a kill, s"] = server.start()
    settle(server)
    found |= open_topics(server, shape)
    found |= {f"loaded: {name}": value for name, value in answers(server).items()}
    found["longest slice, ms"] = server.metric("magnetar_longest_slice_seconds") * 1000
    found["stop, all loaded, s"] = server.stop()
    checkpoint = place / "data" / "ledgers" / "checkpoint"
    kept = len(decode_checkpoint(checkpoint.read_bytes(), str(checkpoint)).ledgers)
    if kept < shape.ledgers:
        raise RuntimeError(f"of {shape.ledgers} ledgers {kept} are left: the start removed some")
    return found


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--ledgers", type=int, default=100_000, help="of all topics together")
    parser.add_argument("--bytes", type=float, default=200e9, help="of all segments together, as holes")
    parser.add_argument("--real", type=int, default=1200, help="topics with an entry to read")
    parser.add_argument("--runs", type=int, default=5, help="starts; the median counts")
    parser.add_argument("--folder", type=Path, help="where to work; kept, and must be empty")
    options = parser.parse_args()
    if not 0 < options.topics <= options.ledgers or options.ledgers % options.topics:
        parser.error("--ledgers must be a multiple of --topics")
    shape = Shape(options.topics, options.ledgers, int(options.bytes), min(options.real, options.topics))
    found: Figures = {
        **conditions(),
        "topics": shape.topics,
        "ledgers": shape.ledgers,
        "bytes": shape.bytes,
    }
    if options.folder is not None:
        found |= measure(shape, options.runs, options.folder)
    else:
        with tempfile.TemporaryDirectory(prefix="magnetar-ledgers-") as name:
            found |= measure(shape, options.runs, Path(name))
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
