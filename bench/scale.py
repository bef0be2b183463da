"""Measures Magnetar with many topics: ``python bench/scale.py`` writes docs/measurements/scale.md.

``--sizes 1000,10000,100000``: numbers of topics on disk, each in a data directory of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from scale_client import ScaleClient
from scale_page import write_page
from scale_server import ScaleServer

_NAMESPACE = "persistent://public/default"
_IN_FLIGHT = 250
_SAMPLES = 200

Figures = dict[str, float]


def topic(number: int) -> str:
    return f"{_NAMESPACE}/scale-{number}"


def create(client: ScaleClient, count: int) -> Figures:
    """Creates topics by short-lived producers; returns the time of the first and the last thousand."""
    marks = [time.perf_counter()]
    asked = answered = 0
    while answered < count:
        while asked < count and asked - answered < _IN_FLIGHT:
            client.request("PRODUCER", "producer", topic=topic(asked), producer_id=asked)
            asked += 1
        client.take("PRODUCER_SUCCESS")
        answered += 1
        if answered % 1000 == 0 or answered == count:
            marks.append(time.perf_counter())
    first, last = marks[1] - marks[0], marks[-1] - marks[-2]
    return {
        "create all topics (s)": marks[-1] - marks[0],
        "create one of the first thousand topics (ms)": first * 1000 / min(count, 1000),
        "create one of the last thousand topics (ms)": last * 1000 / (count % 1000 or 1000),
    }


def timed(samples: int, work: Callable[[int], Any]) -> float:
    """Returns the median of samples, in ms."""
    found = []
    for number in range(samples):
        began = time.perf_counter()
        work(number)
        found.append(time.perf_counter() - began)
    return median(found) * 1000


def operations(server: ScaleServer, count: int) -> Figures:
    """Measures single operations of each kind, on topics that were not used since the start."""
    client = ScaleClient(server.port)
    step = max(1, count // (4 * _SAMPLES))

    def lookup(number: int) -> None:
        client.request("LOOKUP", "lookupTopic", topic=topic(number * step))
        client.take("LOOKUP_RESPONSE")

    def new(number: int) -> None:
        client.request("PRODUCER", "producer", topic=f"{_NAMESPACE}/new-{number}", producer_id=10**7 + number)
        client.take("PRODUCER_SUCCESS")

    def load(number: int) -> None:
        client.request("PRODUCER", "producer", topic=topic(number * step), producer_id=number)
        client.take("PRODUCER_SUCCESS")

    def subscribe(number: int) -> None:
        name, place = f"s{number}", number * step
        client.request(
            "SUBSCRIBE", "subscribe", topic=topic(place), subscription=name, subType=0, consumer_id=number
        )
        client.take("SUCCESS")

    def publish(number: int) -> None:
        client.publish([number], 1, b"x" * 100)
        client.take("SEND_RECEIPT")

    def stats(number: int) -> None:
        server.get(f"/admin/v2/persistent/public/default/scale-{number * step}/stats")

    def listing(_number: int) -> None:
        if len(json.loads(server.get("/admin/v2/persistent/public/default"))) < count:
            raise RuntimeError("topics are missing from the list")

    found = {
        "lookup (ms)": timed(_SAMPLES, lookup),
        "create one more topic (ms)": timed(_SAMPLES, new),
        "load one topic from disk (ms)": timed(_SAMPLES, load),
        "subscribe (ms)": timed(_SAMPLES, subscribe),
        "publish, durable (ms)": timed(_SAMPLES, publish),
        "statistics of one topic (ms)": timed(_SAMPLES, stats),
        "list all topics (ms)": timed(5, listing),
    }
    client.close()
    return found


def measure(count: int, folder: Path) -> Figures:
    """Measures everything for one number of topics."""
    server = ScaleServer(folder)
    found: Figures = {"start, nothing on disk (s)": server.start()}
    before = server.resident_bytes()
    client = ScaleClient(server.port)
    found |= create(client, count)
    client.close()
    found["memory per loaded topic (KB)"] = (server.resident_bytes() - before) / count / 1000
    found["scrape of the metrics of all topics (ms)"] = timed(3, lambda _number: server.get("/metrics"))
    found["longest slice (ms)"] = server.metric("magnetar_longest_slice_seconds") * 1000
    found["stop (s)"] = server.stop()
    found["start, all on disk (s)"] = server.start()
    found["memory per topic that is only on disk (KB)"] = (server.resident_bytes() - before) / count / 1000
    found |= operations(server, count)
    server.kill()
    found["start after a kill (s)"] = server.start()
    server.stop()
    return found


def traffic(count: int, rounds: int, folder: Path) -> Figures:
    """Publishes a message to each topic in turn, receives and acknowledges it."""
    server = ScaleServer(folder)
    server.start()
    client = ScaleClient(server.port)
    create(client, count)
    for first in range(0, count, _IN_FLIGHT):
        part = range(first, min(first + _IN_FLIGHT, count))
        for number in part:
            client.request(
                "SUBSCRIBE", "subscribe", topic=topic(number), subscription="s", subType=0, consumer_id=number
            )
        for _ in part:
            client.take("SUCCESS")
        for number in part:
            client.send("FLOW", "flow", consumer_id=number, messagePermits=1000)
    began, used = time.perf_counter(), server.cpu_seconds()
    for sequence_id in range(rounds):
        for first in range(0, count, 500):
            left = 2 * client.publish(range(first, min(first + 500, count)), sequence_id, b"x" * 100)
            arrived = []
            while left:
                command = client.take("SEND_RECEIPT", "MESSAGE")
                left -= 1
                if command.HasField("message"):
                    arrived.append(command)
            client.acknowledge(arrived)
    seconds, cpu = time.perf_counter() - began, server.cpu_seconds() - used
    messages = rounds * count
    found = {
        "messages": messages,
        "messages a second": messages / seconds,
        "server CPU a message (µs)": cpu / messages * 1e6,
        "memory (MB)": server.resident_bytes() / 1e6,
        "longest slice (ms)": server.metric("magnetar_longest_slice_seconds") * 1000,
    }
    client.close()
    server.stop()
    return found


def machine() -> str:
    with_load = f"load average {os.getloadavg()[0]:.1f}"
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}, {with_load}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000", help="topics on disk")
    parser.add_argument("--traffic", type=int, default=10_000, help="topics with traffic")
    parser.add_argument("--rounds", type=int, default=5, help="messages to each of them")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parent.parent / "docs" / "measurements")
    options = parser.parse_args()
    sizes = sorted(int(text) for text in options.sizes.split(","))
    found: dict[int, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="magnetar-scale-") as name:
        for size in sizes:
            folder = Path(name) / str(size)
            folder.mkdir()
            found[size] = measure(size, folder)
            print(size, json.dumps(found[size], indent=1), file=sys.stderr, flush=True)
        folder = Path(name) / "traffic"
        folder.mkdir()
        busy = traffic(options.traffic, options.rounds, folder)
        print(json.dumps(busy, indent=1), file=sys.stderr, flush=True)
    write_page(options.docs, found, options.traffic, busy, machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
