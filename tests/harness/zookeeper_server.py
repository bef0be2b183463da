"""Apache ZooKeeper as a process of its own, for tests that need the real one."""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from magnetar.io.real import real_io
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

_SERVERS = Path(__file__).parents[1] / "cluster" / "servers"
_READY_SECONDS = 60.0
TIMEOUT_MS = 5000
"""Of the sessions of :func:`opened`."""
TICK_MS = 500
"""Sessions last 2 to 20 ticks."""


def class_path() -> str:
    """The jars of the servers, fetched when they are missing."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("needs Maven and a JDK")
    library, pom = _SERVERS / "target" / "lib", _SERVERS / "pom.xml"
    with (_SERVERS / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists() or library.stat().st_mtime < pom.stat().st_mtime:
            shutil.rmtree(library, ignore_errors=True)
            command = ["mvn", "-B", "-q", "-ntp", "package"]
            done = subprocess.run(command, cwd=_SERVERS, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:]
    return f"{library}/*"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ZooKeeperServer:
    """One server; keeps its port and its data from start to start."""

    def __init__(self, folder: Path, tick_ms: int = TICK_MS) -> None:
        self.port = free_port()
        self._folder = folder
        self._config = folder / "zoo.cfg"
        settings = {
            "tickTime": tick_ms,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        options = ["-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with (self._folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                ["java", *options, "-cp", class_path(), main, str(self._config)], stdout=out, stderr=out
            )
        deadline = time.monotonic() + _READY_SECONDS
        while self.four_letters("ruok") != "imok":
            said = (self._folder / "out").read_text()
            assert self._process.poll() is None, f"ZooKeeper ended: {said[-2000:]}"
            assert time.monotonic() < deadline, f"ZooKeeper does not answer: {said[-2000:]}"
            time.sleep(0.05)

    def four_letters(self, word: str) -> str:
        """What it answers to one of its four-letter words; empty when it does not."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                answer = bytearray()
                while piece := connection.recv(65536):
                    answer += piece
                return answer.decode()
        except OSError:
            return ""

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As if the power went."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        if self._process is not None:
            # It may have been stopped by a signal, and would not end.
            self._process.send_signal(signal.SIGCONT)
        self.kill()


async def opened(address: str) -> ZooKeeperMetadataStore:
    io = real_io(asyncio.get_running_loop(), Path("/"))
    outside = Outside(io.loop, io.clock, io.randomness, io.network)
    return await ZooKeeperMetadataStore.open_store(
        outside, ensemble_address(address), SessionSettings(TIMEOUT_MS), wait_seconds=30
    )
