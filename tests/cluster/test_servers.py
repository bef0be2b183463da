"""The servers that other tests start: three bookies that a ZooKeeper knows."""

from __future__ import annotations

import asyncio

from bookkeeper_servers import BookKeeperServers
from zookeeper_server import opened


def test_bookies_register_under_their_addresses(cluster: BookKeeperServers) -> None:
    async def registered() -> set[str]:
        store = await opened(cluster.metadata_store)
        try:
            return set(await store.children("/ledgers/available"))
        finally:
            await store.close()

    assert asyncio.run(registered()) == {"readonly", *(bookie.address for bookie in cluster.bookies)}


def test_a_killed_bookie_starts_on_what_it_has(cluster: BookKeeperServers) -> None:
    bookie = cluster.bookies[0]
    bookie.kill()
    bookie.start()
    assert bookie.runs


def test_the_shell_reads_the_clusters_metadata(cluster: BookKeeperServers) -> None:
    answer = cluster.shell("whatisinstanceid")
    assert "InstanceId" in answer
