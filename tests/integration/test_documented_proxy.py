"""The tour of docs/proxy.md: each of its commands is run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from documented_steps import blocks_of
from ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "proxy.md"
_BACKGROUND = re.compile(r"^(magnetar (\w+) .*) &$", re.MULTILINE)
_WAIT = r"""\1 > said-\2 2> log-\2 &
trap 'kill $(jobs -p); wait' EXIT
for _ in $(seq 600); do grep -q "is serving" said-\2 && break; sleep 0.1; done
grep "is serving" said-\2"""


def script() -> str:
    text = "\n\n".join(blocks_of(PAGE))
    ports = {str(known): free_port() for known in (6650, 8080, 6655, 8085)}
    text = re.sub("|".join(ports), lambda found: str(ports[found[0]]), text)
    # Brokers that are no one's to choose ports of are at those that Pulsar allows.
    text = text.replace("\nEND\n", "\nbrokerProxyAllowedTargetPorts=*\nEND\n")
    text, begun = _BACKGROUND.subn(_WAIT, text)
    assert begun == 2
    return "set -euo pipefail\n" + text


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
    assert '"msgInCounter": 1' in done.stdout or '"msgInCounter" : 1' in done.stdout
    assert "\n[" in done.stdout
