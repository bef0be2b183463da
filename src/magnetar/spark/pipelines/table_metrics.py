"""Serves the metrics of a running pipeline to Prometheus over HTTP, in a separate thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from magnetar.http.metrics.exposition import content_type, described
from magnetar.spark.pipelines.configuration import PipelineError

__all__ = ["serving"]

_PATH = "/metrics"


@contextmanager
def serving(port: int, families: Callable[[], Iterator[str]]) -> Iterator[int]:
    """Context manager: answers ``GET /metrics`` until its block ends; yields the port.

    :param port: the port, on all addresses; 0: there is no server, and the yielded port is 0
    :param families: yields the metrics, each family in Prometheus' text format
    :raises PipelineError: the port is not free
    """
    if not port:
        yield 0
        return

    class Answer(BaseHTTPRequestHandler):
        """Answers one request for the metrics of the pipeline."""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != _PATH:
                self.send_error(404, f"there is only {_PATH}")
                return
            kind = content_type(self.headers.get("Accept", ""))
            body = "".join(described(families(), kind)).encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Does nothing: requests are not logged, because standard error shows the progress."""

    try:
        server = ThreadingHTTPServer(("", port), Answer)
    except OSError as error:
        raise PipelineError(f"metrics_port = {port}: {error}; choose a free port") from error
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
