"""The source of an earlier commit, which a test runs beside the present one."""

from __future__ import annotations

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREVIOUS = os.environ.get("MAGNETAR_UPGRADE_FROM", "HEAD~1")
"""The revision from which brokers are upgraded."""


def first_with(text: str, path: str) -> str:
    """The first commit in whose history a file has the text."""
    found = _git("log", f"-S{text}", "--format=%H", "--", path).split()
    assert found, f"no commit added {text!r} to {path}"
    return found[-1].decode()


def earlier_source(revision: str, folder: Path) -> Path:
    """Unpacks the package of a revision; returns the folder for ``PYTHONPATH``. Nothing there is compiled."""
    with tarfile.open(fileobj=BytesIO(_git("archive", revision, "src"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def _git(*arguments: str) -> bytes:
    if not (ROOT / ".git").exists():
        pytest.skip("needs the history of the source")
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout
