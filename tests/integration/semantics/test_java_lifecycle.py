"""Backlog quotas and time to live as the official Java client meets them."""

from __future__ import annotations

import json
from typing import Any

from client_programs import java_command
from cookbook import CHECKS
from server import Server
from test_clients import run_program

__all__ = ["java_command"]


def test_java(start_server: Any, java_command: list[str]) -> None:
    server: Server = start_server(**CHECKS)
    assert server.ask("PUT", "/admin/v2/tenants/life", '{"allowedClusters":["standalone"]}')[0] == 204
    for name, path, value in (
        ("hold", "backlogQuota", {"limitSize": 2000, "policy": "producer_request_hold"}),
        ("exception", "backlogQuota", {"limitSize": 2000, "policy": "producer_exception"}),
        ("ttl", "messageTTL", 2),
    ):
        where = f"/admin/v2/namespaces/life/{name}"
        assert server.ask("PUT", where)[0] == 204
        assert server.ask("POST", f"{where}/{path}", json.dumps(value))[0] == 204
    command = [*java_command[:-1], "interop.Lifecycle"]
    checks, text = run_program(command, server, "lifecycle", "java", lambda: server.restart(kill=True))
    assert [check["check"] for check in checks] == ["hold", "exception", "time-to-live"], text
