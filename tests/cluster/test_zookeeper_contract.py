"""The contract of metadata stores, on Apache ZooKeeper: the tests that all stores pass."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest
from zookeeper_server import ZooKeeperServer, opened

from magnetar.metadata.interface import MetadataStore

sys.path.append(str(Path(__file__).parents[1] / "unit" / "metadata"))
from test_metadata_contract import *  # noqa: F403 - all of its tests, with another fixture

_roots = count()


@pytest.fixture
def run(zookeeper: ZooKeeperServer) -> Callable[..., None]:
    """Runs lives of a store, one after the other, each closed at its end, below a root of their own."""
    address = f"zk:{zookeeper.address}/contract/{next(_roots)}"

    def run_lives(*lives: Callable[[MetadataStore], Awaitable[None]]) -> None:
        async def scenario() -> None:
            for life in lives:
                store = await opened(address)
                try:
                    await life(store)
                finally:
                    await store.close()

        asyncio.run(scenario())

    return run_lives
