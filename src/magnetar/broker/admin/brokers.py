"""Administration of brokers: which are live, what they serve, and lookups."""

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
    """True: the client is to ask another broker, at ``http_url``."""
    authoritative: bool = True
    """Whether that broker may take the topic's bundle."""


def elsewhere(reason: str, owner: Owner, without: frozenset[str] = frozenset()) -> ServedElsewhere:
    """Returns the exception that sends a request on to another broker.

    :param without: names of query parameters to leave out, as this broker has already applied them
    """
    told = owner.addresses
    return ServedElsewhere(
        reason, told.http, told.http_tls, authoritative=owner.authoritative, without=without
    )


class BrokerAdmin:
    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker

    def ids(self) -> Sequence[str]:
        """Returns ``host:port`` of every live broker."""
        beside = self._broker.beside
        return [self._broker.settings.broker_id] if beside is None else list(beside.brokers.all)

    def leader(self) -> Mapping[str, str]:
        """Returns the id and address of the leader of the cluster; a standalone broker is its own leader.

        :raises NotFound: the cluster has no leader now
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
        """Returns ``NamespaceOwnershipStatus`` of each bundle that a broker serves.

        :raises NotFound: no such broker
        :raises ServedElsewhere: the id is that of another broker, which has to be asked
        """
        self.check_broker(broker_id)
        bundles = sorted(map(str, self._broker.ownership.held()))
        return {
            name: {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
            for name in bundles
        }

    def unload_slowly(self, per_second: int) -> None:
        """Limits how many bundles per second the broker unloads when it stops; 0: no limit.

        :raises PreconditionFailed: below 0
        """
        if per_second < 0:
            raise PreconditionFailed("maxConcurrentUnloadPerSec must be 0 or more")
        self._broker.unloads.most_per_second = per_second

    def check_broker(self, broker_id: str) -> None:
        """:raises NotFound: no such broker

        :raises ServedElsewhere: the id is that of another broker
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
        """Returns ``InternalConfigurationData``: where the cluster keeps its metadata."""
        url = self._broker.settings.metadata_url
        return {
            "zookeeperServers": url,
            "configurationStoreServers": url,
            "metadataStoreUrl": url,
            "configurationMetadataStoreUrl": url,
            "ledgersRootPath": "/ledgers",
        }

    def dynamic_names(self) -> Sequence[str]:
        """Names of the settings that can be changed while the broker runs."""
        return self._broker.dynamic.names

    async def dynamic_values(self) -> Mapping[str, str]:
        """Returns the dynamic settings that were changed.

        :raises MetadataFailure: the stored record is damaged
        """
        return await self._broker.dynamic.values()

    async def set_dynamic(self, name: str, value: str) -> None:
        """Changes a setting at once and for later starts.

        :raises PreconditionFailed: the setting cannot be changed while the broker runs
        """
        await self._broker.dynamic.set(name, value)

    async def delete_dynamic(self, name: str) -> None:
        """Restores the value of the configuration file.

        :raises PreconditionFailed: the setting cannot be changed while the broker runs
        """
        await self._broker.dynamic.delete(name)

    async def lookup(
        self, topic: str, listener: str | None = None, *, authoritative: bool = False
    ) -> LookupAnswer:
        """Looks up the owner of a topic, which need not exist.

        :param listener: name of the advertised listener whose addresses to return
        :param authoritative: the leader chose this broker
        :raises NamespaceNotFound: no such namespace
        """
        owner = await self._broker.look_up(self._broker.parse_topic(topic), authoritative=authoritative)
        told = owner.addresses_of(listener)
        # Listeners often have addresses of the binary protocol only, and a client redirected here uses HTTP.
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
            # The handler of the request reports the missing namespace in its own words.
            return

    async def check_here(self, topic: str, *, authoritative: bool = False) -> None:
        """Checks that this broker serves a topic, for requests that only its owner can answer.

        :param authoritative: the leader chose this broker
        :raises ServedElsewhere: another broker serves it
        """
        name = self._broker.parse_topic(topic)
        if await self._broker.namespaces.partitions(name):
            # A partitioned topic has no owner: each partition has one.
            return
        try:
            owner = await self._broker.owner_of(name, Asked.TAKE if authoritative else Asked.PLACE)
        except TopicNotFound:
            # The handler of the request reports the missing namespace in its own words.
            return
        if not owner.here:
            raise elsewhere(f"{name} is served by {owner.broker_id}", owner)

    async def bundle(self, topic: str) -> str:
        """Returns the bundle of a topic, ``0xSTART_0xEND``; the topic need not exist.

        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        return str((await self._broker.bundles.of_topic(name)).range)
