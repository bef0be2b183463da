"""The official clients against a real server, each in a program of its own (see clients/README.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from client_programs import CLIENTS, go_command, java_command, rust_command
from proxy_process import ProxyProcess
from server import Server

__all__ = ["go_command", "java_command", "rust_command"]

SCENARIOS = {
    "async-batched": 5,
    "async-unbatched": 5,
    "sync-batched": 5,
    "sync-unbatched": 5,
    "reader": 6,
    "seek": 6,
    "shared": 1,
    "exclusive": 1,
    "restart": 1,
}
"""How many checks each has."""

COUNTS = [
    *("--messages", os.environ.get("MAGNETAR_MESSAGES", "3000")),
    *("--sync-messages", os.environ.get("MAGNETAR_SYNC_MESSAGES", "500")),
]
"""Messages for each codec. A blocking send takes as long as a commit; tools/soak sends 10,000 both ways."""

SECONDS = 600.0

Checks = list[dict[str, Any]]


def run_program(
    command: list[str],
    server: Server,
    scenario: str,
    prefix: str,
    on_restart: Callable[[], None],
    url: str = "",
) -> tuple[Checks, str]:
    """Runs a client program; its checks, and what it wrote besides.

    :param url: what the program connects to; empty: the binary protocol of the server
    """
    process = subprocess.Popen(
        [*command, "--url", url or server.url, "--scenario", scenario, "--prefix", prefix, *COUNTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watchdog = threading.Timer(SECONDS, process.kill)
    watchdog.start()
    checks: Checks = []
    besides: list[str] = []
    try:
        for line in process.stdout:
            found = json.loads(line) if line.startswith("{") else {}
            if found.get("event") == "restart":
                on_restart()
                process.stdin.write("back\n")
                process.stdin.flush()
            elif "check" in found:
                checks.append(found)
            else:
                besides.append(line)
        code = process.wait()
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()
    text = "".join(besides[-40:])
    failed = [check for check in checks if not check["ok"]]
    assert not failed, f"{failed}\n{text}\n{server.log[-2000:]}"
    assert code == 0, f"exit code {code} after {checks}\n{text}\n{server.log[-2000:]}"
    return checks, text


def drive(name: str, command: list[str], server: Server, scenario: str, *, kill: bool = True) -> Checks:
    """Runs one scenario and expects that all its checks are good."""
    prefix = f"{name}-{scenario}-{'kill' if kill else 'stop'}-{os.urandom(3).hex()}"
    checks, text = run_program(command, server, scenario, prefix, lambda: server.restart(kill=kill))
    assert len(checks) == SCENARIOS[scenario], f"{checks}\n{text}"
    return checks


scenarios = pytest.mark.parametrize("scenario", SCENARIOS)


AS_PULSAR = """
import runpy, sys
import magnetar.pulsar
magnetar.pulsar.install()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PYTHON = {
    "pulsar": [sys.executable, str(CLIENTS / "python" / "client.py")],
    "magnetar.pulsar": [sys.executable, "-c", AS_PULSAR, str(CLIENTS / "python" / "client.py")],
}
"""The same program with the official package, and with the one that has its interface."""


@scenarios
def test_python(server: Server, scenario: str) -> None:
    pytest.importorskip("pulsar")
    drive("python", PYTHON["pulsar"], server, scenario)


def test_python_over_a_clean_restart(server: Server) -> None:
    pytest.importorskip("pulsar")
    drive("python", PYTHON["pulsar"], server, "restart", kill=False)


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if not each.startswith("sync")])
def test_python_with_magnetars_package(server: Server, scenario: str) -> None:
    """Without the scenarios whose time is that of commits."""
    drive("magnetar", PYTHON["magnetar.pulsar"], server, scenario)


@scenarios
def test_java(server: Server, java_command: list[str], scenario: str) -> None:
    drive("java", java_command, server, scenario)


@scenarios
def test_go(server: Server, go_command: list[str], scenario: str) -> None:
    drive("go", go_command, server, scenario)


@pytest.fixture(scope="module")
def proxy(
    start_server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    """Before a server of its own."""
    broker = start_server()
    running = ProxyProcess(
        tmp_path_factory.mktemp("proxy"), brokerServiceURL=broker.url, brokerWebServiceURL=broker.http_url
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("scenario", ["shared", "reader", "restart"])
def test_java_through_a_proxy(proxy: ProxyProcess, java_command: list[str], scenario: str) -> None:
    drive("java", java_command, proxy, scenario)


@pytest.mark.parametrize("scenario", ["shared", "reader", "restart"])
def test_go_through_a_proxy(proxy: ProxyProcess, go_command: list[str], scenario: str) -> None:
    drive("go", go_command, proxy, scenario)


@pytest.mark.interop
@scenarios
def test_rust(server: Server, rust_command: list[str], scenario: str) -> None:
    drive("rust", rust_command, server, scenario)
