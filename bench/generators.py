"""The three generators: this project's pulsar-perf, Pulsar's own in Java, and the official Python client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.servers import Server, java_command
from magnetar.admin_client import AdminClient, NotFound

_SENT = re.compile(r"Aggregated throughput stats --- (\d+) records sent")
_RECEIVED = re.compile(r"Aggregated throughput stats --- (\d+) records received")
_JAVA_MEMORY = ["-Xmx1g", "-XX:MaxDirectMemorySize=1g"]
_JAVA_START_SECONDS = 6.0
_JAVA_CONSUMER_SECONDS = 60.0


class Void(Exception):
    """A run without valid figures: it lost, duplicated or left messages, or did not end."""


def perf(
    server: Server, command: str, topic: str, *flags: str, tls: bool = False, timeout: float = 300
) -> dict[str, Any]:
    """Runs this project's ``pulsar-perf``; returns its figures.

    :param tls: use the TLS port
    :raises Void: the tool reported a void run, or failed
    """
    arguments = [sys.executable, "-m", "magnetar.cli.pulsar_perf", command, topic, "--raw", *flags]
    through = ["-u", server.tls_url, "--trust-cert-file", str(server.certificate)]
    arguments += [*(through if tls else ("-u", server.url)), "--server-pid", str(server.pid), "--json", "-"]
    if command in ("run", "produce"):
        arguments += ["-au", server.admin_url]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)
    if ended.returncode:
        raise Void(f"pulsar-perf {command} ended with {ended.returncode}: {ended.stderr.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(ended.stdout)
    return figures


def start_perf(server: Server, command: str, topic: str, *flags: str) -> subprocess.Popen[bytes]:
    """Starts ``pulsar-perf`` in the background; the caller ends it."""
    arguments = [sys.executable, "-m", "magnetar.cli.pulsar_perf", command, topic, "--raw", *flags]
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*arguments, "-u", server.url], stdout=quiet, stderr=quiet)


def _wait_for_consumer(server: Server, topic: str) -> None:
    """Waits for a consumer, because earlier messages would be lost.

    :raises Void: no consumer connected
    """
    admin, end = AdminClient(server.admin_url), time.monotonic() + _JAVA_CONSUMER_SECONDS
    while time.monotonic() < end:
        try:
            subscriptions = admin.topic_stats(topic)["subscriptions"].values()
        except NotFound:
            subscriptions = ()
        if any(consumer["availablePermits"] > 0 for s in subscriptions for consumer in s["consumers"]):
            return
        time.sleep(0.2)
    raise Void(f"no consumer came within {_JAVA_CONSUMER_SECONDS:g} s")


class JavaPerf:
    """Pulsar's own ``pulsar-perf``: a producer and a consumer, each a JVM."""

    def __init__(self, jars: Path, folder: Path) -> None:
        self._jars = jars
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _command(self, server: Server, *arguments: str) -> list[str]:
        config = self._folder / "client.conf"
        config.write_text(f"webServiceUrl={server.admin_url}/\nbrokerServiceUrl={server.url}/\n")
        command = java_command(self._jars, self._folder, _JAVA_MEMORY, "warn")
        command += [f"-Dpulsar.perf.home={self._folder}"]
        return [*command, "org.apache.pulsar.testclient.PulsarPerfTestTool", str(config), *arguments]

    def run(
        self, server: Server, topic: str, seconds: float, *flags: str, lossy: bool = False
    ) -> dict[str, Any]:
        """Publishes and consumes; without ``-r`` as fast as receipts allow.

        Server CPU is that of the whole run.

        :param lossy: whether messages may be lost, which a figure counts

        :raises Void: messages were lost, and it is not lossy
        """
        whole = str(int(seconds))
        consuming = str(int(seconds + _JAVA_START_SECONDS + 6))
        consume = self._command(server, "consume", "-u", server.url, "-ss", "s", "-time", consuming, topic)
        open_loop = () if "-r" in flags else ("-r", "10000000")
        produce = self._command(
            server, "produce", "-u", server.url, *open_loop, "-time", whole, *flags, topic
        )
        with subprocess.Popen(
            consume, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as consumer:
            time.sleep(_JAVA_START_SECONDS)
            if lossy:
                _wait_for_consumer(server, topic)
            before = server.cpu_seconds()
            producer = subprocess.run(
                produce, capture_output=True, text=True, timeout=seconds + 120, check=False
            )
            received_text, _ = consumer.communicate(timeout=120)
            spent = server.cpu_seconds() - before
        sent, received = _SENT.search(producer.stdout), _RECEIVED.search(received_text)
        if sent is None or received is None:
            tails = (text[-300:] for text in (producer.stdout, producer.stderr, received_text))
            raise Void(f"no figures: {' / '.join(tails)}")
        messages = int(sent[1])
        lost = max(0, messages - int(received[1]))
        if messages == 0 or lost == messages or (lost and not lossy):
            raise Void(f"{messages} were sent, {received[1]} came")
        return {
            "server_cpu_us_per_message": spent / messages * 1e6,
            "publish_rate": messages / seconds,
            "messages": messages,
            "lost": lost,
        }


def python_client(server: Server, mode: str, *arguments: str, timeout: float = 300) -> dict[str, Any]:
    """Runs the official Python client in a separate process; see :mod:`bench.python_client`."""
    command = [sys.executable, "-m", "bench.python_client", mode, server.url, "--server-pid", str(server.pid)]
    ended = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    if ended.returncode:
        raise Void(f"the Python client ended with {ended.returncode}: {ended.stderr.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return figures
