"""What was said with a real server, and a client that says it again to a model of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def rows(path: Path) -> list[list[str]]:
    """Of a table with tabs between its columns."""
    return [line.split("\t") for line in path.read_text().splitlines()]


class StreamClient:
    """A ``StreamProtocol`` that keeps what it gets."""

    def __init__(self) -> None:
        self.received = b""
        self.closed = False
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self.closed = True

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
