"""Standalone: broker, embedded ledger store and embedded metadata store in one process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.errors import MetadataFailure
from magnetar.http.routing import SnapshotAccess
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import sleep
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.embedded.disk_guard import DiskGuard, DiskState
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.orphans import OrphanedLedgers
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataError, MetadataStore, MetadataUnavailable
from magnetar.metadata.passing_on import MeasuredStore, ResolvingStore
from magnetar.server.broker_process import BrokerSurroundings, ProcessOptions, run_process
from magnetar.server.embedded_stores import METADATA_FILE, SNAPSHOTS, EmbeddedStores
from magnetar.server.serving import ServingBroker, Stores
from magnetar.server.settings import (
    disk_guard_settings,
    embedded_settings,
    entry_cache_settings,
    managed_ledger_settings,
    offload_driver,
)
from magnetar.server.storage_report import StorageReport

if TYPE_CHECKING:
    from magnetar.server.snapshots import Snapshots

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0
_HOUR_MS = 3_600_000
_LONGEST_SECONDS = 3600.0
"""Maximum time in seconds between two checks whether orphaned ledgers are due for deletion."""


def run_standalone(options: ProcessOptions) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code."""
    return run_process("standalone", options, StandaloneBroker)


class StandaloneBroker(ServingBroker):
    """A broker on embedded stores; see :class:`magnetar.server.broker_process.Broker`."""

    def __init__(self, place: BrokerSurroundings) -> None:
        super().__init__(place)
        self._stores: EmbeddedStores | None = None
        self._metadata: MetadataStore | None = None
        self._ledgers: ManagedLedgerFactory | None = None
        self._guard: DiskGuard | None = None
        self._tasks = TaskScope(place.io.loop, "the broker", owner_goes_on)
        self._snapshots: Snapshots | None = None

    async def start(self) -> None:
        io, settings = self._place.io, self._place.settings
        bounds = disk_guard_settings(settings)
        self._guard = DiskGuard(io, io.start_worker("disk-guard"), bounds)
        reserve = settings.min_usable_size_for_high_priority_writes // 4
        opened = self._stores = EmbeddedStores(io, embedded_settings(settings), reserve_bytes=reserve)
        await opened.open()
        store = opened.ledgers
        measured = MeasuredStore(self.wrap_metadata(opened.metadata), io.clock, "metadata-store")
        metadata = self._metadata = ResolvingStore(measured, io.loop)
        wheel = TimerWheel(io.loop)
        ledgers = self._ledgers = ManagedLedgerFactory(
            io,
            wheel,
            store,
            metadata,
            managed_ledger_settings(settings),
            entry_cache_settings(settings),
            offload_driver(settings),
        )
        ledgers.note_offloading = opened.metadata.note_offloading
        candidates = await store.ledger_ids()
        retention_ms = settings.magnetar_orphaned_ledger_retention_hours * _HOUR_MS
        orphans = ledgers.orphaned_ledgers(retention_ms)
        guard = self._guard
        stores = Stores(
            metadata,
            ledgers,
            wheel,
            f"sqlite:{METADATA_FILE}",
            lambda broker: StorageReport(broker, opened, guard, orphans),
            _no_bookies,
            measured=(measured,),
            snapshots=lambda: self._snapshot_access(opened, ledgers),
        )
        if io.disk.exists(SNAPSHOTS) and io.disk.names(SNAPSHOTS):
            # A killed process has left copies of its metadata.
            self._snapshot_access(opened, ledgers)
        broker = await self._serve(stores, lambda known: self._bootstrap(metadata, known))
        self._watch_disk(broker, store)
        self._tasks.start(
            _look_for_orphans(broker, ledgers, orphans, candidates), "the search for orphaned ledgers"
        )

    def wrap_metadata(self, opened: EmbeddedMetadataStore) -> MetadataStore:
        """Returns the metadata store that the broker uses."""
        return opened

    def _snapshot_access(self, stores: EmbeddedStores, ledgers: ManagedLedgerFactory) -> SnapshotAccess:
        if self._snapshots is None:
            # Most brokers never take a snapshot.
            from magnetar.server.snapshots import Snapshots

            self._snapshots = Snapshots(self._place.io, stores, ledgers.write_cursors)
        snapshots = self._snapshots
        return SnapshotAccess(snapshots.take, snapshots.prolong, snapshots.release)

    def _watch_disk(self, broker: BrokerService, store: EmbeddedLedgerStore) -> None:
        """Stops publishing before the device is full, and reclaims space when space is short."""
        guard = self._guard
        assert guard is not None

        def looked() -> None:
            store.hurry(guard.state is not DiskState.ROOM)
            if guard.state is DiskState.FULL:
                broker.upkeep.storage_gate.shut(guard.reason)
            else:
                broker.upkeep.storage_gate.open()

        guard.looked = looked
        store.listen_for_shortage(guard.tell_shortage)
        guard.tell_shortage(store.shortage)
        guard.start()

    async def _bootstrap(self, metadata: MetadataStore, known: BrokerSettings) -> None:
        bundles = self._place.settings.default_number_of_namespace_bundles
        await bootstrap(
            metadata,
            known.cluster,
            known.http_url,
            known.service_url,
            bundles,
            http_url_tls=known.http_url_tls,
            broker_url_tls=known.service_url_tls,
        )

    async def stop(self) -> bool:
        """Stops the broker, also after a failed start. See
        :meth:`magnetar.server.broker_process.Broker.stop`."""
        self._tasks.cancel()
        if self._ledgers is not None:
            self._ledgers.stop_deletions()
        if self._guard is not None:
            self._guard.stop()
        complete = await self._stop_serving()
        if self._snapshots is not None:
            await self._snapshots.close()
        if self._ledgers is not None:
            await self._ledgers.release()
        if self._stores is not None:
            await self._stores.close()
        if self._metadata is not None:
            await self._metadata.close()
        return complete


async def _look_for_orphans(
    broker: BrokerService, ledgers: ManagedLedgerFactory, orphans: OrphanedLedgers, candidates: Sequence[int]
) -> None:
    """Searches for orphaned ledgers while clients are served, because the search takes time for each topic.

    :param candidates: ids of the ledgers that existed at the start
    """
    try:
        while True:
            pause = _RETRY_SECONDS
            try:
                await ledgers.resume_deletions()
                schemas = await broker.schemas.storage.ledger_ids()
                packages = await broker.packages.ledger_ids()
                await orphans.look(candidates, schemas | packages)
                left = orphans.seconds_left
                if left is None:
                    return
                candidates = [orphan.ledger_id for orphan in orphans.known]
                pause = min(left + 1, _LONGEST_SECONDS)
            except MetadataUnavailable as error:
                log.warning(
                    "search for orphaned ledgers failed; trying again later", extra={"error": str(error)}
                )
            await sleep(broker.io.loop, pause)
    except (ManagedLedgerError, LedgerError, MetadataError, MetadataFailure) as error:
        log.error("search for orphaned ledgers failed", extra={"error": str(error)})


async def _no_bookies() -> Sequence[str]:
    return ()
