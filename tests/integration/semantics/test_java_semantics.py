"""What only the official Java client asks of a broker: priorities, epochs, highest sequence ids."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from client_programs import java_command  # noqa: F401 - a fixture
from server import MINIATURE, Server
from test_clients import run_program

WANTED = [
    "priority",
    "consumer-epoch",
    "subscription-properties",
    "highest-sequence-id",
    "ordering-key",
    "out-of-order",
    "transactions",
]


@pytest.mark.parametrize("variant", ["default", "miniature"])
def test_java(start_server: Callable[..., Server], java_command: list[str], variant: str) -> None:  # noqa: F811
    settings: dict[str, int | str] = {"brokerDeduplicationEnabled": "true"}
    if variant == "miniature":
        settings |= MINIATURE
    server = start_server(**settings)
    command = [*java_command[:-1], "interop.Semantics"]
    checks, text = run_program(command, server, "semantics", "java", lambda: server.restart(kill=True))
    assert [check["check"] for check in checks] == WANTED, text
    status, body = server.ask("GET", "/admin/v2/persistent/public/default/java-properties/stats")
    assert status == 200, body
    found = json.loads(body)["subscriptions"]["s"]["subscriptionProperties"]
    assert found == {"team": "red", "since": "2026"}
