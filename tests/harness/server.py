"""Magnetar standalone as a process of its own, for tests that talk to it from outside."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from http.client import HTTPConnection
from pathlib import Path

import pytest
from ports import held_after_end

READY_SECONDS = 120.0
STOP_SECONDS = 20.0

_SERVING = re.compile(r"is serving (.+) \((?:data in|brokers of) ")
_URL = re.compile(r"([a-z+]+)://[^\s,]+:(\d+)")

MINIATURE = {
    "managedLedgerMaxEntriesPerLedger": 7,
    "magnetarMinLedgerRolloverSeconds": 0,
    "managedLedgerCursorMaxEntriesPerLedger": 5,
    "magnetarSegmentSizeBytes": 65536,
    "gcWaitTime": 1000,
    "minorCompactionInterval": 1,
    "majorCompactionInterval": 1,
    "magnetarCacheSizeBytes": 16384,
    "magnetarReadMaxEntries": 3,
    "managedLedgerMaxUnackedRangesToPersist": 2,
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": 2,
}
"""Rollover, cache misses, trimming, recycling and compaction happen all the time."""

VARIANTS: dict[str, dict[str, int | str]] = {"default": {}, "miniature": MINIATURE}


class Server:
    """``magnetar standalone`` as a process; keeps its ports and its data from start to start."""

    def __init__(self, folder: Path, settings: dict[str, int | str]) -> None:
        self.folder = folder
        self.urls: dict[str, str] = {}
        """By scheme."""
        self._ports = (0, 0)
        self._held: list[socket.socket] = []
        """While it does not run: its ports, which no other process may take before it starts again."""
        self._config = folder / "standalone.conf"
        self.configure(settings)
        self._process: subprocess.Popen[str] | None = None
        self.program = ["-m", "magnetar"]
        """What Python runs, before the command."""
        self.source: Path | None = None
        """The folder with the package that Python runs; None: the one of the tests."""
        self.working_folder: Path | None = None
        """None: that of the tests."""

    @property
    def url(self) -> str:
        """Of the binary protocol; empty before it serves."""
        return self.urls.get("pulsar", "")

    @property
    def http_url(self) -> str:
        return self.urls.get("http", "")

    @property
    def log(self) -> str:
        """All that every process of this server wrote to standard error."""
        return (self.folder / "log").read_text(errors="replace")

    def command(self) -> list[str]:
        """What is run, with options of its own."""
        return ["standalone", "--data-dir", str(self.folder / "data")]

    def start(self) -> None:
        """Starts and waits until it serves."""
        command = [sys.executable, *self.program, *self.command(), "--config", str(self._config)]
        command += self._port_options(*self._ports)
        environment = None if self.source is None else {**os.environ, "PYTHONPATH": str(self.source)}
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                cwd=self.working_folder,
            )
        self._process = process
        watchdog = threading.Timer(READY_SECONDS, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            match = next((found for line in process.stdout if (found := _SERVING.search(line))), None)
        finally:
            watchdog.cancel()
        if match is None:
            process.wait()
            pytest.fail(f"the server did not start (exit code {process.returncode}):\n{self.log[-3000:]}")
        found = {url[1]: url for url in _URL.finditer(match[1])}
        self.urls = {scheme: url[0] for scheme, url in found.items()}
        self._ports = self._ports_of({scheme: int(url[2]) for scheme, url in found.items()})
        self._release()

    def _port_options(self, binary: int, http: int) -> list[str]:
        return ["--binary-port", str(binary), "--http-port", str(http)]

    def _ports_of(self, ports: dict[str, int]) -> tuple[int, int]:
        """Of the binary protocol and of HTTP.

        :param ports: by scheme
        """
        return ports["pulsar"], ports["http"]

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Asks it to stop, and expects that it does so cleanly."""
        code = self._end(signal.SIGTERM)
        assert code == 0, f"exit code {code} after SIGTERM:\n{self.log[-3000:]}"

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool) -> None:
        """Ends it, cleanly or with SIGKILL, and starts it again on the same ports."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def close(self) -> None:
        """Ends whatever still runs."""
        if self._process is not None:
            self.kill()
        self._release()

    def _release(self) -> None:
        """Gives up the ports that are held; the server itself may listen on them."""
        while self._held:
            self._held.pop().close()

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        """One HTTP request; status and body."""
        connection = HTTPConnection("127.0.0.1", self._ports[1], timeout=READY_SECONDS)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def head_of(self, method: str, path: str) -> tuple[int, dict[str, str]]:
        """One HTTP request without a body; status and headers, by name in lower case."""
        connection = HTTPConnection("127.0.0.1", self._ports[1], timeout=READY_SECONDS)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()

    def configure(self, settings: dict[str, int | str]) -> None:
        """Writes the configuration file; it counts from the next start on."""
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def take_ports(self, binary: int, http: int) -> None:
        """Before the first start, where somebody has to know them."""
        self._ports = (binary, http)

    @property
    def port(self) -> int:
        """Of the binary protocol."""
        return self._ports[0]

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None, "the server does not run"
        process.send_signal(number)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"the server did not end within {STOP_SECONDS} s:\n{self.log[-3000:]}")
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        self._held += [held_after_end(port) for port in self._ports if port]
        return code
