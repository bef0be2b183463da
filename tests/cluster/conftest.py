"""Apache ZooKeeper, one server for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from zookeeper_server import ZooKeeperServer


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
        yield server
    finally:
        server.close()
