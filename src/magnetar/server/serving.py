"""The serving part of a broker: listeners, the HTTP interface, and an orderly stop; the caller opens the
stores.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.admin.all import Admin
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import handle
from magnetar.broker.load.settings import LoadDesk
from magnetar.broker.ownership.contract import MakeOwnership
from magnetar.broker.ownership.peers import Beside
from magnetar.broker.policies.dynamic import Changeable
from magnetar.broker.service import BrokerService, Dynamic
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.stats.figures import MetadataMetrics, MetricsSnapshot
from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.broker.stats.topic_board import TopicBoard
from magnetar.http.routing import Process, SnapshotAccess
from magnetar.io.interfaces import Cancellable, Io
from magnetar.io.slices import Slice
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.metadata.interface import MetadataStore
from magnetar.metadata.passing_on import BOUNDS_MS, MeasuredStore
from magnetar.security.authorization import Authorizer
from magnetar.server.addresses import BindAddress, advertised
from magnetar.server.broker_process import BrokerSurroundings
from magnetar.server.changing_settings import BrokerOptions
from magnetar.server.health import HealthCheck
from magnetar.server.loop_process import taken_port
from magnetar.server.settings import broker_settings, entry_cache_settings
from magnetar.server.websockets import WebSockets

if TYPE_CHECKING:
    from magnetar.broker.replication.clusters import Way

Announce = Callable[[BrokerSettings], Awaitable[None]]
_LOOK_SECONDS = 1.0
_GROWN = 500
"""Number of new topics and connections after which live objects are frozen again (``gc.freeze``)."""
_GONE = 10_000
"""Number of closed connections after which a full garbage collection runs, because each connection leaves 25
objects in reference cycles."""
_TOPICS_LIKE_A_CONNECTION = 10
"""Number of closed or deleted topics that count as one closed connection. Reference counting frees most
topics; because a few leave objects in reference cycles, a full collection runs after at most 100,000
topics."""
_THRESHOLDS = (2_000, 5, 400)
"""Thresholds of the garbage collector's three generations. A scrape of ten thousand topics causes no full
collection; a collection of the second generation scans ten thousand objects, which takes some
milliseconds."""


class Storage(Protocol):
    """Statistics of the storage of entries, in the embedded store or in bookies."""

    async def report(self, namespace: str | None = None) -> Mapping[str, object]: ...

    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Stores:
    """The stores of a broker, and the functions that depend on their kind."""

    metadata: MetadataStore
    ledgers: ManagedLedgerFactory
    wheel: TimerWheel
    metadata_url: str
    """The URL of the metadata store, for display to operators."""
    storage: Callable[[BrokerService], Storage]
    bookies: Callable[[], Awaitable[Sequence[str]]]
    """Returns the ids of the bookies."""
    check: Callable[[], None] | None = None
    """Called by the health check; raises BrokerError if a store is known to be unavailable. None: no
    check.
    """
    measured: Sequence[MeasuredStore] = ()
    """The stores whose operations are measured for the metrics."""
    among: Callable[[BrokerSettings], tuple[MakeOwnership, Beside]] | None = None
    """For a broker of a cluster: returns the function that creates its ownership of bundles, and the access
    to other brokers. None: the broker is standalone.
    """
    load: Callable[[], LoadDesk] | None = None
    """Returns the load management; called after :attr:`among`. None: the broker is standalone."""
    dynamic: Mapping[str, Changeable] = field(default_factory=dict)
    """Settings of stores and load balancing that can change at run time, with functions to apply changes."""
    snapshots: Callable[[], SnapshotAccess] | None = None
    """Returns the access to snapshots of the stores; None: stores of a cluster, without snapshots."""


class ServingBroker:
    """The common part of brokers on different stores: see :class:`broker_process.Broker`."""

    def __init__(self, place: BrokerSurroundings) -> None:
        self._place = place
        self._options = BrokerOptions(place.settings, cluster=place.cluster is not None)
        self._broker: BrokerService | None = None
        self._admin: Admin | None = None
        self._process: Process | None = None
        self._collector: Collector | None = None
        self._binary_ports: dict[str, int] = {}
        self._websockets: WebSockets | None = None

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
    def may_be_interrupted(self) -> bool:
        return False

    @property
    def authorizer(self) -> Authorizer:
        if self._broker is None:
            raise RuntimeError("the broker has not started")
        return self._broker.authorizer

    @property
    def binary_ports(self) -> Mapping[str, int]:
        return self._binary_ports

    async def _serve(self, stores: Stores, announce: Announce) -> BrokerService:
        """Starts serving. If the system chooses a port, the advertised addresses are known only after
        listening.

        :param announce: registers the broker's addresses; called before clients are accepted, unless the port
            is 0
        """
        place = self._place
        known = self._known(stores.metadata_url)
        ownership, beside = stores.among(known) if stores.among is not None else (None, None)
        broker = BrokerService(
            place.io,
            stores.wheel,
            stores.metadata,
            stores.ledgers,
            known,
            authenticator=place.authenticator,
            ownership=ownership,
            beside=beside,
            load=stores.load() if stores.load is not None else None,
            authorizer=place.make_authorizer,
            reach=self._reach,
            dynamic=Dynamic(
                {**self._options.dynamic, **place.dynamic, **stores.dynamic},
                self._options.refused,
                partial(self._settings_changed, stores),
            ),
        )
        self._broker = broker
        free = any(bind.port == 0 for bind in place.bind_addresses)
        if not free:
            await announce(known)
        await broker.dynamic.start()
        for bind in place.bind_addresses:
            await self._listen(broker, bind)
        if free:
            known = broker.settings = self._known(stores.metadata_url)
            await announce(known)
        self._admin = Admin(broker)
        if place.settings.web_socket_service_enabled:
            loop = asyncio.get_running_loop()
            self._websockets = WebSockets(
                loop, place.settings, lambda: broker.settings.addresses, broker.revocation
            )
        marker = place.settings.status_file_path
        self._process = replace(
            _seen_by_http(broker, stores, place.stop, self._websockets),
            in_rotation=Path(marker).is_file if marker else None,
        )
        self._collector = Collector(place.io, stores.wheel, broker)
        self._collector.start()
        return broker

    def _reach(self, name: str, record: Mapping[str, object]) -> Way:
        # Imported late, to save memory: a broker without other clusters needs no client.
        from magnetar.server.broker_client import way_to

        return way_to(self._place.io, asyncio.get_running_loop(), self._options.now, name, record)

    async def _settings_changed(self, stores: Stores) -> None:
        """Applies changed settings to all parts."""
        now = self._options.now
        stores.ledgers.use(entry_cache_settings(now), skip_lost_data=now.auto_skip_non_recoverable_data)
        if self._broker is not None:
            await self._broker.use(self._known(stores.metadata_url))

    def _known(self, metadata_url: str) -> BrokerSettings:
        """Returns the broker's settings with the advertised addresses that follow from the ports known so
        far."""
        place = self._place
        fixed = {bind.scheme: bind.port for bind in place.bind_addresses if not bind.listener}
        ports = {**fixed, **self._binary_ports, **place.http_ports}
        told = advertised(place.settings, place.advertised_host, ports)
        http_port = next(iter(place.http_ports.values()), 0)
        broker_id = f"{place.advertised_host}:{http_port}"
        known = broker_settings(self._options.now, told, broker_id, place.runtime_settings)
        known = replace(known, metadata_url=metadata_url)
        if place.cluster is None:
            return known
        # Imported late: only a broker of a cluster needs the client of bookies.
        from magnetar.server.cluster_settings import in_cluster

        return in_cluster(known, place.cluster)

    async def _listen(self, broker: BrokerService, bind: BindAddress) -> None:
        tls = self._place.tls
        network = tls.binary if tls is not None and bind.tls else None
        with taken_port("binary", bind.option, bind.port):
            listener = await broker.start(
                bind.host, bind.port, lambda: Connection(broker, handle, bind.listener), network
            )
        if not bind.listener:
            self._binary_ports.setdefault(bind.scheme, listener.port)

    async def _stop_serving(self) -> bool:
        """Stops serving, also after a failed start; the stores stay open.

        :returns: False if the metadata may still show a topic or bundle as served by this broker
        """
        if self._collector is not None:
            self._collector.stop()
        if self._websockets is not None:
            await self._websockets.close()
        if self._broker is None:
            return True
        await self._broker.stop()
        return not self._broker.topics.unloads.unrecorded


def _seen_by_http(
    broker: BrokerService, stores: Stores, stop: Callable[[], None], websockets: WebSockets | None
) -> Process:
    storage = stores.storage(broker)

    async def figures() -> MetricsSnapshot:
        found = await take_snapshot(broker)
        metadata = [_metadata_metrics(each) for each in stores.measured]
        own = {**storage.metrics(), **stores.ledgers.lost_data.metrics()}
        return replace(found, metadata=metadata, extra={**found.extra, **own})

    return Process(
        ready=lambda: broker.ready,
        check_health=HealthCheck(broker, stores.check).run,
        settings=broker.settings.runtime,
        storage=storage.report,
        figures=figures,
        bookies=stores.bookies,
        stop=stop,
        board=TopicBoard(broker),
        websockets=websockets.service if websockets is not None else None,
        snapshots=stores.snapshots,
    )


def _metadata_metrics(store: MeasuredStore) -> MetadataMetrics:
    operations = [
        (kind, "success" if good else "fail", tuple(times.counts), times.total_ms)
        for (kind, good), times in store.times.items()
    ]
    return MetadataMetrics(store.name, BOUNDS_MS, operations, store.put_bytes)


class Collector:
    """Avoids full garbage collections, which take a tenth of a second with ten thousand topics and free
    nothing. Objects of new topics and connections are frozen (``gc.freeze``). Reference counting frees closed
    topics and connections, except for a few objects per connection in reference cycles. Therefore one full
    collection runs after 10,000 closed connections or 100,000 closed topics; its duration is recorded like
    that of other work that blocks the loop."""

    def __init__(self, io: Io, wheel: TimerWheel, broker: BrokerService) -> None:
        self._io = io
        self._wheel = wheel
        self._broker = broker
        self._came = 0
        self._went = 0
        self._timer: Cancellable | None = None

    def start(self) -> None:
        gc.set_threshold(*_THRESHOLDS)
        gc.freeze()
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self._timer = self._wheel.schedule(_LOOK_SECONDS, self.look)

    def look(self) -> None:
        """Freezes new objects, and runs a full collection if many connections have closed."""
        self._schedule()
        broker = self._broker
        came = broker.topics.topic_loads.count + broker.connections.created
        topics = broker.topics.topic_loads.count - len(broker.topics.loaded)
        went = broker.connections.closed_count + topics // _TOPICS_LIKE_A_CONNECTION
        if went - self._went >= _GONE:
            self._went = went
            running = Slice(self._io, "collector")
            gc.unfreeze()
            gc.collect()
            running.end()
        elif came - self._came < _GROWN:
            return
        self._came = came
        gc.freeze()
