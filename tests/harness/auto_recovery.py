"""Apache BookKeeper's AutoRecovery as a process of its own: it copies what lost bookies had to others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bookkeeper_servers import BookKeeperServers
from java_servers import JavaServer, java


class AutoRecovery(JavaServer):
    """An auditor and a replicator."""

    name = "AutoRecovery"

    def __init__(self, folder: Path, servers: BookKeeperServers) -> None:
        super().__init__(folder)
        self._settings = {
            "bookiePort": self.port,
            "allowLoopback": "true",
            "advertisedAddress": "127.0.0.1",
            "metadataServiceUri": f"metadata-store:{servers.metadata_store}",
            "zkTimeout": 20_000,
            "nettyMaxFrameSizeBytes": 5253120,
            "lostBookieRecoveryDelay": 0,
            "openLedgerRereplicationGracePeriod": 500,
            "underreplicatedLedgerRecoveryGracePeriod": 60,
            "rwRereplicateBackoffMs": 500,
            "httpServerEnabled": "false",
        }

    def command(self) -> Sequence[str]:
        config = self.folder / "recovery.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
        return [*java(self.folder), main, "--conf", str(config)]

    def ready(self) -> bool:
        """Whether it works is seen of the ledgers."""
        return self.runs
