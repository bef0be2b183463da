"""``magnetar proxy`` as a process of its own, before brokers of a test."""

from __future__ import annotations

from pathlib import Path

from server import Server


class ProxyProcess(Server):
    """Keeps its ports from start to start."""

    def __init__(self, folder: Path, **settings: int | str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, {"brokerProxyAllowedTargetPorts": "*", **settings})

    def command(self) -> list[str]:
        return ["proxy"]


class DiscoveryProcess(ProxyProcess):
    """``magnetar discovery``."""

    def command(self) -> list[str]:
        return ["discovery"]
