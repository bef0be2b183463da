"""Subscription types and acknowledgement through the official Java client, in one JVM."""

from __future__ import annotations

import pytest
from client_programs import java_command  # noqa: F401 - a fixture
from server import MINIATURE
from test_clients import run_program

WANTED = [
    "failover",
    "key-shared",
    "key-shared-sticky",
    "cumulative-on-shared",
    "negative-acknowledgement",
    "acknowledgement-timeout",
    "dead-letter",
    "dead-letter-topic",
    "retry-letter",
    "retry-letter-topic",
    "over-a-kill",
]


@pytest.mark.parametrize("variant", ["default", "miniature"])
def test_java(start_server, java_command: list[str], variant: str) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    settings: dict[str, int | str] = {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
    if variant == "miniature":
        settings |= MINIATURE
    server = start_server(**settings)
    command = [*java_command[:-1], "interop.Subscriptions"]
    checks, text = run_program(
        command, server, "subscriptions", f"subs-{variant}", lambda: server.restart(kill=True)
    )
    assert [check["check"] for check in checks] == WANTED, text
