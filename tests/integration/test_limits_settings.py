"""Pulsar's limits on what clients may make the broker hold, over real sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from raw_client import Client, command, entry_of
from server import Server

from magnetar.protocol.frames import encode_with_payload
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

MIB = 1 << 20


def figure(server: Server, name: str) -> float:
    """One number of the broker's own metrics."""
    status, body = server.ask("GET", "/metrics")
    assert status == 200
    line = next(line for line in body.decode().splitlines() if line.startswith(name + "{"))
    return float(line.split()[-1])


def highest_while(server: Server, name: str, work: Callable[[], None]) -> tuple[float, int]:
    """The highest value that was seen while work went on, and how often it was looked at."""
    thread = threading.Thread(target=work)
    thread.start()
    highest, looks = 0.0, 0
    while thread.is_alive():
        highest = max(highest, figure(server, name))
        looks += 1
    thread.join()
    return highest, looks


def flood(client: Client, producer: int, count: int, size: int) -> Callable[[], None]:
    """Publishes as fast as the broker reads, and then takes the receipts, in order."""
    entry = entry_of(os.urandom(size))
    frames = [
        encode_with_payload(command(BaseCommand.SEND, producer_id=producer, sequence_id=number), entry)
        for number in range(count)
    ]

    def run() -> None:
        sender = threading.Thread(target=lambda: [client.send_bytes(frame) for frame in frames])
        sender.start()
        for number in range(count):
            assert client.take(BaseCommand.SEND_RECEIPT, 60.0).sequence_id == number
        sender.join()

    return run


@pytest.mark.parametrize(("limit", "most"), [(1, 4 * MIB), (64, 80 * MIB)])
def test_publishes_that_are_not_durable_are_bounded(start_server, limit: int, most: int) -> None:  # type: ignore[no-untyped-def]
    server = start_server(
        maxMessagePublishBufferSizeInMB=limit, maxPendingPublishRequestsPerConnection=10_000
    )
    client = Client(server.port)
    producer, _ = client.produce("persistent://public/default/flood")
    work = flood(client, producer, 100, 2 * MIB)
    highest, looks = highest_while(server, "magnetar_publish_buffer_bytes", work)
    assert looks > 3
    assert 0 < highest <= most
    assert figure(server, "magnetar_publish_buffer_bytes") == 0


@pytest.mark.parametrize(("limit", "count"), [(10, 10_000), (1_000, 40_000)])
def test_pending_publishes_of_a_connection_are_bounded(start_server, limit: int, count: int) -> None:  # type: ignore[no-untyped-def]
    server = start_server(maxPendingPublishRequestsPerConnection=limit)
    client = Client(server.port)
    producer, _ = client.produce("persistent://public/default/flood")
    work = flood(client, producer, count, 1_000)
    highest, looks = highest_while(server, "magnetar_pending_publishes", work)
    assert looks > 3
    assert 0 < highest <= limit
    assert figure(server, "magnetar_pending_publishes") == 0


@pytest.mark.parametrize("limit", [1, 64])
def test_cached_entries_are_bounded(start_server, limit: int) -> None:  # type: ignore[no-untyped-def]
    server = start_server(managedLedgerCacheSizeMB=limit)
    client = Client(server.port)
    topic = "persistent://public/default/cached"
    client.subscribe(topic, "behind")
    producer, _ = client.produce(topic)
    client.published(producer, [os.urandom(MIB) for _ in range(20)])
    used = figure(server, "pulsar_ml_cache_used_size")
    assert used <= limit * MIB
    # With room for them all they are there.
    assert limit == 1 or used >= 15 * MIB


def test_catching_up_of_many_reads_a_bounded_amount_at_once(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(managedLedgerCacheSizeMB=1, managedLedgerMaxReadsInFlightSizeInMB=1)
    client = Client(server.port)
    topic = "persistent://public/default/behind"
    keeper = client.subscribe(topic, "keeper")
    producer, _ = client.produce(topic)
    payloads = [os.urandom(MIB // 2) for _ in range(16)]
    client.published(producer, payloads)
    readers = [Client(server.port) for _ in range(20)]
    for number, reader in enumerate(readers):
        reader.subscribe(topic, f"s{number}", consumer_id=1, permits=100)
    for reader in readers:
        assert [text for _m, text in reader.messages(1, len(payloads))] == payloads
    client.flow(keeper, 100)
    assert [text for _m, text in client.messages(keeper, len(payloads))] == payloads
