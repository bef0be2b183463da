"""Connections that nothing uses are closed, and opened again for the next request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from server import Server
from tcp_proxy import TcpProxy

from magnetar.client import Client, aio

SECONDS = 15
LATEST = 30.0
"""The time by which an unused connection is closed, on a busy machine."""


@pytest.fixture
def wire(server: Server) -> Iterator[TcpProxy]:
    """All connections of clients pass it: those of lookups, and those of producers."""
    made = TcpProxy(int(server.url.rpartition(":")[2]))
    yield made
    made.close()


async def seconds_until(wire: TcpProxy, connections: int) -> float:
    """Returns the seconds until that number of connections is open."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while wire.connections != connections:
        await asyncio.sleep(0.05)
        assert loop.time() - began < LATEST, f"{wire.connections} connections"
    return loop.time() - began


def test_unused_connections_are_closed(server: Server, wire: TcpProxy, topic: str) -> None:
    async def work() -> None:
        url = f"pulsar://127.0.0.1:{wire.port}"
        async with aio.Client(url, connection_max_idle_seconds=SECONDS) as client:
            blocking = await asyncio.to_thread(Client, url, connection_max_idle_seconds=SECONDS)
            producer = await client.create_producer(topic)
            other = await asyncio.to_thread(blocking.create_producer, topic)
            assert wire.connections == 4, "each client: one for lookups, one for its producer"
            assert await seconds_until(wire, 2) > SECONDS - 1
            assert producer.is_connected()
            assert other.is_connected()
            await producer.send(b"on the connection that is used")
            await asyncio.to_thread(other.send, b"on the other one")
            assert await client.get_topic_partitions(topic) == [topic]
            assert wire.connections == 3
            assert await asyncio.to_thread(blocking.get_topic_partitions, topic) == [topic]
            assert wire.connections == 4
            await asyncio.to_thread(blocking.close)
        await seconds_until(wire, 0)

    asyncio.run(work())
