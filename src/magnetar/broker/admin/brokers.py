"""The brokers of a cluster, and which of them serves what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from magnetar.broker.service import BrokerService
from magnetar.errors import ServedElsewhere, TopicNotFound


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Where a topic is served."""

    broker_url: str | None
    http_url: str | None
    broker_url_tls: str | None = None
    http_url_tls: str | None = None
    redirect: bool = False
    """True: another broker is to be asked, at ``http_url``."""


class BrokerAdmin:
    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker

    def ids(self) -> Sequence[str]:
        """``host:port`` of every live broker, own first."""
        return [self._broker.settings.broker_id]

    def leader(self) -> Mapping[str, str]:
        """Id and address of the broker that leads the cluster: the only one does."""
        own = self._broker.settings
        return {"brokerId": own.broker_id, "serviceUrl": own.http_url}

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

    async def lookup(self, topic: str, listener: str | None = None) -> LookupAnswer:
        """Who serves a topic; it need not exist.

        :param listener: the name of the listener whose addresses are wanted
        :raises NamespaceNotFound: no such namespace
        """
        owner = await self._broker.look_up(self._broker.parse_topic(topic))
        told = owner.addresses_of(listener)
        return LookupAnswer(told.binary, told.http, told.binary_tls, told.http_tls, redirect=not owner.here)

    async def check_here(self, topic: str) -> None:
        """What is asked of a topic is asked of its broker.

        :raises ServedElsewhere: that is another one
        """
        name = self._broker.parse_topic(topic)
        if await self._broker.namespaces.partitions(name):
            # It is a name: its partitions are served, each by its own broker.
            return
        try:
            owner = await self._broker.owner_of(name)
        except TopicNotFound:
            # Whoever handles the request says in its own words that there is no such namespace.
            return
        if not owner.here:
            raise ServedElsewhere(f"{name} is served by {owner.broker_id}", owner.addresses.http)

    async def bundle(self, topic: str) -> str:
        """The bundle in which a topic lies, ``0xSTART_0xEND``; it need not exist.

        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        return str((await self._broker.bundles.of_topic(name)).range)
