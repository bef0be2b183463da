"""A program in C++ on Apache's C++ client."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client_programs import CLIENTS, build
from server import Server
from test_clients import run_program

pulsar = pytest.importorskip("pulsar")

WANTED = ["in-order", "again", "list", "single-partition", "custom-router"]


@pytest.fixture(scope="session")
def cpp_command() -> list[str]:
    """How to start the program; built when its source is newer, on the library of the Python client."""
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    libraries = sorted((Path(pulsar.__file__).parents[1] / "pulsar_client.libs").glob("libpulsar*.so*"))
    if not libraries:
        pytest.skip("the Python client's wheel has no libpulsar beside it")
    folder = CLIENTS / "cpp"
    program = folder / "bin" / "client"
    program.parent.mkdir(exist_ok=True)
    source, library = folder / "client.cc", libraries[0]
    command = [
        "g++",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(program),
        str(source),
        str(library),
    ]
    build(program, [source, library], [*command, f"-Wl,-rpath,{library.parent}"], folder)
    return [str(program)]


@pytest.mark.parametrize("address", ["binary", "http"])
def test_cpp(start_server: Callable[..., Server], cpp_command: list[str], address: str) -> None:
    server = start_server()
    for name in ("single", "custom"):
        path = f"/admin/v2/persistent/public/default/cpp-{address}-{name}/partitions"
        assert server.ask("PUT", path, "4")[0] == 204

    def never() -> Any:
        raise AssertionError("the program asks for a restart")

    command = cpp_command if address == "binary" else [*cpp_command, "--http", server.http_url]
    checks, text = run_program(command, server, "cpp", f"cpp-{address}", never)
    assert [check["check"] for check in checks] == WANTED, text
