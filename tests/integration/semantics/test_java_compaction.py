"""Compacted topics, with the official Java client: batches, null values, encryption, table views."""

from __future__ import annotations

import json
from collections.abc import Callable

from client_programs import java_command  # noqa: F401 - a fixture
from server import Server
from test_clients import run_program

WANTED = ["batches", "null-values", "table-view", "encrypted", "subscription"]


def test_java(start_server: Callable[..., Server], java_command: list[str]) -> None:  # noqa: F811
    server = start_server(defaultRetentionTimeInMinutes=-1, defaultRetentionSizeInMB=-1)
    namespace = "/admin/v2/persistent/public/default"

    def compact() -> None:
        _status, body = server.ask("GET", namespace)
        for topic in json.loads(body):
            path = f"{namespace}/{topic.rpartition('/')[2]}/compaction"
            assert server.ask("PUT", path)[0] == 204
            while (told := json.loads(server.ask("GET", path)[1]))["status"] == "RUNNING":
                pass
            assert told["status"] == "SUCCESS", told

    command = [*java_command[:-1], "interop.Compaction"]
    checks, text = run_program(command, server, "compaction", "java", compact)
    assert [check["check"] for check in checks] == WANTED, text
