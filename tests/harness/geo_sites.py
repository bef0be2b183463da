"""Standalone clusters that reach each other through wires that a test can cut."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ports import free_port
from replicated_sites import Site
from server import Server
from tcp_proxy import TcpProxy

LISTENER = "geo"


class WiredServer(Server):
    """Its lookups send the replicators of other clusters through :attr:`wire`; its own clients connect to it
    directly."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._plain, behind = free_port(), free_port()
        self.wire = TcpProxy(behind)
        settings: dict[str, int | str] = {
            "clusterName": name,
            "bindAddresses": f"{LISTENER}:pulsar://127.0.0.1:{behind}",
            "advertisedListeners": f"plain:{self.url},{LISTENER}:{self._wired_url}",
            "internalListenerName": "plain",
            # Chunks are small, ledgers are rolled over, and positions behind the last snapshot are few.
            "maxMessageSize": 20_000,
            "managedLedgerMaxEntriesPerLedger": 200,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "brokerDeduplicationEntriesInterval": 50,
        }
        super().__init__(folder, settings)
        self._ports = (self._plain, 0)

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self._plain}"

    @property
    def _wired_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.wire.port}"

    def _ports_of(self, ports: dict[str, int]) -> tuple[int, int]:
        return self._plain, ports["http"]

    @property
    def record(self) -> dict[str, str]:
        """What the other clusters know of this one."""
        return {
            "serviceUrl": self.http_url,
            "brokerServiceUrl": self._wired_url,
            "listenerName": LISTENER,
        }

    def close(self) -> None:
        super().close()
        self.wire.close()


Sites = Mapping[str, Site[WiredServer]]


def know_each_other(sites: Sites, tenant: str) -> None:
    for site in sites.values():
        for other in sites.values():
            if other is not site:
                site.ask("PUT", f"/clusters/{other.name}", other.server.record)
        site.ask("PUT", f"/tenants/{tenant}", {"allowedClusters": list(sites)})
