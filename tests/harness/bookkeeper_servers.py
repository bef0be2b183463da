"""Apache ZooKeeper and Apache bookies as processes of their own, for tests that need the real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import Request, urlopen

from java_servers import JavaServer, java, listens
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from ports import free_port
from zookeeper_server import ZooKeeperServer

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, decoded, ledger_path

CLUSTER = "lab"
"""The name of the Pulsar cluster that the metadata is set up for."""
_REGISTRATIONS = "/ledgers/available"
_SESSION_MS = 20000
"""The most that ZooKeeper grants. A bookie that has lost its session may never register again."""


@contextmanager
def connected(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A session of another client library."""
    client = KazooClient(zookeeper.address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def setup_options(local: str, configuration: str) -> list[str]:
    """Of ``initialize-cluster-metadata``, Apache's own and ours."""
    stores = ["--metadata-store", local, "--configuration-metadata-store", configuration]
    addresses = [
        "--web-service-url",
        "http://127.0.0.1:8080",
        "--broker-service-url",
        "pulsar://127.0.0.1:6650",
    ]
    return ["--cluster", CLUSTER, *stores, *addresses]


def _delete_ephemeral_nodes(client: KazooClient, path: str) -> None:
    """Those at and below a path."""
    found = client.exists(path)
    if found is None:
        return
    for child in client.get_children(path):
        _delete_ephemeral_nodes(client, f"{path}/{child}")
    if found.ephemeralOwner:
        with suppress(NoNodeError):
            client.delete(path)


def _finished(command: Sequence[str], folder: Path) -> str:
    """What a command printed that did its work."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


class BookieServer(JavaServer):
    """A bookie; keeps its port, and with it its id, and its folders from start to start."""

    name = "bookie"

    def __init__(
        self,
        folder: Path,
        zookeeper: ZooKeeperServer,
        settings: Mapping[str, object],
        logins: Path | None = None,
        path: str = "",
    ) -> None:
        """:param logins: a JAAS file; None: there is none

        :param path: of ZooKeeper's, below which its metadata is
        """
        super().__init__(folder)
        self._logins = logins
        self._registrations = f"{path}{_REGISTRATIONS}"
        self._http_port = 0
        """0: it serves no HTTP."""
        self._zookeeper = zookeeper
        self._settings = {
            "bookiePort": self.port,
            "allowLoopback": "true",
            "listeningInterface": "lo",
            "advertisedAddress": "127.0.0.1",
            "allowMultipleDirsUnderSameDiskPartition": "true",
            "journalDirectories": folder / "journal",
            "ledgerDirectories": folder / "ledgers",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "metadataServiceUri": f"metadata-store:zk:{zookeeper.address}{path}",
            "zkTimeout": _SESSION_MS,
            "nettyMaxFrameSizeBytes": 5253120,
            "journalMaxGroupWaitMSec": 1,
            "journalPreAllocSizeMB": 1,
            "dbStorage_writeCacheMaxSizeMb": 16,
            "dbStorage_readAheadCacheMaxSizeMb": 16,
            "dbStorage_rocksDB_blockCacheSize": 16777216,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.99,
            "diskUsageLwmThreshold": 0.98,
            "httpServerEnabled": "false",
            "httpServerHost": "127.0.0.1",
            **settings,
        }

    @property
    def config(self) -> Path:
        return self.folder / "bookie.conf"

    def set(self, **settings: object) -> None:
        """Settings of its next start."""
        self._settings.update(settings)

    def command(self) -> Sequence[str]:
        self.config.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        main = "org.apache.bookkeeper.server.Main"
        options = [] if self._logins is None else [f"-Djava.security.auth.login.config={self._logins}"]
        return [*java(self.folder, heap_megabytes=192), *options, main, "--conf", str(self.config)]

    def launch(self) -> None:
        if self._registered():
            # A bookie whose last life is still registered would give up.
            with connected(self._zookeeper) as client:
                for node in (self._node, self._read_only_node):
                    with suppress(NoNodeError):
                        client.delete(node)
        super().launch()

    def ready(self) -> bool:
        administered = not self._http_port or listens(self._http_port)
        return super().ready() and self._registered() and administered

    @property
    def _node(self) -> str:
        return f"{self._registrations}/{self.address}"

    @property
    def _read_only_node(self) -> str:
        return f"{self._registrations}/readonly/{self.address}"

    @property
    def read_only(self) -> bool:
        """Whether it is registered as one that takes nothing new."""
        return self._zookeeper.owner(self._read_only_node) is not None

    def administer(self) -> None:
        """Its next start serves HTTP, too, for :meth:`turn`."""
        self._http_port = free_port()
        server = "org.apache.bookkeeper.http.vertx.VertxHttpServer"
        self.set(httpServerEnabled="true", httpServerPort=self._http_port, httpServerClass=server)

    def turn(self, *, read_only: bool) -> None:
        """Has it take nothing new, or everything again, while it runs."""
        request = Request(
            f"http://127.0.0.1:{self._http_port}/api/v1/bookie/state/readonly",
            json.dumps({"readOnly": read_only}).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        with urlopen(request) as answer:
            assert json.loads(answer.read())["readOnly"] == read_only

    def _registered(self) -> bool:
        return self._zookeeper.owner(self._node) is not None or self.read_only


class BookKeeperServers:
    """One ZooKeeper, with the metadata of a Pulsar cluster, and bookies on it.

    ``settings`` are lines of every bookie's configuration.
    """

    def __init__(
        self,
        folder: Path,
        bookies: int = 3,
        tick_ms: int = 1000,
        logins: Path | None = None,
        **settings: object,
    ) -> None:
        """:param logins: the bookies' JAAS file; None: there is none"""
        self.folder = folder
        self._logins = logins
        self.zookeeper = ZooKeeperServer(folder / "zookeeper", tick_ms)
        self._settings = settings
        self.bookies = [self.another_bookie(folder / f"bookie{number}") for number in range(1, bookies + 1)]

    @property
    def metadata_store(self) -> str:
        """The value of ``metadataStoreUrl``."""
        return f"zk:{self.zookeeper.address}"

    def start(self) -> None:
        self.zookeeper.start()
        self.initialize()
        for bookie in self.bookies:
            bookie.launch()
        for bookie in self.bookies:
            bookie.wait()

    def another_bookie(self, folder: Path, path: str = "") -> BookieServer:
        """Not started, and not among :attr:`bookies`.

        :param path: below which of ZooKeeper's nodes it finds its metadata; empty: with the others
        """
        return BookieServer(folder, self.zookeeper, self._settings, self._logins, path)

    def forget(self, bookie: BookieServer) -> None:
        """Of one that is lost for good, what the metadata says besides what ledgers it has."""
        with connected(self.zookeeper) as client:
            for path in (f"{_REGISTRATIONS}/{bookie.address}", f"/ledgers/cookies/{bookie.address}"):
                # The session of a bookie may expire at any moment, and its registration with it.
                with suppress(NoNodeError):
                    client.delete(path)

    def records(self, ledger_ids: Iterable[int]) -> dict[int, LedgerRecord]:
        """The metadata of ledgers, of those that are there."""
        found = {}
        with connected(self.zookeeper) as client:
            for ledger_id in ledger_ids:
                path = f"/ledgers{ledger_path(ledger_id)}"
                with suppress(NoNodeError):
                    found[ledger_id] = decoded(client.get(path)[0], path)
        return found

    def remove_registrations(self) -> None:
        """Removes registrations, leaders and owners, which killed brokers leave until their sessions end."""
        with connected(self.zookeeper) as client:
            for root in ("/loadbalance", "/namespace"):
                _delete_ephemeral_nodes(client, root)

    def initialize(self) -> None:
        """Sets the metadata of the cluster up."""
        self.initialize_at(self.metadata_store)

    def initialize_at(self, store: str, *options: str) -> None:
        """Likewise, in another place of ZooKeeper's."""
        command = [sys.executable, "-m", "magnetar.cli.magnetar", "initialize-cluster-metadata"]
        _finished([*command, *setup_options(store, store), *options], self.folder)

    def run(self, main: str, *arguments: str) -> str:
        """Runs a class of the servers' jars to its end, and tells what it printed."""
        return _finished([*java(self.folder), main, *arguments], self.folder)

    def shell(self, *arguments: str) -> str:
        """BookKeeper's own shell: ``listledgers``, ``ledgermetadata -ledgerid 3`` and so on."""
        config = str(self.bookies[0].config)
        return self.run("org.apache.bookkeeper.bookie.BookieShell", "-conf", config, *arguments)

    def close(self) -> None:
        for server in (*self.bookies, self.zookeeper):
            server.close()
