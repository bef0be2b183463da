"""Servers of Apache's as processes of their own, for tests that need the real ones."""

from __future__ import annotations

import fcntl
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from ports import free_port
from process_signals import send

SERVERS = Path(__file__).parents[1] / "cluster" / "servers"
ARCHIVE = SERVERS / "target" / "lib" / "classes.jsa"
"""Written by ``class_archive``; it is removed with the jars it belongs to."""
_READY_SECONDS = 240.0
"""Apache Pulsar takes six of them; eighty were seen on a machine that was busy otherwise."""
_PACKAGES = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
)
_PACKAGES += ("java.base/sun.net", "java.management/sun.management", "java.base/jdk.internal.platform")
_PACKAGES += ("jdk.management/com.sun.management.internal",)
_LOG4J = """<Configuration status="WARN">
  <Appenders>
    <Console name="C"><PatternLayout pattern="%d{ISO8601} %-5level %logger{1} - %msg%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="warn"><AppenderRef ref="C"/></Root>
    <Logger name="org.apache.bookkeeper.tools" level="info"/>
    <Logger name="org.apache.bookkeeper.bookie.BookieShell" level="info"/>
  </Loggers>
</Configuration>
"""


def class_path(project: Path = SERVERS) -> str:
    """The jars of the servers, fetched when they are missing.

    :param project: the folder with the list of the jars
    """
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("needs Maven and a JDK")
    library, pom = project / "target" / "lib", project / "pom.xml"
    with (project / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists() or library.stat().st_mtime < pom.stat().st_mtime:
            shutil.rmtree(library, ignore_errors=True)
            command = ["mvn", "-B", "-q", "-ntp", "package"]
            done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:]
    return f"{library}/*"


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def java(folder: Path, heap_megabytes: int = 128) -> list[str]:
    """The beginning of a command line; warnings, and what tools answer, go to standard output."""
    log = folder / "log4j2.xml"
    log.write_text(_LOG4J)
    drivers = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
    command = [
        "java",
        "-Xms32m",
        f"-Xmx{heap_megabytes}m",
        f"-XX:MaxDirectMemorySize={max(heap_megabytes, 128)}m",
    ]
    command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    if ARCHIVE.exists():
        command.append(f"-XX:SharedArchiveFile={ARCHIVE}")
    for package in _PACKAGES:
        command += ["--add-opens", f"{package}=ALL-UNNAMED"]
    command += [
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Djute.maxbuffer=10485760",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dbookkeeper.metadata.bookie.drivers={drivers}BookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={drivers}ClientDriver",
        f"-Dlog4j.configurationFile=file:{log}",
        "-Dlog4j2.is.webapp=false",
        "-Dlog4j.shutdownHookEnabled=false",
    ]
    return [*command, "-cp", class_path()]


class JavaServer:
    """One process; keeps its port and its folder from start to start."""

    name = "server"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it serves."""
        return listens(self.port)

    def start(self) -> None:
        """Starts it and waits until it is ready."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Starts it; :meth:`wait` waits until it is ready."""
        assert not self.runs, f"{self.name} runs"
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(self.command(), cwd=self.folder, stdout=out, stderr=out)

    def wait(self) -> None:
        ready = self.ready_within(_READY_SECONDS)
        assert ready, f"{self.name} {'does not answer' if self.runs else 'ended'}: {self.said()}"

    def ready_within(self, seconds: float) -> bool:
        """Waits until it is ready or has ended, for at most ``seconds``; returns whether it is ready."""
        deadline = time.monotonic() + seconds
        while not (ready := self.ready()) and self.runs and time.monotonic() < deadline:
            time.sleep(0.05)
        return ready

    def said(self) -> str:
        return (self.folder / "out").read_text(errors="replace")[-4000:]

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        send(self._process, number)

    def kill(self) -> None:
        """As if the power went."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, seconds: float = 30) -> None:
        """Lets it end in its own way, within this time."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        if self._process is not None:
            # It may have been stopped by a signal, and would not end.
            self._process.send_signal(signal.SIGCONT)
        self.kill()
