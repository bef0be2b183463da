"""Lists non-persistent topics. They have no record in the metadata store, so the brokers that serve them are
asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from magnetar.broker.ownership.contract import Asked, Bundle, Owner
from magnetar.broker.ownership.peers import Beside, ask
from magnetar.broker.serving.topics import ServedTopics
from magnetar.errors import OwnerUnknown, ServiceNotReady
from magnetar.io.waiting import finished, together
from magnetar.naming.namespace_name import NamespaceName

_AT_ONCE = 16
_DOMAIN = "non-persistent"


class LiveTopics:
    """The loaded non-persistent topics of a cluster, by bundle."""

    def __init__(self, served: ServedTopics, beside: Beside | None) -> None:
        """:param beside: the other brokers of the cluster; None in a standalone broker"""
        self._served = served
        self._beside = beside

    async def owner(self, bundle: Bundle) -> Owner | None:
        """Returns the owner of a bundle; None if no broker owns it, so that no topic of the bundle is loaded.

        :raises OwnerUnknown: the owner cannot be determined now
        """
        try:
            return await self._served.ownership.owner_of(bundle, Asked.LOOK)
        except OwnerUnknown:
            raise
        except ServiceNotReady:
            return None

    async def here(self, bundle: Bundle) -> Sequence[str]:
        """Returns the full names of a bundle's non-persistent topics in this broker, sorted; topics that are
        being loaded are included.
        """
        for loading in self._served.loads_within(lambda name: not name.persistent and name in bundle):
            await finished(self._served.io.loop, loading)
        live = self._served.creation.non_persistent(bundle.namespace)
        return sorted(str(name) for name in live if name in bundle)

    async def of_bundle(self, bundle: Bundle) -> Sequence[str]:
        """Returns the full names of a bundle's topics, as the owner of the bundle reports them.

        :raises BrokerError: the owner is unknown, does not answer, or refuses
        """
        owner = await self.owner(bundle)
        if owner is None:
            return ()
        return await self._of_owner(bundle, owner)

    async def _of_owner(self, bundle: Bundle, owner: Owner) -> Sequence[str]:
        if owner.here:
            return await self.here(bundle)
        root = "/admin" if bundle.namespace.legacy else "/admin/v2"
        path = f"{root}/{_DOMAIN}/{bundle}"
        try:
            told = (await ask(self._beside, owner, "GET", path)).json()
        except ValueError:
            told = False
        return _names(told, path)

    async def of_namespace(self, namespace: NamespaceName, *, deleting: bool = False) -> Sequence[str]:
        """Returns the full names of a namespace's topics from all owners, unsorted.

        :param deleting: whether the namespace is marked as deleted. Pulsar's brokers do not answer requests
            for such a namespace and no longer load its topics, so these brokers are not asked
        :raises BrokerError: an owner is unknown, does not answer, or refuses
        """
        bundles = [Bundle(namespace, each) for each in await self._served.bundles.of_namespace(namespace)]

        async def of(bundle: Bundle) -> Sequence[str]:
            owner = await self.owner(bundle)
            if owner is None or (deleting and self._is_apache(owner)):
                return ()
            return await self._of_owner(bundle, owner)

        found = await together(self._served.io.loop, bundles, of, _AT_ONCE)
        return list(chain.from_iterable(found))

    def _is_apache(self, owner: Owner) -> bool:
        beside = self._beside
        record = beside.brokers.get(owner.broker_id) if beside is not None and not owner.here else None
        return record is not None and not record.is_magnetar


def _names(told: object, path: str) -> Sequence[str]:
    """Returns the names in another broker's answer; empty if the broker has unloaded the bundle in the
    meantime.

    :raises ServiceNotReady: the answer is not a list of names
    """
    if told is None:
        return ()
    if not isinstance(told, list) or not all(isinstance(name, str) for name in told):
        raise ServiceNotReady(f"The broker that serves {path} did not answer with a list of names")
    return [name for name in told if name.startswith(f"{_DOMAIN}://")]
