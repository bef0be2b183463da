"""Measures how long commands take, and Apache Pulsar's own commands against the same Magnetar broker.

    python -m bench.commands [--rounds 7] [--jars JARS]

Prints JSON: medians of wall and processor seconds of whole processes. JARS is a folder with Apache Pulsar's
jars, those of ``pulsar-client-tools`` among them; without it Maven fetches them. Both take turns. The first
round only brings the files into memory, and does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.conditions import conditions
from bench.peer_jars import add_jars, chosen_jars
from bench.servers import Magnetar
from magnetar.admin_client import AdminClient

_TOPIC = "persistent://public/default/commands"
_ADMIN = ("magnetar.cli.pulsar_admin", "org.apache.pulsar.admin.cli.PulsarAdminTool")
_CLIENT = ("magnetar.cli.pulsar_client", "org.apache.pulsar.client.cli.PulsarClientTool")
_LINES: Sequence[tuple[tuple[str, str], Sequence[str]]] = (
    (_ADMIN, ("tenants", "list")),
    (_ADMIN, ("topics", "list", "public/default")),
    (_ADMIN, ("topics", "stats", _TOPIC)),
    (_ADMIN, ("namespaces", "policies", "public/default")),
    (_ADMIN, ("--help",)),
    (_CLIENT, ("produce", "-m", "hello", _TOPIC)),
    (_CLIENT, ("consume", "-s", "commands", "-p", "Earliest", "-n", "1", _TOPIC)),
)


def run(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Returns wall and processor seconds. :raises CalledProcessError: the command failed"""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, env=environment, capture_output=True)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(server: Magnetar, jars: Path, rounds: int) -> list[dict[str, Any]]:
    config = server.folder / "client.conf"
    config.write_text(f"webServiceUrl={server.admin_url}\nbrokerServiceUrl={server.url}\n")
    environment = {**os.environ, "PULSAR_CLIENT_CONF": str(config)}
    java = ["java", "-cp", f"{jars}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    found = []
    for (ours, theirs), line in _LINES:
        commands = {
            "magnetar": [sys.executable, "-m", ours, *line],
            "apache": [*java, theirs, str(config), *line],
        }
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(rounds + 1):
            for name, command in commands.items():
                runs[name].append(run(command, environment))
        row: dict[str, Any] = {"line": " ".join((ours.rpartition(".")[2].replace("_", "-"), *line))}
        for name, each in runs.items():
            row[name] = {
                "seconds": round(median(wall for wall, _ in each[1:]), 3),
                "processor seconds": round(median(used for _, used in each[1:]), 3),
            }
        row["share of Apache's"] = round(row["magnetar"]["seconds"] / row["apache"]["seconds"], 3)
        found.append(row)
        sys.stderr.write(f"{row}\n")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    add_jars(parser)
    options = parser.parse_args()
    jars = chosen_jars(options)
    with tempfile.TemporaryDirectory(prefix="commands-") as folder:
        server = Magnetar("magnetar", "Magnetar", "magnetar", Path(folder))
        server.start()
        try:
            AdminClient(server.admin_url).create_topic(_TOPIC)
            found = {
                **conditions(),
                "commands": measure(server, jars, options.rounds),
            }
        finally:
            server.stop()
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
