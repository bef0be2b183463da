"""Measures the broker's processor time with and without viewers of the page, with many topics.

Each topic on the page gets a message a second, so that all lines of the page change all the time. ``python -m
bench.page_viewer [--topics N] [--seconds S] [--rounds R]`` prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pulsar

from bench.scale_server import ScaleServer

ON_A_PAGE = 50
_PAGES = {
    "topics": f"/dashboard/events/topics?order=in&count={ON_A_PAGE}",
    "broker": "/dashboard/events/broker",
    "topic": "/dashboard/events/topic/persistent/public/default/page-0",
}
_SETTLE_SECONDS = 6.0


class Viewer:
    """Reads events like a page, and counts bytes."""

    def __init__(self, port: int, path: str) -> None:
        self.bytes = 0
        self._connection = HTTPConnection("127.0.0.1", port)
        self._connection.request("GET", path)
        self._response = self._connection.getresponse()
        if self._response.status != 200:
            raise RuntimeError(f"{path}: {self._response.status}")
        self._stopped = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopped:
            self.bytes += len(self._response.readline())

    def close(self) -> None:
        self._stopped = True
        self._thread.join()
        self._connection.close()


def make_topics(server: ScaleServer, topics: int) -> None:
    """Creates topics with a subscription each, over one connection."""
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=120)
    for number in range(topics):
        path = f"/admin/v2/persistent/public/default/page-{number}/subscription/s"
        connection.request("PUT", path, '"earliest"', {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        if response.status != 204:
            raise RuntimeError(f"{path}: {response.status}")
    connection.close()


class Publisher:
    """Publishes a message per second to each topic of a page."""

    def __init__(self, port: int) -> None:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(f"pulsar://127.0.0.1:{port}", logger=logger)
        self._producers = [
            self._client.create_producer(f"public/default/page-{number}") for number in range(ON_A_PAGE)
        ]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        while not self._stopped.wait(1.0):
            for producer in self._producers:
                producer.send_async(b"a message", lambda _result, _id: None)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for producer in self._producers:
            # The client reports receipts of closed producers on standard output, so flush first.
            producer.flush()
        self._client.close()


def _cpu_percent(server: ScaleServer, seconds: float) -> float:
    began, used = time.monotonic(), server.cpu_seconds()
    time.sleep(seconds)
    return (server.cpu_seconds() - used) / (time.monotonic() - began) * 100


def _measured(server: ScaleServer, seconds: float, paths: Sequence[str]) -> tuple[float, float]:
    """Returns percent of a core, and bytes per second of all pages."""
    viewers = [Viewer(server.http_port, path) for path in paths]
    time.sleep(_SETTLE_SECONDS)
    before = sum(each.bytes for each in viewers)
    percent = _cpu_percent(server, seconds)
    sent = (sum(each.bytes for each in viewers) - before) / seconds
    for each in viewers:
        each.close()
    return percent, sent


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    kinds: dict[str, list[str]] = {"nobody": [], **{name: [path] for name, path in _PAGES.items()}}
    kinds["ten of topics"] = [_PAGES["topics"]] * 10
    with tempfile.TemporaryDirectory(prefix="page-viewer-") as folder:
        server = ScaleServer(Path(folder))
        server.start()
        try:
            make_topics(server, options.topics)
            with closing(Publisher(server.port)):
                time.sleep(_SETTLE_SECONDS)
                found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
                for _ in range(options.rounds):
                    for kind, paths in kinds.items():
                        found[kind].append(_measured(server, options.seconds, paths))
        finally:
            server.stop()
    nobody = statistics.median(percent for percent, _ in found["nobody"])
    rows = {
        kind: {
            "cpuPercent": round(statistics.median(percent for percent, _ in rounds), 2),
            "moreThanNobodyPercent": round(statistics.median(percent for percent, _ in rounds) - nobody, 2),
            "bytesPerSecond": round(statistics.median(sent for _, sent in rounds)),
        }
        for kind, rounds in found.items()
    }
    sys.stdout.write(
        json.dumps({"topics": options.topics, "seconds": options.seconds, "views": rows}, indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
