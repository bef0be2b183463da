"""Compares messages over WebSocket with Apache Pulsar: served by a broker, and by a separate process.

    python -m bench.websocket [--rate 1000] [--seconds 20] [--rounds 3] [--jars JARS]

Prints JSON; ``docs/websocket.md`` has the figures. JARS is a folder with Apache Pulsar's jars, those of
``pulsar-websocket`` among them; without it Maven fetches them. One producer publishes at a fixed rate, one
consumer acknowledges each message. Processor time is that of the broker with its WebSockets, or of the
separate process alone. Both separate processes use Magnetar's broker, so that only they differ. The first
round of a JVM is a warm-up and does not count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.conditions import conditions
from bench.peer_jars import add_jars, chosen_jars
from bench.servers import SHIPPED, SMALL, ApachePulsar, Magnetar, Server, java_command


@dataclass
class Before(Server):
    """A WebSocket process in front of one broker."""

    broker: Server = field(kw_only=True)

    def config(self) -> Path:
        settings: dict[str, object] = {
            "clusterName": "standalone",
            "serviceUrl": self.broker.admin_url,
            "brokerServiceUrl": self.broker.url,
            "bindAddress": "127.0.0.1",
            "webServicePort": self.http_port,
            "statusFilePath": str(self.folder / "in-rotation"),
        }
        (self.folder / "in-rotation").touch()
        path = self.folder / "websocket.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _serves(self) -> bool:
        return self._answers("/status.html")


@dataclass
class MagnetarWebSockets(Before):
    def command(self) -> list[str]:
        return [sys.executable, "-m", "magnetar", "websocket", "--config", str(self.config())]


@dataclass
class ApacheWebSockets(Before):
    jars: Path = field(kw_only=True)

    def command(self) -> list[str]:
        command = java_command(self.jars, self.folder, SMALL, "warn")
        return [*command, "org.apache.pulsar.websocket.service.WebSocketServiceStarter", str(self.config())]


def measured(server: Server, options: argparse.Namespace, seconds: int) -> dict[str, Any]:
    before = server.cpu_seconds()
    address = f"ws://127.0.0.1:{server.http_port}"
    numbers = map(str, (options.rate, seconds, options.size))
    done = subprocess.run(
        [sys.executable, "-m", "bench.websocket_load", address, *numbers],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    used = server.cpu_seconds() - before
    return found | {"µs of processor a message": round(used / found["messages"] * 1e6, 1)}


def table(servers: list[Server], options: argparse.Namespace) -> dict[str, Any]:
    for server in servers:
        measured(
            server, options, options.seconds if isinstance(server, ApachePulsar | ApacheWebSockets) else 1
        )
    rounds: dict[str, list[dict[str, Any]]] = {server.title: [] for server in servers}
    for _ in range(options.rounds):
        for server in servers:
            rounds[server.title].append(measured(server, options, options.seconds))
    return {
        title: {key: median(each[key] for each in found) for key in found[0]}
        for title, found in rounds.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="messages a second")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a message")
    add_jars(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="websockets-") as folder:
        root = Path(folder)
        jars = chosen_jars(options)
        broker = Magnetar("magnetar", "Magnetar, by the broker", "magnetar", root / "broker")
        title = "Magnetar, by a process before it"
        beside = MagnetarWebSockets("beside", title, "magnetar", root / "beside", broker=broker)
        apache = ApachePulsar(
            "apache", "Apache Pulsar, by the broker", "pulsar", root / "apache", jars=jars, memory=SHIPPED
        )
        theirs = ApacheWebSockets(
            "theirs",
            "Apache's process before Magnetar's broker",
            "pulsar",
            root / "theirs",
            broker=broker,
            jars=jars,
        )
        servers: list[Server] = [broker, beside, apache, theirs]
        try:
            for server in servers:
                server.start()
            found = {
                **conditions(),
                **table(servers, options),
            }
        finally:
            for server in reversed(servers):
                server.stop()
    sys.stdout.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
