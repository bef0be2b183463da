"""Apache Pulsar standalone, with ZooKeeper and one bookie in the same process, for recording what it does."""

from __future__ import annotations

from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from java_servers import JavaServer, java
from ports import free_port

_SECONDS = 60.0


class ApacheStandalone(JavaServer):
    """Keeps its ports and its data from start to start; settings may differ."""

    name = "Apache Pulsar standalone"

    def __init__(self, folder: Path, advertised: int, **settings: object) -> None:
        """:param advertised: the port in the address that the broker tells its clients, and uses itself"""
        super().__init__(folder)
        self.http_port, self.bookie_port, self.zookeeper_port = free_port(), free_port(), free_port()
        self.settings = {
            "clusterName": "standalone",
            "brokerServicePort": self.port,
            "webServicePort": self.http_port,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "",
            "advertisedListeners": f"internal:pulsar://127.0.0.1:{advertised}",
            "internalListenerName": "internal",
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
            "loadBalancerEnabled": "false",
            "managedLedgerDefaultEnsembleSize": 1,
            "managedLedgerDefaultWriteQuorum": 1,
            "managedLedgerDefaultAckQuorum": 1,
            "brokerDeleteInactiveTopicsEnabled": "false",
            "transactionCoordinatorEnabled": "true",
            "webSocketServiceEnabled": "false",
            "allowLoopback": "true",
            "listeningInterface": "lo",
            "bookiePort": self.bookie_port,
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "nettyMaxFrameSizeBytes": 5253120,
            "journalSyncData": "false",
            "diskUsageThreshold": "0.99",
            "diskUsageWarnThreshold": "0.99",
            **settings,
        }

    def command(self) -> Sequence[str]:
        config = self.folder / "standalone.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return [
            "env",
            "PULSAR_STANDALONE_USE_ZOOKEEPER=1",
            *java(self.folder, heap_megabytes=768),
            "org.apache.pulsar.PulsarStandaloneStarter",
            "--config",
            str(config),
            "-nfw",
            "-nss",
            "--zookeeper-dir",
            str(self.folder / "zookeeper"),
            "--zookeeper-port",
            str(self.zookeeper_port),
            "--bookkeeper-dir",
            str(self.folder / "bookkeeper"),
            "--bookkeeper-port",
            str(self.bookie_port),
        ]

    def ready(self) -> bool:
        try:
            status, answer = self.ask("GET", "/admin/v2/namespaces/public")
        except (OSError, HTTPException):
            return False
        return status == 200 and b"public/default" in answer

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of the answer to an HTTP request; no redirection is followed."""
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=_SECONDS)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
