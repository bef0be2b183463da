"""Schemas through the official Java client, in one JVM."""

from __future__ import annotations

import pytest
from client_programs import java_command  # noqa: F401 - a fixture
from server import VARIANTS
from test_clients import run_program

WANTED = [
    "primitive",
    "json",
    "avro",
    "key-value",
    "protobuf",
    "auto-consume",
    "auto-produce",
    "multi-version",
    "types-differ",
    "over-a-restart",
]


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_java(start_server, java_command: list[str], variant: str) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    server = start_server(**VARIANTS[variant])
    command = [*java_command[:-1], "interop.Schemas"]
    checks, text = run_program(
        command, server, "schemas", f"schemas-{variant}", lambda: server.restart(kill=True)
    )
    assert [check["check"] for check in checks] == WANTED, text
