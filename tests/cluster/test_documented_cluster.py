"""The tour of docs/cluster.md: each of its commands is run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from bookkeeper_servers import BookKeeperServers
from ports import free_port

from magnetar.metadata.divided import SHARED_ROOTS

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
_SERVES = "magnetar broker --config broker.conf --wait 120 &"
_WAIT = """magnetar broker --config broker.conf --wait 120 > said 2> log &
trap 'kill %1; wait' EXIT
for _ in $(seq 600); do grep -q "is serving" said && break; sleep 0.1; done
grep "is serving" said"""


def script(servers: BookKeeperServers) -> str:
    tour = PAGE.read_text("utf-8").split("\n## ")[1]
    blocks = re.findall(r"(?:^    .*\n|^\n)+", tour, re.MULTILINE)
    text = "\n\n".join(
        "\n".join(line.removeprefix("    ") for line in block.splitlines()).strip() for block in blocks
    )
    for known, free in ((6650, free_port()), (8080, free_port()), (2181, servers.zookeeper.port)):
        text = text.replace(str(known), str(free))
    # A cluster of its own, on the bookies of the suite.
    text = text.replace(
        f"zk:127.0.0.1:{servers.zookeeper.port}", f"zk:127.0.0.1:{servers.zookeeper.port}/tour"
    )
    text = text.replace(
        "\nEND\n", f"\nbookkeeperMetadataServiceUri=metadata-store:{servers.metadata_store}\nEND\n"
    )
    assert text.count(_SERVES) == 1
    return "set -euxo pipefail\n" + text.replace(_SERVES, _WAIT)


def test_what_it_says_works(cluster: BookKeeperServers, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("PULSAR_CLIENT_CONF", None)
    done = subprocess.run(
        ["bash", "-c", script(cluster)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert "order 1" in done.stdout
    assert '"ledgers"' in done.stdout


def test_it_names_what_clusters_share() -> None:
    page = PAGE.read_text("utf-8")
    assert all(f"`{root}`" in page for root in SHARED_ROOTS)
