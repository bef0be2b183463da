"""Measures what publishing to other topics costs while the store of offloaded ledgers is slow, or hangs.

``python -m bench.slow_store`` publishes on a fixed schedule while four readers of an offloaded topic wait for
their store, which is moto's S3 server behind a proxy that holds requests back, and prints figures as JSON.
``docs/measurements/tiered-storage.md`` has results.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar

from bench.conditions import conditions
from bench.generators import Void
from bench.process import end
from bench.servers import Magnetar
from bench.tiered_storage import TOPIC, client_of, fill, move, object_store, settings_of

_READERS = 4
_LOADED_SECONDS = 4.0
_HANGS = 3600.0
"""Seconds that a request is held back by a store that hangs: longer than the measurement."""
_CASES = {"undisturbed": 0.0, "5 s for each request": 5.0, "no answer": _HANGS}


class Delay:
    """A proxy for one address, which passes each request on after a time."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._target = (address.hostname or "", address.port or 80)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.seconds = 0.0
        self.held_back = 0
        """The number of requests, or parts of large ones, so far."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            store = socket.create_connection(self._target)
            for source, sink, slow in ((client, store, True), (store, client, False)):
                threading.Thread(target=self._pass_on, args=(source, sink, slow), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, slow: bool) -> None:
        try:
            while data := source.recv(1 << 20):
                if slow and self.seconds:
                    self.held_back += 1
                    time.sleep(self.seconds)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One of the two has ended the connection; so does the other.
            source.close()
            sink.close()


@contextmanager
def readers(server: Magnetar, start: pulsar.MessageId) -> Iterator[None]:
    """Reads the offloaded topic from a position on."""
    client = client_of(server)
    found: list[pulsar.Reader] = []
    threads = []
    stopped = threading.Event()

    def read(reader: pulsar.Reader) -> None:
        while not stopped.is_set():
            try:
                reader.read_next(500)
            except pulsar.Timeout:
                continue

    for _ in range(_READERS):
        found.append(client.create_reader(TOPIC, start))
        threads.append(threading.Thread(target=read, args=(found[-1],)))
        threads[-1].start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
        client.close()


def latencies(server: Magnetar, rate: int, seconds: float, out: Path) -> dict[str, float]:
    """Returns the latencies of publishing to another topic, in milliseconds."""
    arguments = (server.port, "persistent://public/default/other", rate, 1000, out)
    command = [sys.executable, "-m", "bench.paced_publisher", *map(str, arguments)]
    publisher = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        time.sleep(seconds)
        publisher.communicate(timeout=120)
    finally:
        end(publisher)
    values = array("d", out.read_bytes())
    took = sorted(values[len(values) // 2 :])
    return {f"p{part}, ms": round(took[int(len(took) * part / 100)] * 1e3, 2) for part in (50, 99)}


def measure(server: Magnetar, proxy: Delay, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """:raises Void: the store was not slow for the readers"""
    fill(server, options.messages, 1000)
    move(server)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in _CASES}
    for _ in range(options.rounds):
        for name, seconds in _CASES.items():
            proxy.seconds, before = seconds, proxy.held_back
            # Neither entries nor pieces are left in memory.
            server.stop()
            server.start()
            # Undisturbed, as many readers wait at the end, and need no store.
            start = pulsar.MessageId.earliest if seconds else pulsar.MessageId.latest
            with readers(server, start):
                # The driver was loaded by then, which takes processor time once.
                time.sleep(_LOADED_SECONDS)
                found[name].append(latencies(server, options.rate, options.seconds, folder / "out"))
            if seconds and proxy.held_back == before:
                raise Void("nothing was read from the store")
    return {"latency of publishing to another topic": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=1000, help="messages per second to the other topic")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    try:
        with object_store() as url, tempfile.TemporaryDirectory(prefix="slow-store-") as folder:
            proxy = Delay(url)
            server = Magnetar(
                "magnetar",
                "Magnetar",
                "magnetar",
                Path(folder) / "data",
                settings=settings_of(proxy.url, 10_000),
            )
            server.start()
            try:
                found = conditions() | measure(server, proxy, options, Path(folder))
            finally:
                server.stop()
    except Void as void:
        sys.stderr.write(f"void: {void}\n")
        return 1
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
