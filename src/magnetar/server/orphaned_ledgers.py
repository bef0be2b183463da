"""Finds, and optionally deletes, ledgers of a cluster without a metadata record that refers to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import Settings
from magnetar.ledger.interface import LedgerMetadata
from magnetar.managed_ledger.orphans import OrphanSearch, owner_of
from magnetar.server.export_ledgers import cluster_side

_HOUR_MS = 3_600_000


def orphaned_ledgers(
    settings: Settings,
    cluster: ClusterSettings,
    hours: int,
    tell: Callable[[str], None],
    *,
    delete: bool,
) -> int:
    """Searches for orphaned ledgers, while brokers may serve; returns their number.

    :param hours: minimum age of orphaned ledgers in hours; the record that refers to a younger ledger may
        not be written yet
    :param tell: called with a sentence about each ledger
    :raises NotExported: the cluster does not exist
    :raises LedgerError: the ledger store cannot be opened, or a ledger cannot be examined
    :raises MetadataError: the metadata store does not answer
    :raises ManagedLedgerError: a record cannot be read, so that its ledgers are unknown
    """
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_work(loop, settings, cluster, hours, tell, delete=delete))
    finally:
        loop.close()


async def _work(
    loop: asyncio.AbstractEventLoop,
    settings: Settings,
    cluster: ClusterSettings,
    hours: int,
    tell: Callable[[str], None],
    *,
    delete: bool,
) -> int:
    async with cluster_side(loop, settings, cluster, check=True) as side:
        broker = side.broker
        search = OrphanSearch(
            side.ledgers, side.metadata, broker.schemas.storage.ledger_ids, broker.packages.ledger_ids
        )
        candidates = await side.ledgers.ledger_ids()
        found = await search.find(candidates, side.io.clock.wall_ms() - hours * _HOUR_MS)
        for orphan in found:
            if delete and await search.is_orphan(orphan):
                await side.ledgers.delete(orphan.ledger_id)
                tell(f"{_described(orphan)}: deleted")
            else:
                tell(_described(orphan))
        return len(found)


def _described(orphan: LedgerMetadata) -> str:
    made = datetime.fromtimestamp(orphan.ctime_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    return f"ledger {orphan.ledger_id}, created {made} for {owner_of(orphan)}, {orphan.state.value}"
