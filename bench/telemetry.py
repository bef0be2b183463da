"""Measures what a broker with many topics spends on sending figures to an OpenTelemetry collector.

``python -m bench.telemetry [--topics N] [--seconds S]`` prints JSON: processor time, bytes, and the longest
delay of the event loop, without and with the collector.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from bench.page_viewer import make_topics
from bench.scale_server import ScaleServer

_INTERVAL_SECONDS = 6
_SETTLE_SECONDS = 15.0


class Sink:
    """A collector that discards everything."""

    def __init__(self) -> None:
        sink = self
        self.bytes = 0
        self.requests = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                self.rfile.read(length)
                sink.bytes += length
                sink.requests += 1
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _environment(sink: Sink, gzip: bool) -> Mapping[str, str]:
    return {
        "OTEL_SDK_DISABLED": "false",
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.url,
        "OTEL_METRIC_EXPORT_INTERVAL": str(_INTERVAL_SECONDS * 1000),
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip" if gzip else "none",
    }


def _measured(environment: Mapping[str, str], topics: int, seconds: float, sink: Sink) -> dict[str, float]:
    os.environ.update(environment)
    with tempfile.TemporaryDirectory(prefix="telemetry-") as folder:
        server = ScaleServer(Path(folder))
        server.start()
        try:
            make_topics(server, topics)
            time.sleep(_SETTLE_SECONDS)
            # Reading the metric resets its maximum.
            server.metric("magnetar_loop_delay_seconds")
            used, delivered = server.cpu_seconds(), server.metric("magnetar_telemetry_delivered")
            sent, delays = sink.bytes, []
            for _ in range(int(seconds / _INTERVAL_SECONDS)):
                time.sleep(_INTERVAL_SECONDS)
                delays.append(server.metric("magnetar_loop_delay_seconds"))
            times = server.metric("magnetar_telemetry_delivered") - delivered
            return {
                "cpuSeconds": server.cpu_seconds() - used,
                "sendings": times,
                "megabytes": (sink.bytes - sent) / 1e6,
                "loopDelayMs": max(delays) * 1000,
            }
        finally:
            server.stop()
            for name in environment:
                del os.environ[name]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args(arguments)
    sink = Sink()
    try:
        kinds = {"none": {}, "plain": _environment(sink, False), "gzip": _environment(sink, True)}
        found = {
            kind: _measured(environment, options.topics, options.seconds, sink)
            for kind, environment in kinds.items()
        }
    finally:
        sink.close()
    sys.stdout.write(json.dumps({"topics": options.topics, **found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
