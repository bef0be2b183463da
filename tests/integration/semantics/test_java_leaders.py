"""Access modes of producers as the official Java client meets them."""

from __future__ import annotations

from typing import Any

import pytest
from client_programs import java_command
from server import Server
from test_clients import run_program

__all__ = ["java_command"]


@pytest.mark.parametrize("address", ["binary", "http"])
def test_java(start_server: Any, java_command: list[str], address: str) -> None:
    """By either address: a client with an ``http://`` one asks the HTTP interface where topics are."""
    server: Server = start_server()
    url = server.http_url if address == "http" else ""
    command = [*java_command[:-1], "interop.Leaders"]
    checks, text = run_program(command, server, "leaders", "java", lambda: server.restart(kill=True), url)
    assert [check["check"] for check in checks] == ["fencing", "waiting"], text
