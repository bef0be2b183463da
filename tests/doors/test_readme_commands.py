"""The first command of the README in a new clone with an empty home: with a compiler, and without one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 600
_SERVING = re.compile(r"is serving pulsar://[^ ]+:(\d+) and http://[^ ]+:(\d+)")
_COMPILERS = re.compile(r"(.*-)?(gcc|g\+\+|cc|c\+\+|cpp|clang|clang\+\+|tcc|c89|c99)(-[\d.]+)?$")


def clone(folder: Path) -> Path:
    """What is committed, as somebody else would get it."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def path_without_compilers(folder: Path) -> str:
    """Every command of the PATH but the compilers of C."""
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for command in Path(directory).glob("*"):
            link = folder / command.name
            if not _COMPILERS.match(command.name) and not link.is_symlink():
                link.symlink_to(command)
    return str(folder)


def environment(home: Path, path: str) -> dict[str, str]:
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("VIRTUAL_ENV", "MAGNETAR_", "PYTHON"))}
    return {**kept, "HOME": str(home), "PATH": path}


@contextmanager
def make_run(checkout: Path, variables: dict[str, str]) -> Iterator[tuple[int, int]]:
    """``make run`` on free ports; yields binary and HTTP port, and stops it in order."""
    log = checkout.parent / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            ["make", "run", "ARGS=--binary-port 0 --http-port 0"],
            cwd=checkout,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        found = next((match for line in process.stdout if (match := _SERVING.search(line))), None)
        assert found is not None, log.read_text()
        yield int(found[1]), int(found[2])
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("compiler", [True, False], ids=["compiled", "interpreted"])
def test_make_run(tmp_path: Path, compiler: bool) -> None:
    own = Path(os.environ.get("VIRTUAL_ENV", ROOT / ".venv")) / "bin"
    outside = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if Path(p) != own)
    os.environ["PATH"], before = outside, os.environ["PATH"]
    try:
        path = outside if compiler else path_without_compilers(tmp_path / "commands")
        variables = environment(tmp_path / "home", path)
    finally:
        os.environ["PATH"] = before
    checkout = clone(tmp_path / "clone")
    with make_run(checkout, variables) as (_binary, http):
        connection = HTTPConnection("127.0.0.1", http, timeout=30)
        connection.request("GET", "/admin/v2/brokers/health")
        assert connection.getresponse().read() == b"ok"
        connection.close()
    warnings = [line for line in (tmp_path / "log").read_text().splitlines() if " WARNING " in line]
    if compiler:
        assert warnings == []
    else:
        assert len(warnings) == 1, warnings
        assert "interpreted" in warnings[0]
    compiled = list((checkout / "src" / "magnetar" / "_compiled").glob("*.so"))
    assert bool(compiled) == compiler
