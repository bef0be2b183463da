"""Apache ZooKeeper as a process of its own, for tests that need the real one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from java_servers import JavaServer, java

from magnetar.io.real import real_io
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

TIMEOUT_MS = 5000
"""Of the sessions of :func:`opened`."""
TICK_MS = 500
"""Sessions last 2 to 20 ticks."""


class ZooKeeperServer(JavaServer):
    """One server; keeps its port and its data from start to start."""

    name = "ZooKeeper"

    def __init__(self, folder: Path, tick_ms: int = TICK_MS) -> None:
        super().__init__(folder)
        self._config = folder / "zoo.cfg"
        self._settings: dict[str, object] = {
            "tickTime": tick_ms,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
        }

    def set(self, **settings: object) -> None:
        """Settings of its next start."""
        self._settings.update(settings)

    def command(self) -> Sequence[str]:
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        return [*java(self.folder), "org.apache.zookeeper.server.ZooKeeperServerMain", str(self._config)]

    def ready(self) -> bool:
        return self.four_letters("ruok") == "imok"

    def four_letters(self, word: str) -> str:
        """What it answers to one of its four-letter words; empty when it does not."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                answer = bytearray()
                while piece := connection.recv(65536):
                    answer += piece
                return answer.decode()
        except OSError:
            return ""

    def owner(self, path: str) -> str | None:
        """The session that owns an ephemeral node."""
        session = None
        for line in self.four_letters("dump").splitlines():
            if line.startswith("0x"):
                session = line.removesuffix(":")
            elif line.strip() == path:
                return session
        return None


async def opened(address: str) -> ZooKeeperMetadataStore:
    io = real_io(asyncio.get_running_loop(), Path("/"))
    outside = Outside(io.loop, io.clock, io.randomness, io.network)
    return await ZooKeeperMetadataStore.open_store(
        outside, ensemble_address(address), SessionSettings(TIMEOUT_MS), wait_seconds=30
    )
