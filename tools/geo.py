"""Runs three clusters on this machine that replicate to each other, to try geo-replication.

``python tools/geo.py`` starts the standalone brokers east, west and north on 127.0.0.1, connects each with
the others by ``pulsar-admin``, and prints how to use them. They run until SIGINT, SIGTERM or SIGHUP; then the
tool ends them and removes their data.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import Running, Trouble, is_healthy, magnetar, properties, wait_for

NAMES = ("east", "west", "north")
NAMESPACE = "shop/orders"
_BINARY_PORTS = (6650, 6651, 6652)
_HTTP_PORTS = (8080, 8081, 8082)
_LOOK_SECONDS = 0.2


class Stopped(Exception):
    """A signal has requested the end."""


class Stop:
    """Whether a signal has requested the end; checked between steps, so that no process is left behind."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self._asked = True

    def check(self) -> None:
        """:raises Stopped: a signal has requested the end"""
        if self._asked:
            raise Stopped


@dataclass(frozen=True)
class Cluster:
    name: str
    binary_port: int
    http_port: int

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.binary_port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"


def start(running: Running, stop: Stop, clusters: Sequence[Cluster]) -> None:
    """:raises Trouble: a port is in use, or a broker does not start"""
    for port in [port for each in clusters for port in (each.binary_port, each.http_port)]:
        check_free(port)
    for each in clusters:
        config = properties(running.folder / each.name / "standalone.conf", {"clusterName": each.name})
        ports = ["--binary-port", str(each.binary_port), "--http-port", str(each.http_port)]
        place = ["--bind-address", "127.0.0.1", "--data-dir", str(config.parent / "data")]
        running.start(each.name, [*magnetar("standalone", config), *place, *ports], config.parent)

    def ready(cluster: Cluster) -> bool:
        stop.check()
        return is_healthy(cluster.http_port)

    for each in clusters:
        wait_for(running, lambda each=each: ready(each), each.name)  # type: ignore[misc]


def check_free(port: int) -> None:
    """:raises Trouble: the port is in use"""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise Trouble(
                f"port {port} of 127.0.0.1 cannot be used ({error.strerror}): end what uses it, or choose "
                "other ports with --binary-ports and --http-ports"
            ) from error


def commands(clusters: Sequence[Cluster]) -> Iterator[list[str]]:
    """Yields the commands for a mesh, in which each cluster has a record of every other one."""
    names = ",".join(each.name for each in clusters)
    tenant = NAMESPACE.partition("/")[0]
    for each in clusters:
        admin = ["pulsar-admin", "--admin-url", each.http_url]
        for other in clusters:
            if other is not each:
                addresses = ["--url", other.http_url, "--broker-url", other.url]
                yield [*admin, "clusters", "create", other.name, *addresses]
        yield [*admin, "tenants", "create", tenant, "--allowed-clusters", names]
        yield [*admin, "namespaces", "create", NAMESPACE, "--clusters", names]


def connect(stop: Stop, clusters: Sequence[Cluster]) -> None:
    """Runs the commands and prints them. :raises Trouble: a command fails"""
    environment = {**os.environ}
    environment.pop("PULSAR_CLIENT_CONF", None)
    for words in commands(clusters):
        say(shlex.join(words))
        program = str(Path(sys.executable).parent / words[0])
        done = subprocess.run(
            [program, *words[1:]], capture_output=True, text=True, check=False, env=environment
        )
        stop.check()
        if done.returncode:
            raise Trouble(f"{shlex.join(words)} failed:\n{done.stdout}{done.stderr}")


def usage(clusters: Sequence[Cluster]) -> str:
    first, *others = clusters
    topic = f"persistent://{NAMESPACE}/new"
    lines = ["", "Each cluster sends what is published in it to the others:"]
    lines += [f"    {each.name:6} {each.url}  {each.http_url}" for each in clusters]
    lines += ["", "Subscribe in two of them, then publish in the third:"]
    lines += [
        f"    pulsar-client --url {each.url} consume -s billing -p Earliest {topic} &" for each in others
    ]
    lines += [
        f'    pulsar-client --url {first.url} produce -m "order 1" {topic}',
        "",
        "See how far the other clusters are behind:",
        f"    magnetar top --once --admin-url {first.http_url}",
        "",
        "Ctrl-C ends the three brokers and removes their data.",
    ]
    return "\n".join(lines)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(folder: Path, clusters: Sequence[Cluster]) -> None:
    """Runs until a signal. :raises Trouble: a broker does not start, or ends by itself"""
    stop = Stop()
    running = Running(folder)
    try:
        start(running, stop, clusters)
        connect(stop, clusters)
        say(usage(clusters))
        while True:
            stop.check()
            running.check()
            time.sleep(_LOOK_SECONDS)
    except Stopped:
        say("ending the three brokers ...")
    finally:
        running.end()
        shutil.rmtree(folder)


def ports(text: str) -> list[int]:
    found = [int(port) for port in text.split(",")]
    if len(found) != len(NAMES):
        raise argparse.ArgumentTypeError(f"{text} is not {len(NAMES)} ports separated by commas")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary-ports", type=ports, default=_BINARY_PORTS, help="6650,6651,6652")
    parser.add_argument("--http-ports", type=ports, default=_HTTP_PORTS, help="8080,8081,8082")
    parsed = parser.parse_args()
    clusters = [Cluster(*each) for each in zip(NAMES, parsed.binary_ports, parsed.http_ports, strict=True)]
    try:
        run(Path(tempfile.mkdtemp(prefix="magnetar-geo-")), clusters)
    except Trouble as error:
        sys.stderr.write(f"geo: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
