"""The brokers of a cluster, and which of them serves what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.ownership.contract import Asked, Owner
from magnetar.broker.service import BrokerService
from magnetar.errors import (
    NamespaceNotFound,
    NotFound,
    PreconditionFailed,
    ServedElsewhere,
    TopicNotFound,
)
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Where a topic is served."""

    broker_url: str | None
    http_url: str | None
    broker_url_tls: str | None = None
    http_url_tls: str | None = None
    redirect: bool = False
    """True: another broker is to be asked, at ``http_url``."""
    authoritative: bool = True
    """Whether that one is to take the topic's bundle."""


def elsewhere(reason: str, owner: Owner, without: frozenset[str] = frozenset()) -> ServedElsewhere:
    """What is raised of that which another broker has to do.

    :param without: what has been done here, by the names in the query of the request
    """
    told = owner.addresses
    return ServedElsewhere(
        reason, told.http, told.http_tls, authoritative=owner.authoritative, without=without
    )


class BrokerAdmin:
    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker

    def ids(self) -> Sequence[str]:
        """``host:port`` of every live broker."""
        beside = self._broker.beside
        return [self._broker.settings.broker_id] if beside is None else list(beside.brokers.all)

    def leader(self) -> Mapping[str, str]:
        """Id and address of the broker that leads the cluster; where there is only one it does.

        :raises NotFound: nobody leads now
        """
        own, beside = self._broker.settings, self._broker.beside
        if beside is None:
            return {"brokerId": own.broker_id, "serviceUrl": own.http_url}
        found = beside.leadership.leader()
        if found is None:
            raise NotFound("Couldn't find leader broker")
        told = found.addresses
        return {"brokerId": found.broker_id, "serviceUrl": told.http or told.http_tls or ""}

    def owned(self, broker_id: str) -> Mapping[str, Mapping[str, Any]]:
        """``NamespaceOwnershipStatus`` of each bundle that a broker serves.

        :raises NotFound: there is no such broker
        :raises ServedElsewhere: it is another one, which knows
        """
        self.check_broker(broker_id)
        bundles = sorted(map(str, self._broker.ownership.held()))
        return {
            name: {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
            for name in bundles
        }

    def unload_slowly(self, per_second: int) -> None:
        """When the broker stops, it gives up so many bundles a second at most; 0: any number.

        :raises PreconditionFailed: below 0
        """
        if per_second < 0:
            raise PreconditionFailed("maxConcurrentUnloadPerSec must be 0 or more")
        self._broker.unloads.most_per_second = per_second

    def check_broker(self, broker_id: str) -> None:
        """:raises NotFound: there is no such broker

        :raises ServedElsewhere: it is another one
        """
        beside = self._broker.beside
        if broker_id == self._broker.settings.broker_id:
            return
        found = beside.brokers.get(broker_id) if beside is not None else None
        if found is None:
            raise NotFound(f"Broker {broker_id} not found")
        told = found.addresses
        raise ServedElsewhere(
            f"Only {broker_id} answers this request", told.http, told.http_tls, authoritative=False
        )

    def internal_configuration(self) -> Mapping[str, str]:
        """Where the cluster keeps its metadata: ``InternalConfigurationData``."""
        url = self._broker.settings.metadata_url
        return {
            "zookeeperServers": url,
            "configurationStoreServers": url,
            "metadataStoreUrl": url,
            "configurationMetadataStoreUrl": url,
            "ledgersRootPath": "/ledgers",
        }

    def dynamic_names(self) -> Sequence[str]:
        """Settings that can be changed while the broker runs."""
        return self._broker.dynamic.names

    async def dynamic_values(self) -> Mapping[str, str]:
        """What was changed of them.

        :raises MetadataFailure: what is stored is not what a broker writes
        """
        return await self._broker.dynamic.values()

    async def set_dynamic(self, name: str, value: str) -> None:
        """Counts at once, and after every start.

        :raises PreconditionFailed: it cannot be changed while the broker runs
        """
        await self._broker.dynamic.set(name, value)

    async def delete_dynamic(self, name: str) -> None:
        """What the broker's file says counts again.

        :raises PreconditionFailed: it cannot be changed while the broker runs
        """
        await self._broker.dynamic.delete(name)

    async def lookup(
        self, topic: str, listener: str | None = None, *, authoritative: bool = False
    ) -> LookupAnswer:
        """Who serves a topic; it need not exist.

        :param listener: the name of the listener whose addresses are wanted
        :param authoritative: this broker was chosen by the one that leads
        :raises NamespaceNotFound: no such namespace
        """
        owner = await self._broker.look_up(self._broker.parse_topic(topic), authoritative=authoritative)
        told = owner.addresses_of(listener)
        # Listeners often have the binary protocol alone; whoever is sent on came by HTTP.
        web = told if told.http or told.http_tls else owner.addresses
        return LookupAnswer(
            told.binary,
            web.http,
            told.binary_tls,
            web.http_tls,
            redirect=not owner.settled,
            authoritative=owner.authoritative,
        )

    async def check_cluster(self, topic: str) -> None:
        """:raises NotInThisCluster: the local cluster does not serve the topics of that namespace"""
        try:
            await self._broker.serving_clusters.check(self._broker.parse_topic(topic).namespace_name)
        except NamespaceNotFound:
            # The handler of the request says in its own words that there is no such namespace.
            return

    async def check_here(self, topic: str, *, authoritative: bool = False) -> None:
        """What is asked of a topic is asked of its broker.

        :param authoritative: this broker was chosen by the one that leads
        :raises ServedElsewhere: that is another one
        """
        name = self._broker.parse_topic(topic)
        if await self._broker.namespaces.partitions(name):
            # It is a name: its partitions are served, each by its own broker.
            return
        try:
            owner = await self._broker.owner_of(name, Asked.TAKE if authoritative else Asked.PLACE)
        except TopicNotFound:
            # Whoever handles the request says in its own words that there is no such namespace.
            return
        if not owner.here:
            raise elsewhere(f"{name} is served by {owner.broker_id}", owner)

    async def bundle(self, topic: str) -> str:
        """The bundle in which a topic lies, ``0xSTART_0xEND``; it need not exist.

        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        return str((await self._broker.bundles.of_topic(name)).range)
