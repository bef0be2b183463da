"""Programs of the official clients (tests/integration/clients), built when their sources are newer."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parents[1] / "integration" / "clients"


def build(product: Path, sources: list[Path], command: list[str], folder: Path, **environment: str) -> None:
    """Builds a client program if it is missing or older than one of its sources; a failing build is a
    failing test.

    Tests run in several processes: one builds, the others wait for it.
    """
    with (folder / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_older(product, sources):
            return
        _build(command, folder, **environment)


def _build(command: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")


def is_older(product: Path, sources: list[Path]) -> bool:
    """Whether ``product`` is missing, or older than one of ``sources``."""
    return not product.exists() or product.stat().st_mtime < max(path.stat().st_mtime for path in sources)


def checks(command: Sequence[str], seconds: float = 180.0) -> list[str]:
    """Runs a program and returns the names of its checks, all of which have passed.

    :param seconds: the time after which the program is killed, and the test fails
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert all(each["ok"] for each in found), found[-1]
    assert done.returncode == 0, done.stderr[-3000:]
    return [each["check"] for each in found]


def built_with_maven(folder: Path, name: str) -> Path:
    """Returns the jar ``name`` of a Maven project, built when its source is newer. The folder ``lib`` beside
    it has its libraries."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("needs Maven and a JDK")
    jar = folder / "target" / name
    sources = [folder / "pom.xml", *folder.glob("src/**/*.java")]
    build(jar, sources, ["mvn", "-B", "-q", "-ntp", "package"], folder)
    return jar


@pytest.fixture(scope="session")
def java_command() -> list[str]:
    """How to start the Java program; built when its source is newer."""
    folder = CLIENTS / "java"
    built_with_maven(folder, "interop-java-1.jar")
    classes = os.pathsep.join((str(folder / "target" / "classes"), str(folder / "target" / "lib" / "*")))
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classes, "interop.Client"]


@pytest.fixture(scope="session")
def go_command() -> list[str]:
    """How to start the Go program; built when its source is newer."""
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    folder = CLIENTS / "go"
    program = folder / "bin" / "client"
    sources = [folder / "go.mod", *folder.glob("*.go")]
    build(program, sources, ["go", "build", "-o", str(program), "."], folder)
    return [str(program)]


@pytest.fixture(scope="session")
def rust_command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to start the Rust program; built when its source is newer."""
    if shutil.which("cargo") is None:
        pytest.skip("needs Rust")
    folder = CLIENTS / "rust"
    # The crate runs protoc when it is built: the one of grpcio-tools will do where none is installed.
    protoc = shutil.which("protoc")
    if protoc is None:
        pytest.importorskip("grpc_tools")
        wrapper = tmp_path_factory.mktemp("protoc") / "protoc"
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n')
        wrapper.chmod(0o755)
        protoc = str(wrapper)
    program = folder / "target" / "debug" / "client"
    sources = [folder / "Cargo.toml", *folder.glob("src/**/*.rs")]
    build(program, sources, ["cargo", "build", "--quiet"], folder, PROTOC=protoc)
    return [str(program)]
