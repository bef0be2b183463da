"""A broker that serves: its listeners, what HTTP sees of it, and its end; its caller opens the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.broker.admin.all import Admin
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import handle
from magnetar.broker.load.desk import LoadDesk
from magnetar.broker.ownership.peers import Beside
from magnetar.broker.policies.dynamic import Changeable
from magnetar.broker.service import BrokerService, Dynamic
from magnetar.broker.serving.topics import MakeOwnership
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.stats.figures import MetadataMetrics, MetricsSnapshot
from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.broker.stats.topic_board import TopicBoard
from magnetar.http.routing import Process
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.metadata.interface import MetadataStore
from magnetar.metadata.measured import BOUNDS_MS, MeasuredStore
from magnetar.security.authorization import Authorizer
from magnetar.server.bind_addresses import BindAddress, advertised
from magnetar.server.broker_process import BrokerSurroundings
from magnetar.server.changing_settings import BrokerOptions
from magnetar.server.collector import Collector
from magnetar.server.health import HealthCheck
from magnetar.server.settings import broker_settings, entry_cache_settings
from magnetar.server.taken_port import taken_port
from magnetar.server.websockets import WebSockets

if TYPE_CHECKING:
    from magnetar.broker.replication.clusters import Way

Announce = Callable[[BrokerSettings], Awaitable[None]]


class Storage(Protocol):
    """What is told of where entries are; of the embedded store, or of one beside the process."""

    async def report(self, namespace: str | None = None) -> Mapping[str, Any]: ...

    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Stores:
    """What a broker works on."""

    metadata: MetadataStore
    ledgers: ManagedLedgerFactory
    wheel: TimerWheel
    metadata_url: str
    """As operators are told."""
    storage: Callable[[BrokerService], Storage]
    bookies: Callable[[], Awaitable[Sequence[str]]]
    """Ids of the bookies that there are."""
    check: Callable[[], None] | None = None
    """Of the health check: raises BrokerError when a store is known not to answer."""
    measured: Sequence[MeasuredStore] = ()
    """Those whose operations are in the metrics."""
    among: Callable[[BrokerSettings], tuple[MakeOwnership, Beside]] | None = None
    """Of a broker that has others beside it."""
    load: Callable[[], LoadDesk] | None = None
    """Asked after :attr:`among`."""
    dynamic: Mapping[str, Changeable] = field(default_factory=dict)
    """Settings of what it has beside it that can be changed while it runs, and what takes them."""


class ServingBroker:
    """What brokers have in common, whatever stores they open: see :class:`broker_process.Broker`."""

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
        """With a free port, what clients are told is known only once the broker listens.

        :param announce: writes down where the broker is: before anybody is let in, unless a port is free
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

    def _reach(self, name: str, record: Mapping[str, Any]) -> Way:
        # A broker without other clusters needs no client, and none of its memory.
        from magnetar.server.broker_client import way_to

        return way_to(self._place.io, asyncio.get_running_loop(), self._options.now, name, record)

    async def _settings_changed(self, stores: Stores) -> None:
        """Everything goes by what they are now."""
        now = self._options.now
        stores.ledgers.use(entry_cache_settings(now), skip_lost_data=now.auto_skip_non_recoverable_data)
        if self._broker is not None:
            await self._broker.use(self._known(stores.metadata_url))

    def _known(self, metadata_url: str) -> BrokerSettings:
        """The broker's settings, with the ports as far as they are known."""
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
        # Only a broker of a cluster needs what speaks with bookies.
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

    async def _stop_serving(self) -> None:
        """Also after a start that failed half way; the stores stay open."""
        if self._collector is not None:
            self._collector.stop()
        if self._websockets is not None:
            await self._websockets.close()
        if self._broker is not None:
            await self._broker.stop()


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
    )


def _metadata_metrics(store: MeasuredStore) -> MetadataMetrics:
    operations = [
        (kind, "success" if good else "fail", tuple(times.counts), times.total_ms)
        for (kind, good), times in store.times.items()
    ]
    return MetadataMetrics(store.name, BOUNDS_MS, operations, store.put_bytes)
