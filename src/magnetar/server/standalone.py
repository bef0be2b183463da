"""Standalone: broker, embedded ledger store and embedded metadata store in one process."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from magnetar.broker.admin.all import Admin
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import handle
from magnetar.broker.namespaces.bootstrap import bootstrap
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.errors import MetadataFailure
from magnetar.http.routing import Process
from magnetar.io.waiting import sleep
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.embedded.disk_guard import DiskGuard, DiskState
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.opening import ManagedLedgers
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataError, MetadataStore, MetadataUnavailable
from magnetar.metadata.resolving import ResolvingStore
from magnetar.security.authorization import Authorizer
from magnetar.server.broker_process import Place, ProcessOptions, run_process
from magnetar.server.collector import Collector
from magnetar.server.doors import Door, advertised
from magnetar.server.health import HealthCheck
from magnetar.server.settings import (
    broker_settings,
    disk_guard_settings,
    embedded_settings,
    entry_cache_settings,
    managed_ledger_settings,
)
from magnetar.server.storage_report import StorageReport
from magnetar.server.taken_port import taken_port

log = logging.getLogger(__name__)

LEDGERS = "ledgers"
_METADATA = "metadata"
_RETRY_SECONDS = 5.0
METADATA_FILE = f"{_METADATA}/metadata.sqlite"


def run_standalone(options: ProcessOptions) -> int:
    """Serves until SIGTERM or SIGINT; answers the exit code."""
    return run_process("standalone", options, StandaloneBroker)


class StandaloneBroker:
    """See :class:`magnetar.server.broker_process.Broker`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._store: EmbeddedLedgerStore | None = None
        self._metadata: MetadataStore | None = None
        self._broker: BrokerService | None = None
        self._admin: Admin | None = None
        self._process: Process | None = None
        self._collector: Collector | None = None
        self._guard: DiskGuard | None = None
        self._binary_ports: dict[str, int] = {}
        self._orphan_scan: Any = None

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            raise RuntimeError("the broker has not started")
        return self._admin

    @property
    def process(self) -> Process:
        if self._process is None:
            raise RuntimeError("the broker has not started")
        return self._process

    @property
    def authorizer(self) -> Authorizer:
        if self._broker is None:
            raise RuntimeError("the broker has not started")
        return self._broker.authorizer

    @property
    def binary_ports(self) -> Mapping[str, int]:
        return self._binary_ports

    async def start(self) -> None:
        """The ledger store comes first: its lock keeps a second process away from all the rest."""
        io, settings = self._place.io, self._place.settings
        bounds = disk_guard_settings(settings)
        self._guard = DiskGuard(io, io.start_worker("disk-guard"), bounds)
        store = await EmbeddedLedgerStore.open_store(io, LEDGERS, embedded_settings(settings))
        self._store = store
        io.disk.make_directory(_METADATA)
        metadata = self._metadata = ResolvingStore(await self.open_metadata(), io.loop)
        wheel = TimerWheel(io.loop)
        ledgers = ManagedLedgers(
            io,
            wheel,
            store,
            metadata,
            managed_ledger_settings(settings),
            entry_cache_settings(settings),
        )
        leftovers = await store.ledger_ids()
        broker = await self._serve(ledgers, metadata, wheel)
        self._watch_disk(broker, store)
        self._orphan_scan = io.loop.create_task(self._remove_orphans(broker, ledgers, leftovers))

    async def open_metadata(self) -> MetadataStore:
        """The store that the metadata is in."""
        reserve = self._place.settings.min_usable_size_for_high_priority_writes // 4
        return await EmbeddedMetadataStore.open_store(self._place.io, METADATA_FILE, reserve_bytes=reserve)

    def _watch_disk(self, broker: BrokerService, store: EmbeddedLedgerStore) -> None:
        """Ends publishing before the device is full, and fetches space back when it is short."""
        guard = self._guard
        assert guard is not None

        def looked() -> None:
            store.hurry(guard.state is not DiskState.ROOM)
            if guard.state is DiskState.FULL:
                broker.storage_gate.shut(guard.reason)
            else:
                broker.storage_gate.open()

        guard.looked = looked
        store.listen_for_shortage(guard.tell_shortage)
        guard.tell_shortage(store.shortage)
        guard.start()

    @staticmethod
    async def _remove_orphans(
        broker: BrokerService, ledgers: ManagedLedgers, candidates: Sequence[int]
    ) -> None:
        """While clients are served already: the scan grows with the topics, the start must not."""
        try:
            while True:
                try:
                    await ledgers.deletions.resume()
                    schemas = await broker.schemas.storage.ledger_ids()
                    await ledgers.remove_orphans(candidates, schemas)
                    return
                except MetadataUnavailable as error:
                    log.warning("leftover ledgers are looked for again later", extra={"error": str(error)})
                await sleep(broker.io.loop, _RETRY_SECONDS)
        except (ManagedLedgerError, LedgerError, MetadataError, MetadataFailure) as error:
            log.error("leftover ledgers are not removed", extra={"error": str(error)})

    async def _serve(
        self, ledgers: ManagedLedgers, metadata: MetadataStore, wheel: TimerWheel
    ) -> BrokerService:
        """With a free port, what clients are told is known only once the broker listens."""
        place = self._place
        known = self._known({door.scheme: door.port for door in place.doors if not door.listener})
        broker = BrokerService(
            place.io,
            wheel,
            metadata,
            ledgers,
            known,
            authenticator=place.authenticator,
            authorizer=place.make_authorizer,
            dynamic=place.dynamic,
        )
        self._broker = broker
        free = any(door.port == 0 for door in place.doors)
        if not free:
            await self._bootstrap(metadata, known)
        await broker.dynamic.start()
        for door in place.doors:
            await self._listen(broker, door)
        if free:
            known = broker.settings = self._known(self._binary_ports)
            await self._bootstrap(metadata, known)
        assert self._store is not None
        assert self._guard is not None
        self._admin = Admin(broker)
        self._process = _seen_by_http(broker, StorageReport(broker, self._store, self._guard))
        self._collector = Collector(place.io, wheel, broker)
        self._collector.start()
        return broker

    def _known(self, binary_ports: Mapping[str, int]) -> BrokerSettings:
        place = self._place
        ports = {**binary_ports, **place.http_ports}
        told = advertised(place.settings, place.advertised_host, ports)
        http_port = next(iter(place.http_ports.values()), 0)
        broker_id = f"{place.advertised_host}:{http_port}"
        known = broker_settings(place.settings, told, broker_id, place.runtime_settings)
        return replace(known, metadata_url=f"sqlite:{METADATA_FILE}")

    async def _listen(self, broker: BrokerService, door: Door) -> None:
        tls = self._place.tls
        network = tls.binary if tls is not None and door.tls else None
        with taken_port("binary", door.option, door.port):
            listener = await broker.start(
                door.host, door.port, lambda: Connection(broker, handle, door.listener), network
            )
        if not door.listener:
            self._binary_ports.setdefault(door.scheme, listener.port)

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

    async def stop(self) -> None:
        """Also after a start that failed half way."""
        if self._orphan_scan is not None:
            self._orphan_scan.cancel()
        if self._broker is not None:
            self._broker.managed_ledgers.deletions.stop()
        if self._guard is not None:
            self._guard.stop()
        if self._collector is not None:
            self._collector.stop()
        if self._broker is not None:
            await self._broker.stop()
        if self._store is not None:
            await self._store.close()
        if self._metadata is not None:
            await self._metadata.close()


def _seen_by_http(broker: BrokerService, storage: StorageReport) -> Process:
    async def figures() -> MetricsSnapshot:
        found = await take_snapshot(broker)
        return replace(found, extra={**found.extra, **storage.metrics()})

    return Process(
        ready=lambda: broker.ready,
        check_health=HealthCheck(broker).run,
        settings=broker.settings.runtime,
        storage=storage.report,
        figures=figures,
    )
