"""Lists of non-persistent topics, of all brokers or of one bundle."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.admin.brokers import elsewhere
from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.service import BrokerService
from magnetar.broker.serving.live_topics import LiveTopics
from magnetar.naming.topic_name import TopicName


class TopicListAdmin:
    def __init__(self, broker: BrokerService, bundles: BundleAdmin) -> None:
        self._broker = broker
        self._bundles = bundles
        self._live = LiveTopics(broker)

    async def non_persistent(self, namespace: str, *, system: bool) -> Sequence[str]:
        """Returns the full names of a namespace's non-persistent topics on all brokers, sorted.

        :param system: include system topics
        :raises NamespaceNotFound: no such namespace
        :raises BrokerError: a broker that serves a part of the namespace does not answer
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        if self._broker.beside is None:
            return await self._broker.topic_names(namespace, mode="NON_PERSISTENT", system=system)
        found = await self._live.of_namespace(name)
        return sorted(each for each in found if system or not TopicName.parse(each).reserved)

    async def within(self, namespace: str, text: str, topics: Sequence[str]) -> Sequence[str]:
        """Returns those of a namespace's topics that belong to a bundle, whichever broker owns it.

        :param text: ``0xSTART_0xEND``
        :raises PreconditionFailed: no such bundle
        """
        bundle = await self._bundles.named(self._broker.parse_namespace(namespace), text)
        return [each for each in topics if TopicName.parse(each) in bundle]

    async def of_bundle(self, namespace: str, text: str) -> Sequence[str] | None:
        """Returns the full names of a bundle's non-persistent topics, sorted; None: the bundle has no owner.

        :param text: ``0xSTART_0xEND``
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: no such bundle
        :raises ServedElsewhere: another broker owns it
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        bundle = await self._bundles.named(name, text)
        owner = await self._live.owner(bundle)
        if owner is not None and not owner.here:
            raise elsewhere(f"{bundle} is served by {owner.broker_id}", owner)
        return None if owner is None else await self._live.here(bundle)
