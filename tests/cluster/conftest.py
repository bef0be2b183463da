"""Apache ZooKeeper, one server for each module that kills it; a cluster with bookies, one for the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bookkeeper_servers import BookKeeperServers
from class_archive import archive_classes
from zookeeper_server import ZooKeeperServer

_RETURN_SECONDS = 15.0


@pytest.fixture(scope="session", autouse=True)
def class_archive(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Makes the suite's JVMs start faster."""
    archive_classes(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookKeeperServers]:
    servers = BookKeeperServers(tmp_path_factory.mktemp("cluster"), bookies=3)
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


@pytest.fixture
def cluster(started_cluster: BookKeeperServers) -> BookKeeperServers:
    """One ZooKeeper and three bookies. What a test stopped is started again for the next one."""
    for server in (started_cluster.zookeeper, *started_cluster.bookies):
        if server.runs and not server.ready_within(_RETURN_SECONDS):
            # Bookies do not come back if a failed test has held them beyond the ends of their sessions.
            server.kill()
        if not server.runs:
            server.launch()
    for server in (started_cluster.zookeeper, *started_cluster.bookies):
        server.wait()
    return started_cluster


@pytest.fixture
def without_brokers(cluster: BookKeeperServers) -> BookKeeperServers:
    """Without what killed brokers leave until their sessions end."""
    cluster.remove_registrations()
    return cluster
