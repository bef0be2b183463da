"""The metadata stores of a cluster: ZooKeeper, one of its own and one that clusters share, or both in one."""

from __future__ import annotations

import asyncio

from magnetar.io.interfaces import Io
from magnetar.io.real import real_io
from magnetar.metadata.divided import DividedStore
from magnetar.metadata.interface import MetadataStore
from magnetar.metadata.zookeeper.address import EnsembleAddress
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore
from magnetar.server.cluster_setup import ClusterSetup, set_up_cluster

_PATIENCE_SECONDS = 30.0


async def open_metadata(
    io: Io,
    local: EnsembleAddress,
    configuration: EnsembleAddress,
    timeout_ms: int,
    *,
    wait_seconds: float,
) -> tuple[ZooKeeperMetadataStore, MetadataStore]:
    """The local store, and all metadata as one store: to close that one is enough.

    :raises MetadataError: one of them does not answer in time
    """
    outside = Outside(io.loop, io.clock, io.randomness, io.network)
    session = SessionSettings(timeout_ms)
    own = await ZooKeeperMetadataStore.open_store(outside, local, session, wait_seconds=wait_seconds)
    if configuration == local:
        return own, own
    try:
        shared = await ZooKeeperMetadataStore.open_store(
            outside, configuration, session, wait_seconds=wait_seconds
        )
    except BaseException:
        await own.close()
        raise
    return own, DividedStore(own, shared)


def set_up_stores(
    local: EnsembleAddress,
    configuration: EnsembleAddress,
    setup: ClusterSetup,
    bookkeeper: EnsembleAddress,
    *,
    own_bookkeeper: bool,
    timeout_ms: int,
) -> None:
    """Sets a cluster up, in a loop of its own.

    :raises SetupContradicts: something else is there already
    :raises MetadataError: a store does not answer, or refused
    """

    async def work(io: Io) -> None:
        own, metadata = await open_metadata(
            io, local, configuration, timeout_ms, wait_seconds=_PATIENCE_SECONDS
        )
        try:
            await set_up_cluster(
                own, metadata, setup, bookkeeper, io.randomness, own_bookkeeper=own_bookkeeper
            )
        finally:
            await metadata.close()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work(real_io(loop, ".")))
    finally:
        loop.close()
