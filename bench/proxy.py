"""Measures what a proxy costs: the same load without a proxy, through Magnetar's and through Apache's.

    python -m bench.proxy [--seconds 6] [--servers magnetar,pulsar] [--jars JARS]

Prints a table for docs/measurements/benchmarks.md. JARS is a folder with Apache Pulsar's jars, those of
``pulsar-proxy`` among them; without it Maven fetches them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peer_jars import add_jars, chosen_jars
from bench.servers import SMALL, Magnetar, Server, java_command

_LOADS: dict[str, list[str]] = {
    "1 KiB, batches, as fast as it goes": ["--size", "1024", "--rate", "0"],
    "1 KiB, one by one, as fast as it goes": ["--size", "1024", "--disable-batching", "--rate", "0"],
    "1 KiB, one by one, 5,000/s": ["--size", "1024", "--disable-batching", "--rate", "5000"],
}


@dataclass
class Proxy(Server):
    """A proxy in front of one broker."""

    broker: Server = field(kw_only=True)

    def settings(self) -> dict[str, object]:
        return {
            "clusterName": "standalone",
            "brokerServiceURL": self.broker.url,
            "brokerWebServiceURL": self.broker.admin_url,
            "brokerProxyAllowedTargetPorts": "*",
            "bindAddress": "127.0.0.1",
            "servicePort": self.port,
            "webServicePort": self.http_port,
        }

    def config(self) -> Path:
        path = self.folder / "proxy.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings().items()))
        return path


class MagnetarProxy(Proxy):
    def command(self) -> list[str]:
        return [sys.executable, "-m", "magnetar", "proxy", "--config", str(self.config())]


@dataclass
class ApacheProxy(Proxy):
    jars: Path = field(kw_only=True)

    def command(self) -> list[str]:
        command = java_command(self.jars, self.folder, SMALL, "warn")
        return [*command, "org.apache.pulsar.proxy.server.ProxyServiceStarter", "-c", str(self.config())]


def measured(server: Server, options: list[str], seconds: int) -> tuple[dict[str, Any], float]:
    """Returns the figures of pulsar-perf, and the processor µs per message of ``server``."""
    before = server.cpu_seconds()
    command = [sys.executable, "-m", "magnetar.cli.pulsar_perf", "produce", "--raw", "--json", "-"]
    command += ["--service-url", server.url, "--admin-url", server.admin_url, "--test-duration", str(seconds)]
    done = subprocess.run(
        [*command, *options, "persistent://public/default/proxied"],
        capture_output=True,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return told, server.cpu_seconds() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--servers", default="magnetar,pulsar", help="whose proxies")
    add_jars(parser)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        broker = Magnetar("magnetar", "no proxy", "magnetar", root / "broker")
        found: list[Server] = [broker]
        named = parsed.servers.split(",")
        if "magnetar" in named:
            found.append(MagnetarProxy("proxy", "Magnetar's proxy", "proxy", root / "proxy", broker=broker))
        if "pulsar" in named:
            jars = chosen_jars(parsed)
            found.append(
                ApacheProxy("apache", "Apache's proxy", "apache", root / "apache", broker=broker, jars=jars)
            )
        try:
            for server in found:
                server.start()
            table(found, parsed.seconds)
        finally:
            for server in reversed(found):
                server.stop()


def table(servers: list[Server], seconds: int) -> None:
    sys.stdout.write(
        "| load | through | messages/s | p50 ms | p99 ms | proxy's µs of processor a message |\n"
    )
    sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
    for load, options in _LOADS.items():
        for server in servers:
            told, used = measured(server, options, seconds)
            cost = "" if isinstance(server, Magnetar) else f"{used / told['published'] * 1e6:.2f}"
            latency = told["publish_latency_ms"]
            figures = f"{told['publish_rate']:,.0f} | {latency['p50']:.2f} | {latency['p99']:.2f}"
            sys.stdout.write(f"| {load} | {server.title} | {figures} | {cost} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
