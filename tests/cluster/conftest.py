"""Apache ZooKeeper, one server for each module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from zookeeper_server import ZooKeeperServer

from magnetar.io.real import real_io
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

TIMEOUT_MS = 5000


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
        yield server
    finally:
        server.close()


async def opened(address: str) -> ZooKeeperMetadataStore:
    io = real_io(asyncio.get_running_loop(), Path("/"))
    outside = Outside(io.loop, io.clock, io.randomness, io.network)
    return await ZooKeeperMetadataStore.open_store(
        outside, ensemble_address(address), SessionSettings(TIMEOUT_MS), wait_seconds=30
    )
