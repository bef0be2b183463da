"""``magnetar websocket`` as a process of its own, before brokers of a test."""

from __future__ import annotations

from pathlib import Path

from server import Server


class WebSocketProcess(Server):
    """Keeps its port from start to start."""

    def __init__(self, folder: Path, **settings: int | str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, dict(settings))

    @property
    def http_url(self) -> str:
        return self.urls["ws"].replace("ws", "http", 1)

    def command(self) -> list[str]:
        return ["websocket"]

    def _port_options(self, binary: int, http: int) -> list[str]:
        return ["--http-port", str(http)]

    def _ports_of(self, ports: dict[str, int]) -> tuple[int, int]:
        return 0, ports["ws"]
