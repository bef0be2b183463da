"""Access modes of producers as the official Java client meets them."""

from __future__ import annotations

from typing import Any

from server import Server
from test_clients import java_command, run_program

__all__ = ["java_command"]


def test_java(start_server: Any, java_command: list[str]) -> None:
    server: Server = start_server()
    command = [*java_command[:-1], "interop.Leaders"]
    checks, text = run_program(command, server, "leaders", "java", lambda: server.restart(kill=True))
    assert [check["check"] for check in checks] == ["fencing", "waiting"], text
