"""Exports topics between the data of a standalone broker and a cluster, in a separate process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.ownership.brokers import BROKERS
from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.service import BrokerService
from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import Loaded, Settings
from magnetar.exporting.export import Export, ExportPlan, Selection
from magnetar.exporting.mapping import HEADER, line_of
from magnetar.exporting.namespaces import WhichPolicies
from magnetar.exporting.stored_topics import NotExported, OpenStores
from magnetar.exporting.topic_export import MappedLedger
from magnetar.io.interfaces import Io
from magnetar.io.real import real_io
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import sleep
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.identity import StoreLocked
from magnetar.ledger.interface import LedgerStore
from magnetar.managed_ledger.exports import EXPORTER
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore, SessionEvent
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.server.addresses import Advertised
from magnetar.server.cluster_access import cluster_access
from magnetar.server.cluster_settings import MetadataPlaces, in_cluster, metadata_places, quorums
from magnetar.server.cluster_stores import Patience, open_bookies_metadata, open_ledgers, open_metadata
from magnetar.server.embedded_stores import LEDGERS, EmbeddedStores
from magnetar.server.settings import (
    broker_settings,
    embedded_settings,
    entry_cache_settings,
    managed_ledger_settings,
)

Say = Callable[[str], None]
_PATIENCE_SECONDS = 30.0
_EXPIRY_SECONDS = 10.0
"""ZooKeeper may end a session up to this many seconds after the session's timeout."""
_LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class ExportPlace:
    """Source or target of an export."""

    loaded: Loaded
    data_dir: Path | None
    """The data directory; None: a cluster."""

    def open(
        self, loop: asyncio.AbstractEventLoop, *, make: bool, check: bool
    ) -> AbstractAsyncContextManager[OpenStores]:
        if self.data_dir is not None:
            return standalone_side(loop, self.data_dir, self.loaded.settings, make=make, check=check)
        assert self.loaded.cluster is not None
        return cluster_side(loop, self.loaded.settings, self.loaded.cluster, check=check)


@dataclass(frozen=True)
class ExportRequest:
    """The options on the command line."""

    source: ExportPlace
    target: ExportPlace
    selection: Selection
    policies: WhichPolicies
    mapping: Path | None
    """The file for the mapping of ledgers in the source to ledgers in the target; None: no file is
    written.
    """
    check: bool
    give_up: bool = False
    """Whether to undo an interrupted export, except for topics that have already left the source."""


class MappingFile:
    """The file with the mapping of ledgers; appended lines are durable before the export relies on them."""

    def __init__(self, path: Path) -> None:
        """:raises NotExported: the file is not a mapping file
        :raises OSError: the file cannot be written
        """
        self._file = path.open("a+", encoding="utf-8")
        self._file.seek(0)
        if self._file.readline().rstrip("\n") not in ("", HEADER):
            self._file.close()
            raise NotExported(f"{path} exists and is not a mapping file; give another file")
        # A full disk or a crash may have left half a line at the end: ignore it.
        whole = path.read_bytes().rfind(b"\n") + 1
        self._file.truncate(whole)
        if not whole:
            self._file.write(HEADER + "\n")

    def keep(self, lines: Sequence[MappedLedger]) -> None:
        self._file.writelines(map(line_of, lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def export_ledgers(wanted: ExportRequest, say: Say) -> bool:
    """Exports topics, or only checks the export. Returns whether all topics were or can be exported; ``say``
    receives a sentence about each topic, with the reason if the topic is refused.

    :raises NotExported: the source or the target cannot be opened, or another process interfered
    :raises LedgerError: entries cannot be read or written
    :raises ManagedLedgerError: a record cannot be read or written
    :raises MetadataError: a store does not answer
    :raises BrokerError: policies of topics cannot be set
    :raises OSError: the mapping cannot be written
    """
    loop = asyncio.new_event_loop()
    try:
        work = TaskScope(loop, "the export").answer(_export(loop, wanted, say))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        return loop.run_until_complete(work)
    except asyncio.CancelledError as error:
        raise NotExported("interrupted; run the same command again to resume") from error
    finally:
        loop.close()


async def _export(loop: asyncio.AbstractEventLoop, wanted: ExportRequest, say: Say) -> bool:
    check = wanted.check
    async with (
        wanted.source.open(loop, make=False, check=check) as source,
        wanted.target.open(loop, make=True, check=check) as target,
    ):
        export = Export(source, target, wanted.policies)
        if wanted.give_up:
            left = await export.give_up(wanted.selection, lambda unit: say(f"not exported: {unit.name}"))
            for sentence in left:
                say(f"refused: {sentence}")
            return not left
        plan = await export.plan(wanted.selection)
        for sentence in plan.left_out:
            say(f"not exported: {sentence}")
        if plan.refusals:
            for sentence in plan.refusals:
                say(f"refused: {sentence}")
            return False
        if check:
            for unit in plan.units:
                say(f"exportable: {unit.name}")
            say(f"{len(plan.units)} topics can be exported from {source.name} to {target.name}")
            return True
        await _run(export, plan, wanted.mapping, say)
        say(f"{len(plan.units)} topics were exported from {source.name} to {target.name}")
        return True


async def _run(export: Export, plan: ExportPlan, mapping: Path | None, say: Say) -> None:
    file = None if mapping is None else MappingFile(mapping)

    def keep(lines: Sequence[MappedLedger]) -> None:
        if file is not None:
            file.keep(lines)

    try:
        await export.run(plan, keep, lambda unit: say(f"exported: {unit.name}"))
    finally:
        if file is not None:
            file.close()


@asynccontextmanager
async def standalone_side(
    loop: asyncio.AbstractEventLoop, data_dir: Path, settings: Settings, *, make: bool, check: bool
) -> AsyncIterator[OpenStores]:
    """Opens the data directory of a standalone broker.

    :param make: whether to create a missing directory; with ``check``, only for the duration of the check
    :raises NotExported: a broker uses the directory, or the directory contains no data
    :raises LedgerError: the ledgers cannot be opened
    :raises MetadataError: the metadata cannot be opened
    """
    missing = not (data_dir / LEDGERS).exists()
    if missing and not make:
        raise NotExported(f"{data_dir} contains no data of a broker; give the broker's data directory")
    folder = Path(tempfile.mkdtemp()) if missing and check else data_dir
    try:
        io = real_io(loop, folder)
        stores = EmbeddedStores(io, embedded_settings(settings))
        try:
            try:
                await stores.open()
            except StoreLocked as error:
                raise NotExported(f"a broker is running on {data_dir}; stop it first") from error
            async with _standalone(io, stores, data_dir, settings) as side:
                yield side
        finally:
            await stores.close()
    finally:
        if folder != data_dir:
            shutil.rmtree(folder)


@asynccontextmanager
async def _standalone(
    io: Io, stores: EmbeddedStores, data_dir: Path, settings: Settings
) -> AsyncIterator[OpenStores]:
    metadata = ResolvingStore(stores.metadata, io.loop)
    if not await metadata.exists(f"/admin/clusters/{settings.cluster_name}"):
        # As a broker does at its first start, which then writes where it listens.
        bundles = settings.default_number_of_namespace_bundles
        await bootstrap(metadata, settings.cluster_name, "", "", bundles)
    identity = stores.ledgers.store_id.hex()
    side = _side(io, settings, None, stores.ledgers, metadata, f"the data in {data_dir}", identity)
    async with _closing(side):
        yield side


@asynccontextmanager
async def cluster_side(
    loop: asyncio.AbstractEventLoop, settings: Settings, cluster: ClusterSettings, *, check: bool
) -> AsyncIterator[OpenStores]:
    """Opens a cluster on ZooKeeper and BookKeeper. Unless ``check`` is true, no Magnetar broker can start in
    the cluster until the returned context ends.

    :param check: whether the cluster is only examined; brokers may then serve it
    :raises NotExported: brokers serve the cluster, the cluster does not exist, or another export runs
    :raises LedgerError: the ledgers cannot be opened
    :raises MetadataError: the metadata store does not answer
    """
    io, places = real_io(loop, "."), metadata_places(cluster)
    patience = Patience(io.clock, io.loop, _PATIENCE_SECONDS)
    access = cluster_access(cluster)
    opened = await open_metadata(io, places.local, places.configuration, access, patience)
    metadata = ResolvingStore(opened.everything, io.loop)
    guard = _Guard(io, metadata, places)
    try:
        await guard.check_cluster(settings.cluster_name)
        if not check:
            await guard.take(cluster.session_timeout_ms / 1000 + _EXPIRY_SECONDS)
        bookies = await open_bookies_metadata(io, places, opened, access.local, patience)
        try:
            store = await open_ledgers(
                io, bookies.metadata, metadata, bookies.root, cluster, settings.max_message_size
            )
            try:
                instance = await bookies.metadata.get(f"{bookies.root}/INSTANCEID")
                value = "" if instance is None else instance.value.decode()
                identity = f"{value}:{settings.cluster_name}"
                name = f"the cluster {settings.cluster_name} at {places.local}"
                side = _side(io, settings, cluster, store, metadata, name, identity)
                side.bookies = value
                side.still_alone = guard.check
                side.served_by = [guard.said([each]) for each in await guard.brokers()]
                async with _closing(side):
                    yield side
            finally:
                await store.close()
        finally:
            if bookies.other is not None:
                await bookies.other.close()
    finally:
        await metadata.close()


class _Guard:
    """Prevents brokers from starting in a cluster during an export."""

    def __init__(self, io: Io, metadata: MetadataStore, places: MetadataPlaces) -> None:
        self._io = io
        self._metadata = metadata
        self._places = places
        self._lost = False
        metadata.listen_session(self._session_changed)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._lost = True

    async def check_cluster(self, name: str) -> None:
        """Checks that the cluster exists.

        :raises NotExported: the cluster does not exist
        """
        if not await self._metadata.exists(f"/admin/clusters/{name}"):
            raise NotExported(
                f"clusterName={name}: the metadata at {self._places.local} has no such cluster; create it "
                "with magnetar initialize-cluster-metadata"
            )

    async def take(self, patience_seconds: float) -> None:
        """Excludes brokers and other exports from the cluster.

        :param patience_seconds: maximum time to wait for the end of killed processes' sessions, in seconds
        :raises NotExported: brokers serve the cluster, or another export runs
        """
        deadline = self._io.clock.monotonic() + patience_seconds
        while True:
            others = await self._others()
            if not others:
                return
            if self._io.clock.monotonic() >= deadline:
                raise NotExported(f"{self.said(others)}; stop it first")
            await sleep(self._io.loop, _LOOK_SECONDS)

    async def _others(self) -> list[str]:
        """Registers this export, and returns the brokers and the other export that use the cluster. Each
        process registers before it looks, so that of two processes that start at the same time, at least one
        sees the other.
        """
        node = await self._metadata.get(EXPORTER)
        if node is None:
            try:
                await self._metadata.put(EXPORTER, b"", MUST_NOT_EXIST, ephemeral=True)
            except BadVersion:
                return ["another export is running"]
        elif not node.own:
            return ["another export is running"]
        return await self.brokers()

    async def brokers(self) -> list[str]:
        """Returns the brokers that serve the cluster."""
        return [f"broker {name} is running" for name in await self._metadata.children(BROKERS)]

    def said(self, others: Sequence[str]) -> str:
        return f"{' and '.join(others)} at {self._places.local}"

    def check(self) -> None:
        """Checks that brokers are still prevented from starting in the cluster.

        :raises NotExported: the exclusion was lost, and brokers have possibly started
        """
        if self._lost:
            raise NotExported(
                f"the session with ZooKeeper at {self._places.local} was lost, and brokers may have "
                "started since; run the same command again to resume"
            )


def _side(
    io: Io,
    settings: Settings,
    cluster: ClusterSettings | None,
    store: LedgerStore,
    metadata: MetadataStore,
    name: str,
    identity: str,
) -> OpenStores:
    wheel = TimerWheel(io.loop)
    of_ledgers = managed_ledger_settings(settings)
    known = broker_settings(settings, Advertised(Addresses(None), {}), "", {})
    if cluster is not None:
        of_ledgers = replace(of_ledgers, quorums=quorums(cluster))
        known = in_cluster(known, cluster)
    managed = ManagedLedgerFactory(io, wheel, store, metadata, of_ledgers, entry_cache_settings(settings))
    broker = BrokerService(io, wheel, metadata, managed, known)
    return OpenStores(
        name,
        identity,
        settings.cluster_name,
        io,
        wheel,
        metadata,
        managed,
        broker,
        cluster is None,
        _alone,
    )


def _alone() -> None:
    """Does nothing: the lock of the data directory already excludes other processes."""


@asynccontextmanager
async def _closing(side: OpenStores) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await side.broker.stop()
        side.managed.stop_deletions()
        await side.managed.release()
