"""The tours of docs/geo-replication.md, of two clusters and of three: each of their commands is run."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from documented_steps import blocks_of
from ports import free_port

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "geo-replication.md"
_BACKGROUND = re.compile(r"^(magnetar standalone --config (\w+)/.*) &$", re.MULTILINE)
_WAIT = r"""\1 > said-\2 2> log-\2 &
for _ in $(seq 600); do grep -q "is serving" said-\2 && break; sleep 0.1; done
grep "is serving" said-\2"""


def script() -> str:
    text = "\n\n".join(blocks_of(PAGE))
    ports = {str(known): free_port() for known in (6650, 6651, 8080, 8081)}
    text = re.sub("|".join(ports), lambda found: str(ports[found[0]]), text)
    text, begun = _BACKGROUND.subn(_WAIT, text)
    assert begun == 2
    return "set -euo pipefail\ntrap 'kill $(jobs -p); wait' EXIT\n" + text


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}
    environment.pop("PULSAR_CLIENT_CONF", None)
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done


def test_what_it_says_works(tmp_path: Path) -> None:
    done = run(script(), tmp_path)
    assert "order 1" in done.stdout
    assert re.search(r'"msgOutCount"\s*:\s*1', done.stdout)
    assert re.search(r"shop/orders/new +west \d+\.\d s, \d", done.stdout)
    assert re.search(r"replication to west: (at_end|replicating)", done.stdout)


_THREE = r"""set -euo pipefail
{start} > said 2>&1 & geo=$!
trap 'kill $geo; wait' EXIT
for _ in $(seq 900); do grep -q "^Ctrl-C ends" said && break; sleep 0.1; done
grep "^Ctrl-C ends" said || {{ cat said; exit 1; }}
ls -d magnetar-geo-*
{steps}
kill -{signal} $geo
wait $geo
trap - EXIT
cat said
"""


@pytest.mark.parametrize("signal", ["INT", "TERM"])
def test_what_it_says_of_three_clusters_works(tmp_path: Path, signal: str) -> None:
    begin, *steps = blocks_of(PAGE, 2)
    assert begin == "make geo &"
    made = subprocess.run(
        ["make", "-n", "--no-print-directory", "geo"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert made.splitlines()[-1].split()[2:] == ["tools/geo.py"]
    ports = {str(known): str(free_port()) for known in (6650, 6651, 6652, 8080, 8081, 8082)}
    binary, http = (",".join(ports[f"{start}{n}"] for n in range(3)) for start in ("665", "808"))
    tool = [sys.executable, str(ROOT / "tools" / "geo.py"), "--binary-ports", binary, "--http-ports", http]
    text = re.sub("|".join(ports), lambda found: ports[found[0]], "\n\n".join(steps))
    # A shell that runs a script has its background jobs ignore SIGINT; the tool catches it all the same.
    done = run(_THREE.format(start=shlex.join(tool), steps=text, signal=signal), tmp_path)
    assert done.stdout.count("from the east") == 2
    assert done.stdout.count("from the north") == 1
    assert re.search(r"shop/orders/new +(east|west) \d+\.\d s, \d.*; (east|west) ", done.stdout)
    assert done.stdout.rstrip().endswith("ending the three brokers ...")
    assert not list(tmp_path.glob("magnetar-geo-*"))
    for port in ports.values():
        with socket.socket() as tried:
            assert tried.connect_ex(("127.0.0.1", int(port)))


def test_a_port_that_is_taken_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                sys.executable,
                str(ROOT / "tools" / "geo.py"),
                "--http-ports",
                f"{free_port()},{port},{free_port()}",
                "--binary-ports",
                f"{free_port()},{free_port()},{free_port()}",
            ],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"geo: port {port} of 127.0.0.1 cannot be used")
    assert not list(tmp_path.iterdir())
