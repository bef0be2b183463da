"""Lists of topics that are nowhere written down: whoever serves them is asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from magnetar.broker.admin.at_owners import ask_owner
from magnetar.broker.admin.brokers import elsewhere
from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.ownership.contract import Asked, Bundle, Owner
from magnetar.broker.service import BrokerService
from magnetar.errors import ServiceNotReady
from magnetar.io.together import together
from magnetar.naming.topic_name import TopicName

_AT_ONCE = 16
_DOMAIN = "non-persistent"


class TopicListAdmin:
    def __init__(self, broker: BrokerService, bundles: BundleAdmin) -> None:
        self._broker = broker
        self._bundles = bundles

    async def non_persistent(self, namespace: str, *, system: bool) -> Sequence[str]:
        """Full names of a namespace's non-persistent topics, of whichever broker, sorted.

        :param system: the system's own ones too
        :raises NamespaceNotFound: no such namespace
        :raises BrokerError: a broker that serves some of it does not answer
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        if self._broker.beside is None:
            return await self._broker.topic_names(namespace, mode="NON_PERSISTENT", system=system)
        bundles = [Bundle(name, each) for each in await self._broker.bundles.of_namespace(name)]
        found = chain.from_iterable(await together(self._broker.io.loop, bundles, self._of, _AT_ONCE))
        return sorted(each for each in found if system or not TopicName.parse(each).reserved)

    async def within(self, namespace: str, text: str, topics: Sequence[str]) -> Sequence[str]:
        """Those of a namespace's topics that lie in a bundle, whoever serves it.

        :param text: ``0xSTART_0xEND``
        :raises PreconditionFailed: no such bundle
        """
        bundle = await self._bundles.named(self._broker.parse_namespace(namespace), text)
        return [each for each in topics if TopicName.parse(each) in bundle]

    async def of_bundle(self, namespace: str, text: str) -> Sequence[str] | None:
        """Full names of a bundle's non-persistent topics, sorted; None: nobody serves it.

        :param text: ``0xSTART_0xEND``
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: no such bundle
        :raises ServedElsewhere: another broker serves it
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        bundle = await self._bundles.named(name, text)
        owner = await self._owner(bundle)
        if owner is not None and not owner.here:
            raise elsewhere(f"{bundle} is served by {owner.broker_id}", owner)
        return None if owner is None else self._here(bundle)

    async def _of(self, bundle: Bundle) -> Sequence[str]:
        owner = await self._owner(bundle)
        if owner is None:
            return ()
        if owner.here:
            return self._here(bundle)
        root = "/admin" if bundle.namespace.legacy else "/admin/v2"
        path = f"{root}/{_DOMAIN}/{bundle}"
        try:
            told = (await ask_owner(self._broker, owner, "GET", path)).json()
        except ValueError:
            told = False
        return _names(told, path)

    def _here(self, bundle: Bundle) -> Sequence[str]:
        live = self._broker.creation.non_persistent(bundle.namespace)
        return sorted(str(name) for name in live if name in bundle)

    async def _owner(self, bundle: Bundle) -> Owner | None:
        """None: nobody serves it now, and nothing of it is loaded."""
        try:
            return await self._broker.ownership.owner_of(bundle, Asked.LOOK)
        except ServiceNotReady:
            return None


def _names(told: Any, path: str) -> Sequence[str]:
    """What another broker answered; nothing: it gave the bundle up meanwhile.

    :raises ServiceNotReady: it is no list of names
    """
    if told is None:
        return ()
    if not isinstance(told, list) or not all(isinstance(name, str) for name in told):
        raise ServiceNotReady(f"What serves {path} does not answer with names")
    return [name for name in told if name.startswith(f"{_DOMAIN}://")]
