"""``pulsar-perf transaction``, and ``produce`` and ``consume`` with transactions, against a real broker."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documented_steps import commands_of
from server import Server

PAGE = Path(__file__).parents[2] / "docs" / "pulsar-perf.md"
SECONDS = 120


@pytest.fixture(scope="module")
def broker(start_server: Callable[..., Server]) -> Server:
    return start_server(transactionCoordinatorEnabled="true", acknowledgmentAtBatchIndexLevelEnabled="true")


def perf(broker: Server, command: str, *flags: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "magnetar.cli.pulsar_perf", command, "-u", broker.url, *flags]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS, check=False)


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def produced(broker: Server, topic: str, messages: int, *flags: str) -> None:
    plain = ("-m", str(messages), "-r", "0", "--warmup-time", "0", "--json", "-")
    assert figures(perf(broker, "produce", topic, *plain, *flags))["published"] == messages


def visible(broker: Server, topic: str, *flags: str) -> int:
    found = figures(perf(broker, "consume", topic, "-sp", "Earliest", "--json", "-", *flags))
    return int(found["delivered"])


def test_committed_and_aborted_messages(broker: Server, topic: str) -> None:
    produced(broker, topic, 250, "-txn", "-nmt", "100")
    produced(broker, topic, 120, "-txn", "-nmt", "50", "-abort")
    assert visible(broker, topic, "-ss", "all", "-time", "3") == 250


def test_consuming_in_transactions(broker: Server, topic: str) -> None:
    produced(broker, topic, 100)
    # It ends soon after the number is reached.
    assert visible(broker, topic, "-txn", "-nmt", "20", "-ntxn", "2", "-abort") >= 40
    assert visible(broker, topic, "-txn", "-nmt", "25", "-m", "100") == 100
    assert visible(broker, topic, "-time", "2") == 0


def test_transactions(broker: Server, topic: str) -> None:
    inputs, outputs = f"{topic}-in", f"{topic}-out"
    produced(broker, inputs, 400)
    flags = ("--topics-c", inputs, "--topics-p", outputs, "-nmc", "4", "-nmp", "2", "--json", "-")
    found = figures(perf(broker, "transaction", *flags, "-ntxn", "100", "-threads", "4"))
    assert (found["transactions"], found["opened"]) == (100, 100)
    assert (found["acknowledged"], found["sent"]) == (400, 200)
    assert all(found[f"{name}_latency_ms"]["p50"] > 0 for name in ("begin", "send", "ack", "end"))
    assert visible(broker, outputs, "-time", "3") == 200
    # Every input is acknowledged: the workers wait for messages until the time is over.
    done = perf(broker, "transaction", *flags, "-time", "2")
    assert done.returncode == 3
    assert "no transaction ended" in done.stderr


def test_a_rate_and_lines(broker: Server, topic: str) -> None:
    flags = ("--topics-p", topic, "-nmc", "0", "-txnRate", "20", "-time", "3", "-abort", "-i", "1")
    done = perf(broker, "transaction", *flags)
    assert done.returncode == 0, done.stderr
    assert "transactions ended" in done.stdout
    assert "0 not opened, 0 not ended" in done.stdout
    assert 1 <= int(done.stdout.split("s: ")[1].split(" ")[0]) <= 63
    assert done.stderr.count("/s  ended") >= 2
    assert visible(broker, topic, "-time", "2") == 0


def test_without_transactions(broker: Server, topic: str) -> None:
    flags = ("--topics-p", topic, "-nmc", "0", "--txn-disable", "-ntxn", "20", "--json", "-")
    found = figures(perf(broker, "transaction", *flags))
    assert (found["transactions"], found["opened"], found["sent"]) == (20, 0, 20)
    assert visible(broker, topic, "-time", "2") == 20


def test_what_the_page_shows(broker: Server) -> None:
    produce, transact = (shlex.split(each) for each in commands_of(PAGE, "## Transactions", "pulsar-perf"))
    assert figures(perf(broker, *produce[1:], "--json", "-"))["published"] == 2000
    found = figures(perf(broker, *transact[1:], "--json", "-"))
    assert (found["transactions"], found["acknowledged"], found["sent"]) == (100, 1000, 1000)


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_raw_ends_have_no_transactions(broker: Server, topic: str, command: str) -> None:
    done = perf(broker, command, topic, "--raw", "-txn")
    assert done.returncode == 1
    assert "--raw does not support -txn" in done.stderr
