"""The tour of docs/security.md: each of its commands is run, in a folder that is empty before."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from documented_steps import blocks_of
from ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_SERVES = "magnetar standalone --config broker.conf --data-dir data &"
_WAIT = """magnetar standalone --config broker.conf --data-dir data > said 2> log &
trap 'kill %1; wait' EXIT
for _ in $(seq 600); do grep -q "is serving" said && break; sleep 0.1; done
grep "is serving" said"""


def script() -> str:
    binary, http = free_port(), free_port()
    text = "\n\n".join(blocks_of(PAGE)).replace("6651", str(binary)).replace("8443", str(http))
    assert text.count(_SERVES) == 1
    text = text.replace(_SERVES, _WAIT)
    refused = re.sub(
        r"^! (.+)$", r"if \1; then echo 'was not refused: \1' >&2; exit 9; fi", text, flags=re.MULTILINE
    )
    assert refused.count("was not refused") == 3
    return "set -euxo pipefail\n" + refused


def test_what_it_says_works(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("PULSAR_CLIENT_CONF", None)
    done = subprocess.run(
        ["bash", "-c", script()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert "order 1" in done.stdout
    assert "order 2" not in done.stdout
