"""Programs of Java's and Go's clients say the same as they did when they were recorded with Apache Pulsar."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from client_programs import checks, go_command, java_command
from replicated_sites import Site, connect, make_namespace
from server import Server

__all__ = ["go_command", "java_command"]

VECTORS = Path(__file__).parents[1] / "vectors" / "transactions"
SECONDS = 120
Said = list[tuple[str, str]]
"""Steps of a program with the lines that it printed in them."""

LEFT_OUT_HERE = [("abort", "received aborted 0")]
"""Go's client writes no ids into the metadata, so Apache Pulsar delivers what it has aborted."""


@pytest.fixture(scope="module")
def broker(start_server: Callable[..., Server]) -> Server:
    return start_server(
        transactionCoordinatorEnabled="true",
        acknowledgmentAtBatchIndexLevelEnabled="true",
        delayedDeliveryTickTimeMillis=50,
    )


def plain(text: str) -> str:
    """Returns a line without what differs from run to run: ids, addresses, the order of their numbers."""
    text = re.sub(r"\(\d+,\d+\)", "(TXN)", text)
    text = re.sub(r"\[0:\d+\]", "[TXN]", text)
    text = re.sub(r"message:\d+:(\d+)", r"message:LEDGER:\1", text)
    return re.sub(r'"reqId":\d+, "remote":"[^"]*", "local":"[^"]*"', "WHERE", text)


def recorded(name: str) -> Said:
    rows = map(json.loads, (VECTORS / f"{name}.jsonl").read_text("utf-8").splitlines())
    return [(row["case"], plain(row["program"])) for row in rows if "program" in row]


def run(command: Sequence[str]) -> Said:
    """Runs a program step by step; returns what it said."""

    def said(process: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
        assert process.stdout is not None
        assert process.stdin is not None
        case = ""
        for line in process.stdout:
            if line.startswith("step "):
                case = line[5:].strip()
                process.stdin.write("\n")
                process.stdin.flush()
            elif line.startswith(" "):
                yield case, plain(line.strip())

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = list(said(process))
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
    return found


def test_java(broker: Server, java_command: list[str]) -> None:
    command = [*java_command[:-1], "interop.Transactions", broker.url, "java"]
    assert run(command) == recorded("java_client")


def test_go(broker: Server, go_command: list[str]) -> None:
    found = run([*go_command, "--url", broker.url, "--scenario", "transactions", "--prefix", "go"])
    wanted = [each for each in recorded("go_client") if each not in LEFT_OUT_HERE]
    assert sorted(found) == sorted(wanted)


def test_each_feature_of_javas_client(broker: Server, java_command: list[str]) -> None:
    where = ["--url", broker.url, "--http", broker.http_url, "--prefix", "java-features"]
    found = checks([*java_command[:-1], "interop.TransactionFeatures", *where])
    assert len(found) == 31


def test_each_feature_of_gos_client(broker: Server, go_command: list[str]) -> None:
    where = ["--url", broker.url, "--prefix", "go-features"]
    assert len(checks([*go_command, *where, "--scenario", "transaction-features"])) == 16


def test_javas_client_with_replication(
    broker: Server, start_server: Callable[..., Server], java_command: list[str]
) -> None:
    sites = Site("standalone", broker), Site("west", start_server(clusterName="west"))
    connect(*sites)
    make_namespace("clients", *sites)
    where = ["--url", broker.url, "--http", broker.http_url, "--prefix", "java-replicated"]
    program = [*java_command[:-1], "interop.TransactionFeatures"]
    assert checks([*program, *where, "--other", sites[1].server.url]) == ["replication"]
    for site in sites:
        site.client.close()
