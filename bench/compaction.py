"""Measures publishing at a fixed rate, without and with constant rewriting of segments.

``python -m bench.compaction`` prints figures as JSON. A run is reported as void if nothing was rewritten
during a part of it. ``docs/measurements/ledgers.md`` has the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.conditions import conditions
from bench.generators import Void, perf
from bench.scale_client import ScaleClient
from bench.servers import Magnetar
from magnetar.admin_client import AdminClient

_KEPT = "persistent://public/default/compaction-kept"
_DROPPED = "persistent://public/default/compaction-dropped"
_ENTRY_BYTES = 4096
_BURST = 32
"""Entries to one topic, then to the other: long runs, so that segments are not rewritten for their order."""
_LOOK_SECONDS = 0.5
_SETTLE_SECONDS = 60.0
_CONFIG = """gcWaitTime=1000
minorCompactionInterval=1
majorCompactionInterval=1
majorCompactionThreshold=0.9
"""

Figures = dict[str, Any]


@dataclass
class Configured(Magnetar):
    """A server with compactions every second."""

    def command(self) -> list[str]:
        config = self.folder / "broker.conf"
        config.write_text(_CONFIG)
        return [*super().command(), "--config", str(config)]


@dataclass
class Watch:
    """Watches compactions during a run."""

    server: Magnetar
    running: int = 0
    looks: int = 0
    written: list[int] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            found = compactions(self.server)
            self.looks += 1
            self.running += bool(found["running"])
            self.written.append(found["writtenBytes"])

    def figures(self) -> Figures:
        return {
            "compaction ran, share of looks": self.running / max(1, self.looks),
            "compaction, MB/s": (self.written[-1] - self.written[0])
            / len(self.written)
            / _LOOK_SECONDS
            / 1e6,
        }


def compactions(server: Magnetar) -> dict[str, Any]:
    found: dict[str, Any] = AdminClient(server.admin_url).storage()["store"]["compactions"]
    return found


def fill(server: Magnetar, total: int) -> None:
    """Creates segments that are half-filled by each of two topics."""
    client = ScaleClient(server.port)
    for number, name in enumerate((_KEPT, _DROPPED)):
        client.request("PRODUCER", "producer", topic=name, producer_id=number)
        client.take("PRODUCER_SUCCESS")
    payload, left, in_flight, sent = os.urandom(_ENTRY_BYTES), total // _ENTRY_BYTES, 0, 0
    while left > 0 or in_flight:
        while left > 0 and in_flight < 16 * _BURST:
            in_flight += client.publish([sent % 2] * _BURST, sent, payload)
            sent += 1
            left -= _BURST
        client.take("SEND_RECEIPT")
        in_flight -= 1
    client.close()


def settle(server: Magnetar) -> None:
    """:raises Void: segments are still being rewritten after a long time"""
    end, quiet = time.monotonic() + _SETTLE_SECONDS, 0
    while quiet < 4:
        if time.monotonic() > end:
            raise Void("compactions do not end")
        time.sleep(_LOOK_SECONDS)
        quiet = 0 if compactions(server)["running"] else quiet + 1


def paced(server: Magnetar, name: str, rate: int, seconds: float) -> Figures:
    """Returns latencies in ms of messages of 1 KB on a fixed schedule."""
    flags = ("-s", "1024", "-db", "-r", str(rate), "--acks-delay-millis", "100", "--warmup-time", "2")
    topic = f"persistent://public/default/{name}"
    with Watch(server) as watch:
        found = perf(server, "run", topic, "-time", str(seconds), *flags)
    figures = {
        f"{kind}, {quantile}, ms": found[f"{kind}_latency_ms"][quantile]
        for kind in ("publish", "end_to_end")
        for quantile in ("p50", "p99", "p999", "max")
        if quantile in found[f"{kind}_latency_ms"]
    }
    return figures | {"server, cores": found["server_cores"]} | watch.figures()


def measure(server: Magnetar, options: argparse.Namespace) -> Figures:
    """:raises Void: segments were rewritten in the idle run, or not rewritten in the other"""
    fill(server, int(options.bytes))
    settle(server)
    idle = paced(server, "idle", options.rate, options.seconds)
    if idle["compaction ran, share of looks"]:
        raise Void("segments were rewritten in the idle run")
    AdminClient(server.admin_url).delete_topic(_DROPPED, force=True)
    end = time.monotonic() + _SETTLE_SECONDS
    while not compactions(server)["running"]:
        if time.monotonic() > end:
            raise Void("no compaction began")
        time.sleep(0.05)
    busy = paced(server, "busy", options.rate, options.seconds)
    if busy["compaction ran, share of looks"] < 0.9:
        raise Void(f"nothing was rewritten for a part of the run: more --bytes; {json.dumps(busy)}")
    names = ("publish, p50, ms", "publish, p99, ms")
    return {"idle": idle, "compaction": busy, "ratio": {name: busy[name] / idle[name] for name in names}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=10, help="of each of the two runs")
    parser.add_argument("--bytes", type=float, default=1.5e9, help="of the segments, half of which die")
    options = parser.parse_args()
    found: Figures = {
        **conditions(),
        "messages a second": options.rate,
    }
    with tempfile.TemporaryDirectory(prefix="magnetar-compaction-") as name:
        server = Configured("magnetar", "Magnetar", "magnetar", Path(name))
        server.start()
        try:
            found |= measure(server, options)
        except Void as void:
            sys.stderr.write(f"void: {void}\n")
            return 1
        finally:
            server.stop()
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
