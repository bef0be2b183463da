"""The programs of docs/quick-starts.md, as they stand there, with the official clients."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from server import Server

PAGE = Path(__file__).parents[2] / "docs" / "quick-starts.md"
CLIENTS = Path(__file__).parent / "clients"
PRINTED = ["received order 0", "received order 1", "received order 2"]


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server()


def program(language: str) -> str:
    """Returns the only code block of a language."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **environment},
    )


def printed(ended: subprocess.CompletedProcess[str]) -> list[str]:
    assert ended.returncode == 0, ended
    # Maven writes colours even where there is no terminal.
    told = re.sub(r"\x1b\[[0-9;]*m", "", ended.stdout)
    return [line for line in told.splitlines() if line.startswith("received ")]


@pytest.mark.skipif(shutil.which("mvn") is None, reason="needs Maven and a JDK")
def test_java(server: Server, tmp_path: Path) -> None:
    (tmp_path / "pom.xml").write_text(program("xml"))
    source = tmp_path / "src" / "main" / "java" / "Orders.java"
    source.parent.mkdir(parents=True)
    source.write_text(program("java"))
    [command] = re.findall(r"^    (mvn .+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    command = command.replace("mvn ", "mvn -B -ntp -Dorg.slf4j.simpleLogger.defaultLogLevel=warn ")
    assert printed(run(command.split(), tmp_path, PULSAR_URL=server.url)) == PRINTED


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_go(server: Server, tmp_path: Path) -> None:
    """In the module of the other Go programs, whose versions are pinned."""
    (tmp_path / "main.go").write_text(program("go"))
    for name in ("go.mod", "go.sum"):
        shutil.copy(CLIENTS / "go" / name, tmp_path)
    pinned = re.findall(r"pulsar-client-go v(\S+)", (tmp_path / "go.mod").read_text())
    assert re.findall(r"pulsar-client-go@v(\S+)", PAGE.read_text("utf-8")) == pinned[:1]
    assert printed(run(["go", "run", "-mod=mod", "."], tmp_path, PULSAR_URL=server.url)) == PRINTED


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm")
def test_node(server: Server, tmp_path: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(CLIENTS / "node" / name, tmp_path)
    assert run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], tmp_path).returncode == 0
    (tmp_path / "orders.js").write_text(program("js"))
    url = server.http_url.replace("http", "ws", 1)
    assert printed(run(["node", "orders.js"], tmp_path, PULSAR_WS_URL=url)) == PRINTED
