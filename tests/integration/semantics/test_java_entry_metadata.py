"""What the broker writes in front of entries, with the official Java client: shown to it, or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from client_programs import java_command  # noqa: F401 - a fixture
from server import Server
from test_clients import run_program

INTERCEPTORS = ",".join(
    f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor"
    for name in ("BrokerTimestamp", "Index")
)
WANTED = ["Exclusive", "Shared", "Failover", "Key_Shared", "reader"]


@pytest.mark.parametrize("exposed", ["true", "false"])
def test_java(start_server: Callable[..., Server], java_command: list[str], exposed: str) -> None:  # noqa: F811
    server = start_server(
        brokerEntryMetadataInterceptors=INTERCEPTORS, exposingBrokerEntryMetadataToClientEnabled=exposed
    )
    command = [*java_command[:-1], "interop.EntryMetadata"]
    prefix = "entry-metadata" if exposed == "true" else "entry-metadata-hidden"
    checks, text = run_program(command, server, "entry-metadata", prefix, lambda: None)
    assert [check["check"] for check in checks] == WANTED, text
