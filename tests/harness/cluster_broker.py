"""``magnetar broker`` as a process of its own, on the servers of a test."""

from __future__ import annotations

import signal
from pathlib import Path

from bookkeeper_servers import CLUSTER, BookKeeperServers
from process_signals import send
from server import Server

SESSION_MS = 5000


class BrokerProcess(Server):
    """Keeps its ports from start to start."""

    def __init__(self, folder: Path, servers: BookKeeperServers, **settings: int | str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        usual: dict[str, int | str] = {
            "metadataStoreUrl": servers.metadata_store,
            "clusterName": CLUSTER,
            "metadataStoreSessionTimeoutMillis": SESSION_MS,
            "managedLedgerDefaultEnsembleSize": 3,
            "managedLedgerDefaultWriteQuorum": 3,
            "managedLedgerDefaultAckQuorum": 2,
        }
        super().__init__(folder, usual | settings)
        self.options: list[str] = []
        """Further ones of the command."""

    def command(self) -> list[str]:
        return ["broker", *self.options]

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        send(self._process, number)

    def ended(self, seconds: float) -> int:
        """Waits until it has ended by itself; its exit code."""
        assert self._process is not None
        return self._process.wait(seconds)
