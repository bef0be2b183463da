"""Apache Iceberg's own REST catalog, in a process, and a wire to it that loses requests and answers."""

from __future__ import annotations

import http.client
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from java_servers import class_path, listens
from ports import free_port

_PROJECT = Path(__file__).parents[1] / "spark" / "catalog_server"
_START_SECONDS = 120.0


@contextmanager
def rest_catalog(folder: Path) -> Iterator[int]:
    """Runs a catalog; yields its port.

    :param folder: an empty folder for its database
    """
    port = free_port()
    settings = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/rest.db",
        "CATALOG_WAREHOUSE": str(folder),
        "CATALOG_REST_PORT": str(port),
    }
    command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path(_PROJECT)]
    with (folder / "catalog.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "org.apache.iceberg.rest.RESTCatalogServer"],
            env={**os.environ, **settings},
            stdout=log,
            stderr=log,
        )
        try:
            end = time.monotonic() + _START_SECONDS
            while not listens(port):
                assert process.poll() is None, (folder / "catalog.log").read_text()[-3000:]
                assert time.monotonic() < end, "the catalog does not listen"
                time.sleep(0.1)
            yield port
        finally:
            process.kill()
            process.wait()


class LossyWire:
    """Passes requests on to a catalog, and loses some of those that change a table."""

    def __init__(self, target: int) -> None:
        self.losses: list[str] = []
        """What happens to the next changes: the ``request`` or the ``answer`` is lost, or the answer is that
        of a ``gateway``: 504."""
        wire = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._pass_on("")

            def do_HEAD(self) -> None:
                self._pass_on("")

            def do_POST(self) -> None:
                is_change = "/tables/" in self.path and not self.path.endswith("/metrics")
                self._pass_on(wire.losses.pop(0) if is_change and wire.losses else "")

            def _pass_on(self, loss: str) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                if loss == "request":
                    self.close_connection = True
                    return
                connection = http.client.HTTPConnection("127.0.0.1", target)
                headers = {name: self.headers[name] for name in ("Content-Type",) if name in self.headers}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                if loss == "answer":
                    self.close_connection = True
                    return
                self.send_response(504 if loss == "gateway" else answer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are of no interest."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
