"""The brokers of a cluster, and which of them serves what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from magnetar.broker.service import BrokerService
from magnetar.naming.bundles import Bundles


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Where a topic is served."""

    broker_url: str
    http_url: str
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

    async def lookup(self, topic: str) -> LookupAnswer:
        """Who serves a topic; it need not exist. :raises NamespaceNotFound: no such namespace"""
        await self._broker.check_lookup(self._broker.parse_topic(topic))
        return LookupAnswer(self._broker.settings.service_url, self._broker.settings.http_url)

    async def bundle(self, topic: str) -> str:
        """The bundle in which a topic lies, ``0xSTART_0xEND``; it need not exist.

        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        division = (await self._broker.policies.namespaces.get(name.namespace_name))["bundles"]
        return str(Bundles.parse(division["boundaries"]).of_topic(str(name)))
