"""Node's WebSockets, as programs in JavaScript use them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from server import Server

_PROGRAM = Path(__file__).parent / "clients" / "node"


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm")
def test_a_program_in_node(server: Server, tmp_path: Path, topic: str) -> None:
    for name in ("package.json", "package-lock.json", "talk.js"):
        shutil.copy(_PROGRAM / name, tmp_path)
    subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=120,
    )
    base = server.http_url.replace("http", "ws", 1)
    ran = subprocess.run(
        ["node", "talk.js", base, topic.replace("://", "/")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["arrived"] == [f"message {number}" for number in range(500)]
    assert told["receipts"] == list(range(500))
    assert told["code"] == 1005
