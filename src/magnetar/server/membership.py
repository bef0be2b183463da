"""The membership of a broker in its cluster: registration, leader election, and ownership of bundles."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence

from magnetar import __version__
from magnetar.broker.ownership.brokers import BROKERS, Leadership, LiveBrokers, listeners_json, parse_record
from magnetar.broker.ownership.bundles import broker_of
from magnetar.broker.ownership.cluster import ClusterOwnership, FewestBundles
from magnetar.broker.ownership.contract import (
    Addresses,
    Asked,
    Bundle,
    MakeOwnership,
    Owner,
    Ownership,
    Placement,
)
from magnetar.broker.ownership.peers import Beside, PeerAdmin
from magnetar.broker.settings import BrokerSettings
from magnetar.client.client import Client
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Clock, Io, Loop
from magnetar.io.waiting import sleep
from magnetar.managed_ledger.exports import EXPORTER
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    Node,
    NodeMissing,
)
from magnetar.naming.bundles import FULL_LOWER, FULL_UPPER, BundleRange
from magnetar.naming.namespace_name import NamespaceName, heartbeat_namespaces

log = logging.getLogger(__name__)
MakePlacement = Callable[[LiveBrokers, Leadership], Placement]
_LOOK_SECONDS = 0.25
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
EXTENSIBLE = "ExtensibleLoadManagerImpl"
Content = Callable[[BrokerSettings], Mapping[str, object]]
"""Returns the broker's record in the metadata (``LocalBrokerData``) for the given settings."""


class Membership:
    """The membership of a broker in its cluster, from :meth:`join` to :meth:`retire`."""

    def __init__(
        self,
        io: Io,
        metadata: MetadataStore,
        registration: Registration,
        patience_seconds: float,
        admin: PeerAdmin,
        client: Callable[[Addresses], Client],
        placement: MakePlacement | None = None,
    ) -> None:
        """:param patience_seconds: maximum time to wait for the end of an earlier process's session, in
            seconds
        :param placement: chooses the broker of a bundle; None: the broker with the fewest bundles
        """
        self._io = io
        self._metadata = metadata
        self._registration = registration
        self._patience_seconds = patience_seconds
        self.brokers = LiveBrokers(io, metadata)
        self.brokers.listen(self._check_load_managers)
        self._make_placement = placement
        self._placement: Placement | None = None
        self.leadership: Leadership | None = None
        self.ownership: ClusterOwnership | None = None
        self._admin = admin
        self._client = client
        self._told: set[str] = set()

    def made_for(self, known: BrokerSettings) -> tuple[MakeOwnership, Beside]:
        """Returns the function that creates the ownership of bundles, and the access to other brokers.

        :param known: the broker's settings, which already contain its final HTTP address
        """
        leadership = self.leadership = Leadership(
            self._io, self._metadata, self.brokers, known.broker_id, known.http_url or known.http_url_tls
        )

        make_placement = self._make_placement
        placement = self._placement = (
            FewestBundles(self._io.clock, self.brokers)
            if make_placement is None
            else make_placement(self.brokers, leadership)
        )

        def make(own: Callable[[int], Owner]) -> Ownership:
            self.ownership = ClusterOwnership(
                self._io, self._metadata, own, self.brokers, leadership, placement
            )
            return self.ownership

        return make, Beside(self.brokers, leadership, placement, self._admin, self._client)

    async def join(self, known: BrokerSettings) -> None:
        """Registers the broker, which can then lead the cluster and acquire bundles.

        :raises ServedByAnother: another process prevents this broker from serving
        :raises MetadataError: the store refused the request
        """
        await self._registration.announce(known, self._patience_seconds)
        await self.brokers.start()
        if self.leadership is not None:
            await self.leadership.start()
        if self.ownership is not None:
            for namespace in heartbeat_namespaces(known.cluster, known.broker_id):
                await self.ownership.owner_of(whole(namespace), Asked.TAKE)

    async def destinations(self) -> Mapping[Bundle, str]:
        """Returns, for each bundle of this broker, the id of the broker that should own the bundle when this
        broker stops; empty if this broker does not lead the cluster, for example after :meth:`retire`.
        """
        found: dict[Bundle, str] = {}
        leadership, ownership, placement = self.leadership, self.ownership, self._placement
        if leadership is None or ownership is None or placement is None or not leadership.is_leader:
            return found
        own = leadership.own_id
        for bundle in ownership.held():
            if broker_of(bundle.namespace) is not None:
                continue
            try:
                chosen = await placement.choose(bundle, frozenset({own}))
            except (BrokerError, MetadataError) as error:
                log.warning(
                    "cannot choose the next owner of each bundle; the next leader chooses",
                    extra={"error": str(error)},
                )
                break
            if chosen is not None and chosen != own:
                found[bundle] = chosen
        return found

    async def retire(self) -> bool:
        """Stops acquiring bundles, withdraws the registration and resigns as leader; the broker keeps its
        present bundles.

        :returns: whether the registration and the leadership could be withdrawn
        """
        withdrawn = True
        if self.ownership is not None:
            self.ownership.retire()
        for work in (self._registration.withdraw, *([self.leadership.stop] if self.leadership else [])):
            try:
                await work()
            except MetadataError as error:
                withdrawn = False
                log.warning(
                    "cannot withdraw a registration; it ends with the ZooKeeper session",
                    extra={"error": str(error)},
                )
        return withdrawn

    def stop(self) -> None:
        self.brokers.stop()

    def _check_load_managers(self) -> None:
        for name, record in self.brokers.all.items():
            if EXTENSIBLE in record.load_manager and name not in self._told:
                self._told.add(name)
                log.error(
                    "broker with an incompatible load manager registered: topics may be served twice",
                    extra={"broker": name, "load_manager": record.load_manager},
                )


def whole(namespace: NamespaceName) -> Bundle:
    return Bundle(namespace, BundleRange(FULL_LOWER, FULL_UPPER))


class ServedByAnother(MetadataError):
    """Another process prevents this broker from serving; the message names the process."""


class Registration:
    """The registration of a broker; ephemeral, so it ends with the ZooKeeper session."""

    def __init__(
        self, loop: Loop, clock: Clock, metadata: MetadataStore, content: Content | None = None
    ) -> None:
        """:param content: returns the broker's record; None: the record contains only addresses, no load"""
        self._loop = loop
        self._clock = clock
        self._metadata = metadata
        self._started_ms = clock.wall_ms()
        self._content: Content = content or self.without_load
        self._own = ""

    async def announce(self, broker: BrokerSettings, patience_seconds: float) -> None:
        """Registers the broker, or updates its addresses.

        :param patience_seconds: maximum time to wait for the end of an earlier process's session, in seconds
        :raises ServedByAnother: the earlier session did not end in time, or another process prevents this
            broker from serving
        :raises MetadataError: the store refused the request
        """
        value = _encoded(self._content(broker))
        path = f"{BROKERS}/{broker.broker_id}"
        if self._own == path:
            await self._metadata.put(path, value, ephemeral=True)
            return
        deadline = self._clock.monotonic() + patience_seconds
        told: Sequence[str] = ()
        while True:
            others = await self._others(path, value)
            if not others:
                break
            if self._clock.monotonic() >= deadline:
                raise ServedByAnother(f"this broker cannot serve at the same time as {', '.join(others)}")
            if others != told:
                log.warning("waiting for another session to end", extra={"holders": ", ".join(others)})
                told = others
            await sleep(self._loop, _LOOK_SECONDS)
        self._own = path

    async def write(self, record: Mapping[str, object]) -> None:
        """Replaces the record of the broker; does nothing if the broker is not registered.

        :raises MetadataError: the store refused the request
        """
        if self._own:
            await self._metadata.put(self._own, _encoded(record), ephemeral=True)

    async def _others(self, path: str, value: bytes) -> Sequence[str]:
        """Registers the broker, then looks for processes that prevent the broker from serving at present, and
        returns their names. If there are such processes, the broker does not stay registered.

        Brokers look for ``magnetar export-ledgers``, and this command looks for brokers. Each process
        registers before it looks, so that two processes that start together detect each other.

        :raises ServedByAnother: a process prevents this broker from serving, and waiting does not help
        """
        own = path.rpartition("/")[2]
        try:
            await self._metadata.put(path, value, MUST_NOT_EXIST, ephemeral=True)
        except BadVersion:
            node = await self._metadata.get(path)
            if node is None or not node.own:
                return [f"{own} (this address, an earlier session)"]
        try:
            await self._check_load_managers(own)
        except ServedByAnother:
            await self.withdraw(path)
            raise
        if await self._metadata.exists(EXPORTER):
            await self.withdraw(path)
            return ["magnetar export-ledgers"]
        return []

    async def _check_load_managers(self, own: str) -> None:
        for name in await self._metadata.children(BROKERS):
            node = await self._metadata.get(f"{BROKERS}/{name}") if name != own else None
            manager = _load_manager(node)
            if EXTENSIBLE in manager:
                raise ServedByAnother(
                    f"broker {name} has loadManagerClassName={manager}: this load manager stores the owners "
                    f"of bundles elsewhere, and both brokers would serve the same topics; set {MODULAR}, the "
                    "only supported load manager"
                )

    async def withdraw(self, path: str = "") -> None:
        """Removes the registration, so that the next process does not wait for the end of the session."""
        path = path or self._own
        self._own = ""
        if not path:
            return
        try:
            await self._metadata.delete(path)
        except NodeMissing:
            return

    def without_load(self, broker: BrokerSettings) -> dict[str, object]:
        """Returns the ``LocalBrokerData`` record of a broker without its load."""
        nothing = {"usage": 0.0, "limit": 100.0}
        urls = {
            "webServiceUrl": broker.http_url,
            "webServiceUrlTls": broker.http_url_tls,
            "pulsarServiceUrl": broker.service_url,
            "pulsarServiceUrlTls": broker.service_url_tls,
        }
        loads = dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), nothing)
        rates = dict.fromkeys(("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut"), 0.0)
        counts = dict.fromkeys(("numTopics", "numBundles", "numConsumers", "numProducers"), 0)
        return {
            **{key: url for key, url in urls.items() if url},
            "persistentTopicsEnabled": broker.persistent_topics,
            "nonPersistentTopicsEnabled": broker.non_persistent_topics,
            **loads,
            **rates,
            "lastUpdate": self._clock.wall_ms(),
            "lastStats": {},
            **counts,
            "bundles": [],
            "lastBundleGains": [],
            "lastBundleLosses": [],
            "brokerVersionString": f"magnetar-{__version__}",
            "protocols": {},
            "advertisedListeners": listeners_json(broker.listeners),
            "loadManagerClassName": MODULAR,
            "startTimestamp": self._started_ms,
            "maxResourceUsage": 0.0,
            "loadReportType": "LocalBrokerData",
        }


def _encoded(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _load_manager(node: Node | None) -> str:
    """Returns the class of the load manager in a broker's record; empty if the record does not name one."""
    if node is None:
        return ""
    try:
        return parse_record(node.path, node.value).load_manager
    except (ValueError, RecursionError):
        return ""
