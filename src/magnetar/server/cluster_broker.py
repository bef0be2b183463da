"""A broker on ZooKeeper and BookKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from magnetar.broker.load.reporter import Host
from magnetar.broker.service import BrokerService
from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import SettingsContradict
from magnetar.errors import MetadataFailure, NotSupported
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import sleep
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.metadata.interface import MetadataError, MetadataRefused, MetadataStore, SessionEvent
from magnetar.metadata.passing_on import MeasuredStore, ResolvingStore
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore
from magnetar.server.broker_client import client_io, own_client, peer_admin
from magnetar.server.broker_process import BrokerSurroundings, ProcessOptions, run_process
from magnetar.server.cluster_access import cluster_access
from magnetar.server.cluster_settings import metadata_places, quorums
from magnetar.server.cluster_stores import (
    Patience,
    check_entry_size,
    open_bookies_metadata,
    open_ledgers,
    open_metadata,
)
from magnetar.server.load_balancing import LinuxHost, LoadBalancing, LoadOptions
from magnetar.server.membership import Membership
from magnetar.server.serving import ServingBroker, Stores
from magnetar.server.settings import entry_cache_settings, managed_ledger_settings, offload_driver

log = logging.getLogger(__name__)

_EXPIRY_SECONDS = 10.0
"""ZooKeeper may end a session up to this many seconds after the session's timeout."""
_LOOK_SECONDS = 0.5
_HANDING_OVER = 2 / 3
"""The fraction of the stop timeout that is available for handing over bundles to other brokers."""


def run_broker(options: ProcessOptions, wait_seconds: float | None) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code.

    :param wait_seconds: maximum time to wait for ZooKeeper and bookies at the start; None: no limit
    """
    return run_process("broker", options, lambda place: ClusterBroker(place, wait_seconds), cluster=True)


class ClusterBroker(ServingBroker):
    """A broker on ZooKeeper and BookKeeper; see :class:`magnetar.server.broker_process.Broker`.

    The process ends when its ZooKeeper session is lost, because other brokers can own its topics from then
    on.
    """

    def __init__(
        self, place: BrokerSurroundings, wait_seconds: float | None, host: Host | None = None
    ) -> None:
        """:param host: the machine whose load the broker reports; None: the broker's machine
        :raises SettingsContradict: the settings contain no ZooKeeper address
        """
        super().__init__(place)
        if place.cluster is None:
            raise SettingsContradict("the settings were loaded without the settings of a cluster")
        self._settings: ClusterSettings = place.cluster
        self._places = metadata_places(self._settings)
        self._access = cluster_access(self._settings)
        self._wait_seconds = wait_seconds
        self._zookeeper: ZooKeeperMetadataStore | None = None
        self._measured: Sequence[MeasuredStore] = ()
        self._metadata: MetadataStore | None = None
        self._of_bookies: MetadataStore | None = None
        self._store: BookKeeperLedgerStore | None = None
        self._ledgers: ManagedLedgerFactory | None = None
        self._membership: Membership | None = None
        self._load_options = LoadOptions(place.cluster)
        self._host = host or LinuxHost(self._load_options.now.report.nic_gbps)
        self._load: LoadBalancing | None = None
        self._tasks = TaskScope(place.io.loop, "the broker", owner_goes_on)

    @property
    def may_be_interrupted(self) -> bool:
        """Whether the start can be cancelled: True until the broker service exists, because the start may
        wait long for other services before that."""
        return self._broker is None

    async def start(self) -> None:
        io, settings, places = self._place.io, self._settings, self._places
        patience = Patience(io.clock, io.loop, self._wait_seconds)
        opened = await open_metadata(io, places.local, places.configuration, self._access, patience)
        self._zookeeper, self._measured = opened.zookeeper, opened.measured
        self._metadata = metadata = ResolvingStore(opened.everything, io.loop)
        metadata.listen_session(self._session_changed)
        await self._check_cluster(metadata)
        of_bookies, root, self._of_bookies = await open_bookies_metadata(
            io, places, opened, self._access.local, patience
        )
        copies = quorums(settings)
        await self._wait_for_bookies(of_bookies, root, copies.ensemble, patience)
        self._store = await open_ledgers(
            io, of_bookies, metadata, root, settings, self._place.settings.max_message_size
        )
        await self._store.check_ids()
        await check_entry_size(io.loop, self._store, self._place.settings.max_message_size)
        await self._serve_ledgers(self._store, metadata)

    async def _serve_ledgers(self, store: BookKeeperLedgerStore, metadata: MetadataStore) -> None:
        io, settings = self._place.io, self._place.settings
        wheel = TimerWheel(io.loop)
        ledgers = self._ledgers = ManagedLedgerFactory(
            io,
            wheel,
            store,
            metadata,
            replace(managed_ledger_settings(settings), quorums=quorums(self._settings)),
            entry_cache_settings(settings),
            offload_driver(settings),
        )
        patience_seconds = self._settings.session_timeout_ms / 1000 + _EXPIRY_SECONDS
        loop = asyncio.get_running_loop()
        admin = peer_admin(io, loop, settings)
        load = self._load = LoadBalancing(
            io, wheel, metadata, self._load_options, admin, settings.cluster_name, self._host
        )
        membership = self._membership = Membership(
            io,
            metadata,
            load.registration,
            patience_seconds,
            admin,
            partial(own_client, client_io(io, loop), settings),
            load.placement,
        )
        stores = Stores(
            metadata,
            ledgers,
            wheel,
            f"zk:{self._places.local}",
            lambda _broker: _InBookKeeper(store),
            store.bookies.known,
            self._check_session,
            self._measured,
            membership.made_for,
            load.desk,
            self._load_options.dynamic,
        )
        broker = await self._serve(stores, membership.join)
        load.start(broker.topics)
        self._tasks.start(self._delete_leftovers(broker, ledgers), "the deletion of leftover ledgers")

    async def _check_cluster(self, metadata: MetadataStore) -> None:
        """Checks that the metadata has a record of the cluster.

        :raises SettingsContradict: the metadata has no record of the cluster
        """
        name = self._place.settings.cluster_name
        if not await metadata.exists(f"/admin/clusters/{name}"):
            raise SettingsContradict(
                f"clusterName={name}: the metadata has no such cluster; create it with magnetar "
                "initialize-cluster-metadata"
            )

    async def _wait_for_bookies(
        self, metadata: MetadataStore, root: str, wanted: int, patience: Patience
    ) -> None:
        """Waits until enough bookies are registered.

        :raises MetadataRefused: too few bookies registered in time
        """
        while True:
            registered = [each for each in await metadata.children(f"{root}/available") if each != "readonly"]
            if len(registered) >= wanted:
                return
            missing = (
                f"{len(registered)} bookies are registered, but managedLedgerDefaultEnsembleSize "
                f"is {wanted}; start more bookies or lower it"
            )
            if patience.over:
                raise MetadataRefused(missing)
            patience.tell(missing)
            await sleep(self._place.io.loop, _LOOK_SECONDS)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._place.io.stop_process(
                f"the session with ZooKeeper at {self._places.local} is lost: another broker may serve its "
                "topics now; the process stops, and no acknowledged message is lost"
            )
        elif event is SessionEvent.DISCONNECTED:
            log.warning("connection to ZooKeeper lost; reconnecting", extra={"reason": self._trouble()})
        elif event is SessionEvent.RECONNECTED:
            log.info("reconnected to ZooKeeper")

    def _trouble(self) -> str:
        store = self._zookeeper
        return "" if store is None else f"{store.session.server}: {store.session.trouble}"

    def _check_session(self) -> None:
        """Checks the connection to ZooKeeper.

        :raises MetadataFailure: ZooKeeper does not answer
        """
        if self._zookeeper is not None and not self._zookeeper.session.connected:
            raise MetadataFailure(f"Not connected with ZooKeeper at {self._places.local}: {self._trouble()}")

    @staticmethod
    async def _delete_leftovers(broker: BrokerService, ledgers: ManagedLedgerFactory) -> None:
        """Deletes the ledgers that an earlier process recorded for deletion. Does not search for orphaned
        ledgers, because other brokers store ledgers in the same BookKeeper cluster."""
        try:
            await ledgers.resume_deletions()
        except MetadataError as error:
            log.warning("cannot delete leftover ledgers now", extra={"error": str(error)})

    async def stop(self) -> bool:
        """Stops the broker, also after a failed start. See
        :meth:`magnetar.server.broker_process.Broker.stop`."""
        self._tasks.cancel()
        if self._ledgers is not None:
            self._ledgers.stop_deletions()
        if self._load is not None:
            self._load.stop()
        complete = self._membership is None or await self._hand_over(self._membership)
        complete = await self._stop_serving() and complete
        if self._ledgers is not None:
            await self._ledgers.release()
        if self._store is not None:
            await self._store.close()
        for metadata in (self._of_bookies, self._metadata):
            if metadata is not None:
                await metadata.close()
        return complete

    async def _hand_over(self, membership: Membership) -> bool:
        """Passes the bundles on to other brokers while this broker still redirects clients.

        :returns: whether the broker's registration was withdrawn
        """
        towards = await membership.destinations()
        withdrawn = await membership.retire()
        if self._broker is not None:
            seconds = _HANDING_OVER * self._place.settings.broker_shutdown_timeout_ms / 1000
            await self._broker.topics.unloads.unload_all(seconds, towards)
        membership.stop()
        return withdrawn


class _InBookKeeper:
    """Storage statistics of a broker on BookKeeper: only what the broker's BookKeeper client knows, because
    the bookies themselves report disk space.
    """

    def __init__(self, store: BookKeeperLedgerStore) -> None:
        self._store = store

    async def report(self, namespace: str | None = None) -> NoReturn:
        raise NotSupported("This broker stores entries in BookKeeper; ask the bookies for the used space")

    def metrics(self) -> Mapping[str, float]:
        known = self._store.figures()
        return {
            "magnetar_bookkeeper_writable_bookies": known.writable,
            "magnetar_bookkeeper_read_only_bookies": known.read_only,
            "magnetar_bookkeeper_quarantined_bookies": known.quarantined,
            "magnetar_bookkeeper_open_writers": known.writers,
            "magnetar_bookkeeper_pending_add_bytes": known.pending_bytes,
            "magnetar_bookkeeper_replaced_bookies": known.replaced,
            "magnetar_bookkeeper_fenced_writers": known.fenced,
            "magnetar_bookkeeper_failed_writers": known.failed,
        }
