"""Clients that read slowly, or send half of things: they cost little, and the others go on."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from raw_client import Client, command, entry_of
from raw_connection import RawConnection
from server import MINIATURE, VARIANTS, Server

from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

MIB = 1 << 20


@pytest.fixture(scope="module", params=list(VARIANTS))
def server(request: pytest.FixtureRequest, start_server) -> Server:  # type: ignore[no-untyped-def]
    """Keeps consumed messages, and has room for what is published."""
    return start_server(**VARIANTS[request.param])  # type: ignore[no-any-return]


def resident_mib(server: Server) -> float:
    text = Path(f"/proc/{server.pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def messages_out(server: Server, topic: str, subscription: str) -> int:
    status, body = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
    assert status == 200
    return int(json.loads(body)["subscriptions"][subscription]["msgOutCounter"])


@pytest.mark.parametrize("kind", [CommandSubscribe.Exclusive, CommandSubscribe.Shared])
def test_a_consumer_that_reads_nothing_is_not_written_on_and_on(
    server: Server, topic: str, kind: CommandSubscribe.SubType.ValueType
) -> None:
    """All that was in the cache went into its connection in one turn of the loop."""
    good = Client(server.port)
    keeper = good.subscribe(topic, "keep", permits=1000)
    producer, _ = good.produce(topic)
    slow = Client(server.port)
    consumer = slow.subscribe(topic, "slow", kind, permits=100_000)
    count, size = 300, 100_000
    for number in range(count):
        good.publish(producer, number, entry_of(os.urandom(size)))
    for _ in range(count):
        good.message(keeper)
    # Room in the sockets' own buffers is the kernel's affair: a few MiB at most.
    assert messages_out(server, topic, "slow") * size < 12 * MIB
    # It gets the rest once it reads, permits and order intact.
    slow.messages(consumer, count)


def test_others_on_a_shared_subscription_take_over(server: Server, topic: str) -> None:
    good = Client(server.port)
    slow = Client(server.port)
    slow.subscribe(topic, "s", CommandSubscribe.Shared, permits=100_000)
    quick = good.subscribe(topic, "s", CommandSubscribe.Shared, permits=100_000)
    producer, _ = good.produce(topic)
    for number in range(300):
        good.publish(producer, number, entry_of(os.urandom(100_000)))
    for _ in range(300):
        good.take(BaseCommand.SEND_RECEIPT)
    least = 300 - 12 * MIB // 100_000
    for _ in range(least):
        good.message(quick)
    slow.close()
    for _ in range(300 - least):
        good.message(quick)


def test_a_client_that_takes_no_answers_is_not_read_on_and_on(server: Server) -> None:
    """It could fill the broker's memory with answers it never read."""
    greedy = socket.create_connection(("127.0.0.1", server.port), timeout=2)
    greedy.sendall(encode_command(command(BaseCommand.CONNECT, client_version="greedy", protocol_version=21)))
    # The refusal names the topic, up to a hundred characters of it: the answers are larger than the requests.
    request = encode_command(command(BaseCommand.LOOKUP, topic="none://" + "x" * 90, request_id=1))
    before = resident_mib(server)
    stopped = threading.Event()

    def flood() -> None:
        try:
            for _ in range(2000):
                greedy.sendall(request * 1000)
        except OSError:
            stopped.set()

    thread = threading.Thread(target=flood)
    thread.start()
    good = Client(server.port)
    for _ in range(50):
        good.barrier()
    thread.join()
    assert stopped.is_set(), "200 MB of requests were read and none of their answers"
    assert resident_mib(server) - before < 100
    greedy.close()
    good.barrier()


def test_half_frames_of_many_do_not_hinder_a_good_client(server: Server, topic: str) -> None:
    before = resident_mib(server)
    # 400 MB in all, were they read to where they break off.
    half = struct.pack(">II", 5 * MIB, 100) + b"\x08\x06" + bytes(2 * MIB)
    greeting = encode_command(command(BaseCommand.CONNECT, client_version="half", protocol_version=21))
    hostile = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    senders = [threading.Thread(target=_send_what_goes, args=(c, greeting + half)) for c in hostile]
    for sender in senders:
        sender.start()
    good = Client(server.port)
    producer, _ = good.produce(topic)
    consumer = good.subscribe(topic, "s", permits=100)
    payload = os.urandom(4 * MIB)
    for number in range(5):
        good.publish(producer, number, entry_of(payload))
        assert good.message(consumer)[1] == payload
    assert resident_mib(server) - before < 200
    for connection in hostile:
        # The broker may have closed the oldest: together they are beyond its limit.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    for sender, connection in zip(senders, hostile, strict=True):
        sender.join()
        connection.close()
    good.barrier()


def _send_what_goes(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        # Until the broker reads no more of it and the test is over.
        connection.sendall(data)


def test_many_connections_that_never_say_anything(server: Server, topic: str) -> None:
    silent = [RawConnection(server.port) for _ in range(200)]
    good = Client(server.port)
    producer, _ = good.produce(topic)
    assert good.published(producer, [b"m"] * 50)
    for connection in silent:
        connection.close()


def test_permits_are_kept_while_the_socket_is_full(start_server, topic: str) -> None:  # type: ignore[no-untyped-def]
    server = start_server(**MINIATURE)
    good = Client(server.port)
    producer, _ = good.produce(topic)
    slow = Client(server.port)
    consumer = slow.subscribe(topic, "s", permits=150)
    for number in range(200):
        good.publish(producer, number, entry_of(b"%d:" % number + bytes(100_000)))
    for _ in range(200):
        good.take(BaseCommand.SEND_RECEIPT)
    for number in range(150):
        assert int(slow.message(consumer)[1].split(b":")[0]) == number
    assert slow.count_kept(BaseCommand.MESSAGE) == 0
