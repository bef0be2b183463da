"""Apache Pulsar's broker as a process of its own, on the servers of a test."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from bookkeeper_servers import CLUSTER, BookKeeperServers
from java_servers import JavaServer, java
from ports import free_port


class ApacheBroker(JavaServer):
    """Keeps its ports from start to start."""

    name = "Apache Pulsar"

    def __init__(self, folder: Path, servers: BookKeeperServers, **settings: object) -> None:
        super().__init__(folder)
        self.http_port = free_port()
        self._settings = {
            "metadataStoreUrl": servers.metadata_store,
            "configurationMetadataStoreUrl": servers.metadata_store,
            "clusterName": CLUSTER,
            "brokerServicePort": self.port,
            "webServicePort": self.http_port,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "metadataStoreSessionTimeoutMillis": 5000,
            "managedLedgerDefaultEnsembleSize": 3,
            "managedLedgerDefaultWriteQuorum": 3,
            "managedLedgerDefaultAckQuorum": 2,
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
            "brokerDeleteInactiveTopicsEnabled": "false",
            "transactionCoordinatorEnabled": "false",
            **settings,
        }

    @property
    def url(self) -> str:
        return f"pulsar://{self.address}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def command(self) -> Sequence[str]:
        config = self.folder / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        return [
            *java(self.folder, heap_megabytes=384),
            "org.apache.pulsar.PulsarBrokerStarter",
            "--broker-conf",
            str(config),
        ]

    def ready(self) -> bool:
        try:
            return self.ask("GET", "/admin/v2/brokers/health") == (200, b"ok")
        except (OSError, HTTPException):
            return False

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        """One HTTP request; status and body."""
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def deadlocked(self) -> bool:
        """Whether threads of the process wait for each other for ever, as the JVM's own tool finds."""
        assert self._process is not None, f"{self.name} does not run"
        command = ["jstack", str(self._process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return "Java-level deadlock" in done.stdout
