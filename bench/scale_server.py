"""``magnetar standalone`` as a measured process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

from magnetar.cli.perf.measure import cpu_seconds

_SERVING = re.compile(r"is serving pulsar://\S+:(\d+) and http://\S+:(\d+)")


class ScaleServer:
    """A server that keeps its data over restarts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.http_port = 0

    def start(self) -> float:
        """Starts it; returns the seconds until it serves."""
        command = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(self._folder / "data")]
        command += ["--binary-port", "0", "--http-port", "0", "--log-level", "warning"]
        began = time.perf_counter()
        with (self._folder / "log").open("a") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._process = process
        assert process.stdout is not None
        for line in process.stdout:
            found = _SERVING.search(line)
            if found is not None:
                self.port, self.http_port = int(found[1]), int(found[2])
                return time.perf_counter() - began
        raise RuntimeError(f"the server did not start: see {self._folder / 'log'}")

    def stop(self) -> float:
        """Stops it; returns the seconds until its clean end."""
        began = time.perf_counter()
        self._end(signal.SIGTERM)
        return time.perf_counter() - began

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(300)
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def resident_bytes(self) -> int:
        return self._status("VmRSS") * 1024

    def peak_bytes(self) -> int:
        """Returns the peak of resident memory since the start of the process."""
        return self._status("VmHWM") * 1024

    def _status(self, name: str) -> int:
        assert self._process is not None
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1])

    def cpu_seconds(self) -> float:
        """Returns user and system time since its start."""
        assert self._process is not None
        return cpu_seconds([self._process.pid])

    def get(self, path: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=120)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            if response.status != 200:
                raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
            return body
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        for line in self.get("/metrics").decode().splitlines():
            if line.startswith(name + "{"):
                return float(line.split()[-1])
        return 0.0
