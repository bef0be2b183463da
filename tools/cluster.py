"""Runs a cluster on this machine: ZooKeeper, bookies, brokers and a proxy, each a process on 127.0.0.1.

``python tools/cluster.py up FOLDER`` starts the cluster with its data in FOLDER, waits until all its
processes serve, and prints their addresses. ``down FOLDER`` stops the cluster and removes the folder.
ZooKeeper and bookies are Apache's, from Maven Central.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "harness"))

from bookkeeper_servers import CLUSTER, BookKeeperServers  # noqa: E402
from java_servers import JavaServer  # noqa: E402
from ports import free_port  # noqa: E402

READY_SECONDS = 180.0
STOP_SECONDS = 30.0
_SESSION_MS = 8000
"""The longest time for which topics of a lost broker are not served."""
_NOTE = "cluster.json"
_MARK = "Magnetar proxy is serving"


class Trouble(Exception):
    """The cluster cannot be started or stopped; the text says why."""


class Running:
    """The processes of a cluster, recorded in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._note = folder / _NOTE
        self._known: list[dict[str, object]] = (
            json.loads(self._note.read_text()) if self._note.exists() else []
        )

    def start(self, name: str, command: Sequence[str], folder: Path) -> None:
        """Starts a process that outlives this one; its output goes to ``out`` in its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "out").open("ab") as out:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self._known.append(
            {"name": name, "pid": process.pid, "born": born(process.pid), "out": str(folder / "out")}
        )
        self._note.write_text(json.dumps(self._known, indent=1))

    @property
    def alive(self) -> list[dict[str, object]]:
        return [each for each in self._known if each["born"] and born(int(str(each["pid"]))) == each["born"]]

    def check(self) -> None:
        """:raises Trouble: a process has ended"""
        gone = [each for each in self._known if each not in self.alive]
        if gone:
            said = Path(str(gone[0]["out"])).read_text(errors="replace")[-2000:]
            raise Trouble(f"{gone[0]['name']} has ended:\n{said}")

    def end(self) -> None:
        """Stops all processes, the last one first."""
        for each in reversed(self._known):
            pid = int(str(each["pid"]))
            for number in (signal.SIGTERM, signal.SIGKILL):
                if each in self.alive:
                    os.kill(pid, number)
                    wait(lambda: each not in self.alive, STOP_SECONDS)  # noqa: B023
        self._known = []
        self._note.unlink(missing_ok=True)


def born(pid: int) -> str:
    """Returns the start time of a process, in the kernel's ticks; empty: it does not exist, or has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def wait(done: Callable[[], bool], seconds: float) -> bool:
    """Waits; returns whether ``done`` became true in time."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        with suppress(ChildProcessError):
            # Collects children of this process.
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.1)
    return True


def is_healthy(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/admin/v2/brokers/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def properties(path: Path, settings: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def up(folder: Path, bookies: int, brokers: int, binary_port: int, http_port: int) -> None:
    running = Running(folder)
    if running.alive:
        raise Trouble(f"a cluster runs below {folder}; make cluster-down ends it")
    if folder.exists() and any(folder.iterdir()):
        raise Trouble(f"{folder} is not empty, and holds no cluster that runs")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        start(running, folder, bookies, brokers, binary_port, http_port)
    except BaseException:
        running.end()
        raise


def start(
    running: Running, folder: Path, bookies: int, brokers: int, binary_port: int, http_port: int
) -> None:
    servers = BookKeeperServers(folder, bookies)
    launch(running, [servers.zookeeper])
    servers.initialize()
    launch(running, servers.bookies)
    copies = min(bookies, 3)
    ports = [(free_port(), free_port()) for _ in range(brokers)]
    for number, (binary, http) in enumerate(ports, start=1):
        config = properties(
            folder / f"broker{number}" / "broker.conf",
            {
                "metadataStoreUrl": servers.metadata_store,
                "clusterName": CLUSTER,
                "metadataStoreSessionTimeoutMillis": _SESSION_MS,
                "brokerServicePort": binary,
                "webServicePort": http,
                "managedLedgerDefaultEnsembleSize": copies,
                "managedLedgerDefaultWriteQuorum": copies,
                "managedLedgerDefaultAckQuorum": max(copies - 1, 1),
            },
        )
        running.start(f"broker {number}", magnetar("broker", config), config.parent)
    for _, http in ports:
        wait_for(running, lambda port=http: is_healthy(port), "brokers")  # type: ignore[misc]
    config = properties(
        folder / "proxy" / "proxy.conf",
        {
            "metadataStoreUrl": servers.metadata_store,
            "clusterName": CLUSTER,
            "servicePort": binary_port,
            "webServicePort": http_port,
            "brokerProxyAllowedIPAddresses": "127.0.0.1",
            "brokerProxyAllowedTargetPorts": ",".join(str(binary) for binary, _ in ports),
            "checkActiveBrokers": "true",
        },
    )
    running.start("the proxy", magnetar("proxy", config), config.parent)
    said = config.parent / "out"
    wait_for(running, lambda: _MARK in said.read_text(errors="replace"), "the proxy")
    line = next(line for line in said.read_text(errors="replace").splitlines() if line.startswith(_MARK))
    binary_url, http_url = line.removeprefix(_MARK).partition(" (")[0].strip().split(" and ")
    wait_for(running, lambda: is_healthy(int(http_url.rpartition(":")[2])), "the cluster")
    sys.stdout.write(
        f"through the proxy: {binary_url} and {http_url}\n"
        + "".join(
            f"broker {number}: pulsar://127.0.0.1:{binary} and http://127.0.0.1:{http}\n"
            for number, (binary, http) in enumerate(ports, start=1)
        )
        + f"ZooKeeper: {servers.metadata_store}\n"
        + f"everything is below {folder}; make cluster-down ends it and removes that\n"
    )


def launch(running: Running, servers: Sequence[JavaServer]) -> None:
    for server in servers:
        running.start(server.name, server.command(), server.folder)
    for server in servers:
        wait_for(running, server.ready, server.name)


def wait_for(running: Running, ready: Callable[[], bool], what: str) -> None:
    """:raises Trouble: it is not ready in time, or a process has ended"""

    def looked() -> bool:
        running.check()
        return ready()

    if not wait(looked, READY_SECONDS):
        raise Trouble(f"{what} does not answer within {READY_SECONDS:g} s")


def magnetar(command: str, config: Path) -> list[str]:
    return [sys.executable, "-m", "magnetar", command, "--config", str(config)]


def down(folder: Path) -> None:
    running = Running(folder)
    if not (folder / _NOTE).exists():
        raise Trouble(f"there is no cluster below {folder}")
    running.end()
    shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bookies", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--binary-port", type=int, default=6650, help="of the proxy (6650); 0: a free one")
    parser.add_argument("--http-port", type=int, default=8080, help="of the proxy (8080); 0: a free one")
    parsed = parser.parse_args()
    folder = parsed.folder.resolve()
    try:
        if parsed.action == "up":
            up(folder, parsed.bookies, parsed.brokers, parsed.binary_port, parsed.http_port)
        else:
            down(folder)
    except (Trouble, AssertionError) as error:
        sys.stderr.write(f"cluster: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
