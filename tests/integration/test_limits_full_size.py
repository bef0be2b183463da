"""The limits at the size the design names: thousands of connections that cost the broker little."""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from raw_client import Client, command, entry_of
from server import Server

from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

pytestmark = pytest.mark.alone

HALF_FRAMES = 5_000
STALLED = 1_000
MOST_MIB = 400


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """As many open sockets as the system allows, for this process and the broker it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 8_000:
        pytest.skip(f"no more than {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_mib(server: Server) -> float:
    """At most, since it started."""
    text = Path(f"/proc/{server.pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def exchange(client: Client, producer: int, consumer: int, count: int) -> None:
    """A well-behaved client goes on."""
    for number in range(count):
        payload = b"%d" % number
        assert client.published(producer, [payload])
        found, received = client.message(consumer)
        assert received == payload
        client.acknowledge(consumer, [found.message_id])


def test_thousands_of_half_frames(start_server, topic: str) -> None:  # type: ignore[no-untyped-def]
    server: Server = start_server()
    good = Client(server.port)
    producer, _ = good.produce(topic)
    consumer = good.subscribe(topic, "good", permits=10_000)
    greeting = encode_command(command(BaseCommand.CONNECT, client_version="half", protocol_version=21))
    # 80 MB in all, were they all read: more than the limit.
    half = greeting + struct.pack(">II", 5 << 20, 100) + b"\x08\x06" + bytes(16 << 10)
    hostile = []
    for number in range(HALF_FRAMES):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.send(half)
        hostile.append(connection)
        if number % 500 == 0:
            exchange(good, producer, consumer, 10)
    exchange(good, producer, consumer, 200)
    status, body = server.ask("GET", "/metrics")
    assert status == 200
    held = next(
        line for line in body.decode().splitlines() if line.startswith("magnetar_partial_frame_bytes")
    )
    assert 0 < float(held.split()[-1]) <= 96 << 20
    assert resident_mib(server) < MOST_MIB
    for connection in hostile:
        connection.close()
    exchange(good, producer, consumer, 10)
    server.stop()


def test_a_thousand_consumers_that_read_nothing(start_server, topic: str) -> None:  # type: ignore[no-untyped-def]
    server: Server = start_server()
    good = Client(server.port)
    producer, _ = good.produce(topic)
    stalled = []
    for number in range(STALLED):
        client = Client(server.port)
        client.subscribe(topic, f"stalled-{number}", CommandSubscribe.Exclusive, permits=100_000)
        stalled.append(client)
    consumer = good.subscribe(topic, "good", permits=10_000)
    for number in range(80):
        good.publish(producer, number, entry_of(os.urandom(100_000)))
        good.message(consumer, 60)
    for _ in range(80):
        good.take(BaseCommand.SEND_RECEIPT)
    assert resident_mib(server) < MOST_MIB
    other, _ = good.produce(topic + "-other")
    quick = good.subscribe(topic + "-other", "good", permits=10_000)
    exchange(good, other, quick, 100)
    for client in stalled:
        client.close()
    exchange(good, other, quick, 10)
    server.stop()


def test_a_thousand_consumers_that_take_nothing_of_a_backlog(start_server, topic: str) -> None:  # type: ignore[no-untyped-def]
    """Each had begun to read a MiB before any of it counted as unsent."""
    server: Server = start_server()
    good = Client(server.port)
    keeper = good.subscribe(topic, "keeper")
    producer, _ = good.produce(topic)
    good.published(producer, [os.urandom(100_000) for _ in range(100)])
    stalled = [Client(server.port) for _ in range(STALLED)]
    for number, client in enumerate(stalled):
        client.subscribe(topic, f"stalled-{number}", CommandSubscribe.Exclusive, consumer_id=1)
    for client in stalled:
        client.flow(1, 100_000)
    good.send(command(BaseCommand.PING))
    good.take(BaseCommand.PONG, 60.0)
    good.flow(keeper, 1000)
    for _ in range(100):
        good.message(keeper, 60.0)
    assert resident_mib(server) < MOST_MIB
    # What waits for a slow client comes when it reads.
    assert len(stalled[-1].messages(1, 100)) == 100
    for client in stalled:
        client.close()
    server.stop()
