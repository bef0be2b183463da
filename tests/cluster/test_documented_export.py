"""The tour of docs/export-ledgers.md: each of its commands is run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from bookkeeper_servers import CLUSTER, BookKeeperServers
from ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "export-ledgers.md"


def script(servers: BookKeeperServers) -> str:
    tour = PAGE.read_text("utf-8").split("\n## ")[1]
    blocks = re.findall(r"(?:^    .*\n|^\n)+", tour, re.MULTILINE)
    text = "\n\n".join(
        "\n".join(line.removeprefix("    ") for line in block.splitlines()).strip() for block in blocks
    )
    for known, free in ((6650, free_port()), (8080, free_port()), (2181, servers.zookeeper.port)):
        text = text.replace(str(known), str(free))
    text = text.replace("clusterName=lab", f"clusterName={CLUSTER}").replace("orders", "exported-orders")
    # Whoever starts a broker by hand sees when it serves.
    wait = '> said 2>> log &\nfor _ in $(seq 600); do grep -q "is serving" said && break; sleep 0.1; done'
    text, servers_started = re.subn(
        r"^(magnetar (?:standalone|broker) .*) &$", rf"\1 {wait}", text, flags=re.M
    )
    assert servers_started == 2
    return "set -euxmo pipefail\ntrap 'kill $(jobs -p) || true; wait' EXIT\n" + text


def test_what_it_says_works(without_brokers: BookKeeperServers, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("PULSAR_CLIENT_CONF", None)
    done = subprocess.run(
        ["bash", "-c", script(without_brokers)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    told = [text.partition("content:")[2] for text in done.stdout.splitlines() if "content:" in text]
    assert told == ["order 1", "order 2", "order 3"]
    assert "exportable: persistent://public/default/exported-orders" in done.stdout
    assert done.stdout.count("exported: persistent://public/default/exported-orders") == 2
