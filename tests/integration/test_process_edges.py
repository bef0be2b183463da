"""A server and commands on ports that are taken, on closed streams, and with signals that come twice."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from server import Server

from magnetar.client import aio

_MAGNETAR = (sys.executable, "-m", "magnetar")
_FREE = ("--binary-port", "0", "--http-port", "0")


@pytest.mark.parametrize(("option", "kind"), [("--binary-port", "binary"), ("--http-port", "HTTP")])
def test_a_port_in_use_is_named_with_its_option_and_its_owner(tmp_path: Path, option: str, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*_MAGNETAR, "standalone", "--data-dir", tmp_path / "data", *_FREE, option, str(port)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    told = f"{kind} port {port} is in use by process {os.getpid()} ("
    assert told in ended.stderr
    assert f"use {option} 0 for a free port" in ended.stderr
    assert "stopped" not in ended.stderr


def test_signals_that_come_together_are_one(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*_MAGNETAR, "standalone", "--data-dir", tmp_path / "data", *_FREE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "is serving" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.003)
    process.send_signal(signal.SIGTERM)
    _output, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopped" in errors


def test_a_server_runs_with_closed_streams(tmp_path: Path) -> None:
    command = shlex.join([*_MAGNETAR, "standalone", "--data-dir", str(tmp_path / "data"), *_FREE])
    process = subprocess.Popen(["/bin/sh", "-c", f"exec {command} <&- >&- 2>&-"])
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "data" / "metadata" / "metadata.sqlite").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 0


def test_a_command_nobody_listens_to_ends_quietly(server: Server) -> None:
    command = shlex.join(
        [
            sys.executable,
            "-m",
            "magnetar.cli.pulsar_admin",
            "--admin-url",
            server.http_url,
            "topics",
            "--help",
        ]
    )
    ended = subprocess.run(
        ["/bin/sh", "-c", f"{command} 2>&1 | true; {command} >&-"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in ended.stderr + ended.stdout


def test_a_client_says_that_nothing_listens_while_it_tries(caplog: pytest.LogCaptureFixture) -> None:
    async def connect() -> None:
        async with aio.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=4) as client:
            await client.create_producer("t")

    with pytest.raises(aio.PulsarException):
        asyncio.run(connect())
    told = [record.getMessage() for record in caplog.records if "trying for another" in record.getMessage()]
    assert len(told) == 1
    assert "cannot connect to 127.0.0.1:1" in told[0]
