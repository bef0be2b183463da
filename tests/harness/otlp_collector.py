"""A collector of OpenTelemetry's metrics over HTTP, which reads them by the official definitions."""

from __future__ import annotations

import gzip
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from certificates import Pair
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

Key = tuple[str, frozenset[tuple[str, str | int]]]
"""Of a point: the metric's name, and the attributes."""
PATIENCE_SECONDS = 30.0


class Collector:
    """What came, and how the next is answered."""

    def __init__(self) -> None:
        self.status = 200
        self.rejected = 0
        """Points that it says it did not keep."""
        self.hangs_up = False
        """It ends the connection behind each answer."""
        self.answer: bytes | None = None
        """What it says; None: as a collector does."""
        self.heads: list[Mapping[str, str]] = []
        self.requests: list[ExportMetricsServiceRequest] = []
        self.metrics: dict[str, Metric] = {}
        """The latest of each name."""
        self.points: dict[Key, float] = {}
        """The latest value of each; of a histogram how many there were."""
        self.url = ""
        self._came = threading.Condition()

    def take(self, heads: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        request = ExportMetricsServiceRequest()
        request.ParseFromString(gzip.decompress(body) if heads.get("Content-Encoding") == "gzip" else body)
        answer = ExportMetricsServiceResponse()
        if self.rejected:
            answer.partial_success.rejected_data_points = self.rejected
            answer.partial_success.error_message = "no room"
        with self._came:
            self.heads.append(heads)
            if self.status == 200:
                self.requests.append(request)
                for resource in request.resource_metrics:
                    for scope in resource.scope_metrics:
                        for metric in scope.metrics:
                            self._note(metric)
            self._came.notify_all()
            return self.status, answer.SerializeToString() if self.answer is None else self.answer

    def wait(self, until: Callable[[], bool]) -> None:
        """Until something that came makes it true."""
        end = time.monotonic() + PATIENCE_SECONDS
        with self._came:
            while not until():
                assert self._came.wait(end - time.monotonic()), "nothing came that was waited for"

    def _note(self, metric: Metric) -> None:
        self.metrics[metric.name] = metric
        if metric.HasField("histogram"):
            for each in metric.histogram.data_points:
                self.points[metric.name, frozenset(map(_attribute, each.attributes))] = each.count
            return
        kind = metric.gauge if metric.HasField("gauge") else metric.sum
        for point in kind.data_points:
            key = (metric.name, frozenset(map(_attribute, point.attributes)))
            self.points[key] = getattr(point, point.WhichOneof("value") or "")


def _attribute(pair: KeyValue) -> tuple[str, str | int]:
    return pair.key, getattr(pair.value, pair.value.WhichOneof("value") or "")


@contextmanager
def collecting(certificate: Pair | None = None) -> Iterator[Collector]:
    """:param certificate: it is asked over TLS, and shows this one"""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = collector.take({"path": self.path, **dict(self.headers)}, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            # Without a word, as one that was quiet for long does.
            self.close_connection = collector.hangs_up

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certificate is None else "https"
    collector.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
