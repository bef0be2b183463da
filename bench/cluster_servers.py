"""Apache ZooKeeper, three Apache bookies, and a broker on them: Magnetar's or Apache Pulsar's."""

from __future__ import annotations

import asyncio
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.process import end, free_port
from bench.servers import Server, ServerFailed, java_command
from magnetar.cli.perf.measure import cpu_seconds, resident_megabytes
from magnetar.io.real import real_io
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

CLUSTER = "bench"
_BOOKIES = 3
_READY_SECONDS = 90.0
_SESSION_MS = 20_000
_BOOKIE_MEMORY = ["-Xms96m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC"]


@dataclass
class BookKeeper:
    """One ZooKeeper and three bookies with synced journals."""

    folder: Path
    jars: Path
    zookeeper_port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def metadata(self) -> str:
        return f"zk:127.0.0.1:{self.zookeeper_port}"

    def start(self) -> None:
        """:raises ServerFailed: one of them does not start"""
        self._start(
            "zookeeper",
            self.zookeeper_port,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            {
                "tickTime": 1000,
                "dataDir": self.folder / "zookeeper" / "data",
                "clientPort": self.zookeeper_port,
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
                "maxClientCnxns": 0,
            },
        )
        command = [sys.executable, "-m", "magnetar", "initialize-cluster-metadata", "--cluster", CLUSTER]
        command += ["--metadata-store", self.metadata, "--configuration-metadata-store", self.metadata]
        addresses = ["--web-service-url", "http://127.0.0.1:8080"]
        addresses += ["--broker-service-url", "pulsar://127.0.0.1:6650"]
        subprocess.run([*command, *addresses], check=True, stdout=subprocess.DEVNULL)
        for number in range(1, _BOOKIES + 1):
            self._bookie(f"bookie{number}")

    def _bookie(self, name: str) -> None:
        port = free_port()
        self._start(
            name,
            port,
            "org.apache.bookkeeper.server.Main",
            {
                "bookiePort": port,
                "allowLoopback": "true",
                "listeningInterface": "lo",
                "advertisedAddress": "127.0.0.1",
                "allowMultipleDirsUnderSameDiskPartition": "true",
                "journalDirectories": self.folder / name / "journal",
                "ledgerDirectories": self.folder / name / "ledgers",
                "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
                "metadataServiceUri": f"metadata-store:{self.metadata}",
                "zkTimeout": 20000,
                "nettyMaxFrameSizeBytes": 5253120,
                "journalMaxGroupWaitMSec": 1,
                "dbStorage_writeCacheMaxSizeMb": 32,
                "dbStorage_readAheadCacheMaxSizeMb": 32,
                "dbStorage_rocksDB_blockCacheSize": 16777216,
                "diskUsageThreshold": 0.99,
                "diskUsageWarnThreshold": 0.99,
                "diskUsageLwmThreshold": 0.98,
                "httpServerEnabled": "false",
            },
        )

    def _start(self, name: str, port: int, main: str, settings: Mapping[str, object]) -> None:
        folder = self.folder / name
        folder.mkdir(parents=True)
        config = folder / "config"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        given = [str(config)] if name == "zookeeper" else ["--conf", str(config)]
        command = [*java_command(self.jars, folder, _BOOKIE_MEMORY, "warn"), main, *given]
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        self.processes[name] = process
        began = time.monotonic()
        while not _listens(port):
            if process.poll() is not None or time.monotonic() - began > _READY_SECONDS:
                raise ServerFailed(f"{name} does not start: see {folder}")
            time.sleep(0.05)

    async def session(self) -> ZooKeeperMetadataStore:
        """Returns a new ZooKeeper session on the running loop."""
        io = real_io(asyncio.get_running_loop(), Path("/"))
        return await ZooKeeperMetadataStore.open_store(
            Outside(io.loop, io.clock, io.randomness, io.network),
            ensemble_address(f"127.0.0.1:{self.zookeeper_port}"),
            SessionSettings(_SESSION_MS),
        )

    def cpu_seconds(self) -> float:
        """Processor time of the bookies."""
        return cpu_seconds([each.pid for name, each in self.processes.items() if name != "zookeeper"])

    def resident_mb(self) -> float:
        """Memory of ZooKeeper and the bookies."""
        return resident_megabytes([each.pid for each in self.processes.values()])

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            end(process)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@dataclass
class ClusterBroker(Server):
    """A broker with its own servers: entries go to three bookies, and two store them before the receipt."""

    jars: Path = Path()
    bookkeeper: BookKeeper | None = None
    further: dict[str, str] = field(default_factory=dict)
    """Settings that override all others."""

    def settings(self) -> dict[str, str]:
        assert self.bookkeeper is not None
        return {
            "metadataStoreUrl": self.bookkeeper.metadata,
            "configurationMetadataStoreUrl": self.bookkeeper.metadata,
            "clusterName": CLUSTER,
            "brokerServicePort": str(self.port),
            "webServicePort": str(self.http_port),
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "managedLedgerDefaultEnsembleSize": "3",
            "managedLedgerDefaultWriteQuorum": "3",
            "managedLedgerDefaultAckQuorum": "2",
            "brokerDeleteInactiveTopicsEnabled": "false",
            **self.further,
        }

    def config(self, settings: Mapping[str, str]) -> str:
        path = self.folder / "broker.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def start(self) -> float:
        """Starts everything; returns the seconds of the broker alone."""
        if self.bookkeeper is None:
            self.bookkeeper = BookKeeper(self.folder / "bookkeeper", self.jars)
            self.bookkeeper.start()
        return super().start()

    def stop_all(self) -> None:
        """Stops the broker and its servers."""
        super().stop()
        if self.bookkeeper is not None:
            self.bookkeeper.stop()

    def healthy(self) -> bool:
        """Whether the health check succeeds."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=60)
        try:
            connection.request("GET", "/admin/v2/brokers/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class ClusterMagnetar(ClusterBroker):
    """``magnetar broker`` of this checkout."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "magnetar", "broker", "--config", self.config(self.settings())]


class ClusterPulsar(ClusterBroker):
    """Apache Pulsar's broker."""

    def command(self) -> list[str]:
        manager = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
        settings = self.settings() | {"loadManagerClassName": manager}
        memory = ["-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m"]
        collector = ["-XX:+UseZGC", "-XX:+PerfDisableSharedMem", "-XX:+AlwaysPreTouch"]
        command = java_command(self.jars, self.folder, [*memory, *collector], "warn")
        return [*command, "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", self.config(settings)]


KINDS: dict[str, tuple[type[ClusterBroker], str]] = {
    "magnetar": (ClusterMagnetar, "Magnetar"),
    "pulsar": (ClusterPulsar, "Apache Pulsar"),
}


@contextmanager
def several(
    name: str,
    folder: Path,
    jars: Path,
    count: int,
    settings: Mapping[str, str],
    started: int | None = None,
) -> Iterator[list[ClusterBroker]]:
    """Starts brokers of one kind, on one ZooKeeper and three bookies; kills them at the end.

    :param started: number of brokers to start; None: all

    :raises ServerFailed: a server does not start
    """
    kind, title = KINDS[name]
    bookkeeper = BookKeeper(folder / "bookkeeper", jars)
    brokers = [
        kind(
            name,
            title,
            name,
            folder / f"broker{number}",
            jars=jars,
            bookkeeper=bookkeeper,
            further=dict(settings),
        )
        for number in range(count)
    ]
    try:
        bookkeeper.start()
        for broker in brokers[:started]:
            broker.start()
        yield brokers
    finally:
        for broker in brokers:
            if broker.process is not None:
                broker.process.kill()
                broker.process.wait()
        bookkeeper.stop()


def url_of(brokers: list[ClusterBroker]) -> str:
    """Returns the service URL of all brokers."""
    return "pulsar://" + ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
