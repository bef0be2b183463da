"""Non-persistent topics through the official Java client, in one JVM."""

from __future__ import annotations

from client_programs import java_command  # noqa: F401 - a fixture
from test_clients import run_program

WANTED = [
    "exclusive",
    "failover",
    "shared",
    "key-shared",
    "key-shared-sticky",
    "small-queue",
    "in-flight",
    "reader",
    "seek",
    "negative-acknowledgement",
    "partitioned",
    "pattern",
]


def test_java(start_server, java_command: list[str]) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    server = start_server(maxConcurrentNonPersistentMessagePerConnection=1)
    partitions = "/admin/v2/non-persistent/public/default/np-partitioned/partitions"
    assert server.ask("PUT", partitions, "4")[0] == 204
    command = [*java_command[:-1], "interop.NonPersistent"]
    checks, text = run_program(command, server, "non-persistent", "np", server.stop)
    assert [check["check"] for check in checks] == WANTED, text
