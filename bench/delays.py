"""Measures delayed messages: the cost of publishing them, the memory while they wait, and a restart.

``python -m bench.delays`` prints figures as JSON; docs/delayed-delivery.md has the results.
"""

from __future__ import annotations

import argparse
import json
import platform
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from bench.scale_client import Refused, ScaleClient
from bench.scale_server import ScaleServer
from magnetar.protocol.frames import encode_command, encode_with_payload, split
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

_CHUNK = 1000
_CHUNKS = 100
"""Number of different chunks, which are sent repeatedly."""
_IN_FLIGHT = 20
"""Chunks without receipts."""
_DAYS = 30
_DUE = 100
"""Messages that become due while the broker is stopped."""
_AWAY_SECONDS = 10
_SHARED = 1

Figures = dict[str, Any]


def frames(number: int, after_ms: tuple[int, int] | None) -> bytes:
    """Returns a chunk of SENDs, with random delays in the range ``after_ms``. None: without delay."""
    random = Random(number)
    now = int(time.time() * 1000)
    made = []
    for index in range(_CHUNK):
        command = BaseCommand(type=BaseCommand.SEND)
        command.send.producer_id = 1
        command.send.sequence_id = index
        metadata = MessageMetadata(producer_name="delays", sequence_id=index, publish_time=now)
        if after_ms is not None:
            metadata.deliver_at_time = now + random.randrange(*after_ms)
        made.append(encode_with_payload(command, build_entry(metadata, bytes(100))))
    return b"".join(made)


class Publisher:
    """Sends chunks as fast as the broker stores them."""

    def __init__(self, port: int, topic: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._left = b""
        self._waits = 0
        self._ask(BaseCommand.CONNECT, "connect", client_version="delays", protocol_version=21)
        self._ask(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=1, request_id=1)

    def _ask(self, kind: Any, field: str, **fields: Any) -> None:
        command = BaseCommand(type=kind)
        for name, value in fields.items():
            setattr(getattr(command, field), name, value)
        self._socket.sendall(encode_command(command))
        while not self._arrived():
            pass

    def _arrived(self) -> int:
        """Returns the number of received frames."""
        self._left += self._socket.recv(1 << 18)
        count = behind = 0
        for _kind, _start, end in split(self._left, 1 << 20):
            count, behind = count + 1, end
        self._left = self._left[behind:]
        return count

    def publish(self, chunks: list[bytes], count: int) -> None:
        for number in range(count):
            self._socket.sendall(chunks[number % len(chunks)])
            self._waits += _CHUNK
            while self._waits > _IN_FLIGHT * _CHUNK:
                self._waits -= self._arrived()
        while self._waits > 0:
            self._waits -= self._arrived()

    def close(self) -> None:
        self._socket.close()


def publishing(server: ScaleServer, messages: int) -> Figures:
    """Returns the broker's CPU per message, plain and delayed, without subscriptions, in two turns each."""
    figures: Figures = {}
    for turn in range(2):
        for name, after in (("plain", None), ("delayed", (3_600_000, 2_592_000_000))):
            chunks = [frames(number, after) for number in range(10)]
            publisher = Publisher(server.port, f"persistent://public/default/{name}{turn}")
            publisher.publish(chunks, 20)
            before, began = server.cpu_seconds(), time.perf_counter()
            publisher.publish(chunks, messages // _CHUNK)
            seconds, cpu = time.perf_counter() - began, server.cpu_seconds() - before
            publisher.close()
            figures[f"{name} {turn}"] = {
                "messages_per_second": round(messages / seconds),
                "cpu_us_per_message": round(cpu / messages * 1e6, 3),
            }
    return figures


def subscribe(server: ScaleServer, topic: str, permits: int) -> ScaleClient:
    client = ScaleClient(server.port)
    client.request(
        "SUBSCRIBE",
        "subscribe",
        topic=topic,
        subscription="s",
        subType=_SHARED,
        consumer_id=1,
        initialPosition=1,
    )
    client.take("SUCCESS")
    client.send("FLOW", "flow", consumer_id=1, messagePermits=permits)
    return client


def stays(client: ScaleClient) -> None:
    """Answers the broker's PINGs, in a thread, until the connection is closed."""

    def answer() -> None:
        with suppress(Refused, OSError):
            client.take("CLOSE_CONSUMER")

    Thread(target=answer, daemon=True).start()


def delayed(server: ScaleServer, topic: str) -> Figures:
    path = f"/admin/v2/persistent/public/default/{topic.rsplit('/')[-1]}/stats"
    found: Figures = json.loads(server.get(path))["subscriptions"]["s"]
    return found


def settled(server: ScaleServer, topic: str, messages: int) -> float:
    """Returns the seconds until the broker knows all waiting messages."""
    began = time.perf_counter()
    while delayed(server, topic)["msgDelayed"] < messages:
        time.sleep(0.2)
    return time.perf_counter() - began


def waiting(server: ScaleServer, messages: int) -> Figures:
    """Returns the memory of waiting messages, spread over a month, and figures of a restart after a kill."""
    topic = "persistent://public/default/month"
    consumer = subscribe(server, topic, 1000)
    stays(consumer)
    publisher = Publisher(server.port, topic)
    before = server.resident_bytes()
    spread = (3_600_000, _DAYS * 86_400_000)
    chunks = [frames(number, spread) for number in range(_CHUNKS)]
    used, began = server.cpu_seconds(), time.perf_counter()
    publisher.publish(chunks, messages // _CHUNK)
    behind = settled(server, topic, messages)
    seconds, cpu = time.perf_counter() - began, server.cpu_seconds() - used
    after, known = server.resident_bytes(), delayed(server, topic)
    due_at = int(time.time() * 1000) + 1000 * _AWAY_SECONDS
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = 0
    metadata = MessageMetadata(
        producer_name="delays", sequence_id=0, publish_time=due_at, deliver_at_time=due_at
    )
    soon = encode_with_payload(command, build_entry(metadata, bytes(100))) * _CHUNK
    publisher.publish([soon], 1)
    settled(server, topic, messages + _CHUNK)
    publisher.close()
    consumer.close()
    # Messages that are only in memory are read again; the others are in the index.
    server.kill()
    time.sleep(max(0.0, due_at / 1000 - time.time()))
    serving = server.start()
    began_again = time.perf_counter()
    again = subscribe(server, topic, _DUE)
    again.take("MESSAGE")
    first = time.perf_counter() - began_again
    for _ in range(_DUE - 1):
        again.take("MESSAGE")
    last = time.perf_counter() - began_again
    known_again = delayed(server, topic)
    again.close()
    return {
        "messages": messages,
        "seconds": round(seconds, 1),
        "seconds_behind": round(behind, 1),
        "cpu_us_per_message": round(cpu / messages * 1e6, 2),
        "resident_mb_before": round(before / 1e6, 1),
        "resident_mb_after": round(after / 1e6, 1),
        "peak_mb": round(server.peak_bytes() / 1e6, 1),
        "index_mb": round(known["delayedMessageIndexSizeInBytes"] / 1e6, 1),
        "restart_serving_seconds": round(serving, 2),
        "first_due_seconds": round(first, 3),
        "all_due_seconds": round(last, 3),
        "waiting_after_restart": known_again["msgDelayed"],
        "resident_mb_after_restart": round(server.resident_bytes() / 1e6, 1),
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--published", type=int, default=500_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        server = ScaleServer(Path(folder))
        server.start()
        figures: Figures = {"machine": platform.platform(), "python": platform.python_version()}
        try:
            if options.published:
                figures["publishing"] = publishing(server, options.published)
            server.stop()
            server.start()
            figures["waiting"] = waiting(server, options.messages)
        finally:
            server.kill()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
