"""``magnetar proxy`` as a process of its own, before brokers of a test."""

from __future__ import annotations

import signal
from pathlib import Path

from server import Server


class ProxyProcess(Server):
    """Keeps its ports from start to start."""

    def __init__(self, folder: Path, **settings: int | str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, {"brokerProxyAllowedTargetPorts": "*", **settings})

    def command(self) -> list[str]:
        return ["proxy"]

    def stop_reading(self) -> None:
        """As if the machine stood still."""
        self._signal(signal.SIGSTOP)

    def read_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the proxy does not run"
        self._process.send_signal(number)
