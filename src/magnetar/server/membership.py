"""The membership of a broker in its cluster: its registration, leader election, and bundle ownership."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from magnetar.broker.ownership.brokers import LiveBrokers
from magnetar.broker.ownership.bundles import broker_of
from magnetar.broker.ownership.cluster import ClusterOwnership, FewestBundles
from magnetar.broker.ownership.contract import Addresses, Asked, Bundle, Owner, Ownership, Placement
from magnetar.broker.ownership.leader import Leadership
from magnetar.broker.ownership.peers import Beside, PeerAdmin
from magnetar.broker.serving.topics import MakeOwnership
from magnetar.broker.settings import BrokerSettings
from magnetar.client.client import Client
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Io
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.bundles import FULL_LOWER, FULL_UPPER, BundleRange
from magnetar.naming.heartbeats import heartbeat_namespaces
from magnetar.naming.namespace_name import NamespaceName
from magnetar.server.registration import EXTENSIBLE, Registration

log = logging.getLogger(__name__)

MakePlacement = Callable[[LiveBrokers, Leadership], Placement]


class Membership:
    """The membership, from :meth:`join` to :meth:`leave`."""

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
        """:param patience_seconds: how long the session of an earlier process may take to end

        :param placement: None: a bundle goes to the broker with the fewest bundles
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
        """:param known: settings with the final address of the HTTP interface"""
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
        """Registers the broker; from then on it may lead and acquire bundles.

        :raises ServedByAnother: it cannot serve beside another process
        :raises MetadataError: the store refused
        """
        await self._registration.announce(known, self._patience_seconds)
        await self.brokers.start()
        if self.leadership is not None:
            await self.leadership.start()
        if self.ownership is not None:
            for namespace in heartbeat_namespaces(known.cluster, known.broker_id):
                await self.ownership.owner_of(whole(namespace), Asked.TAKE)

    async def destinations(self) -> Mapping[Bundle, str]:
        """Returns the next owners of this broker's bundles when it stops; only a leader knows them, and only
        until :meth:`retire`."""
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

    async def retire(self) -> None:
        """Stops acquiring bundles; the broker keeps those that it has."""
        if self.ownership is not None:
            self.ownership.retire()
        for work in (self._registration.withdraw, *([self.leadership.stop] if self.leadership else [])):
            try:
                await work()
            except MetadataError as error:
                log.warning(
                    "cannot withdraw a registration; it ends with the ZooKeeper session",
                    extra={"error": str(error)},
                )

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
