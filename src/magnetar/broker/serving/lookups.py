"""Lookups of the broker, in this cluster or another cluster, that serves a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from magnetar.broker.flow.rates import LookupEnd, LookupTimes
from magnetar.broker.namespaces.registry import Namespaces
from magnetar.broker.namespaces.serving_clusters import OtherCluster, ServingClusters
from magnetar.broker.ownership.bundles import NamespaceBundles
from magnetar.broker.ownership.contract import Addresses, Asked, Owner, Ownership
from magnetar.broker.settings import BrokerSettings
from magnetar.errors import BrokerError, NotInThisCluster, ServiceNotReady, TooManyRequests
from magnetar.io.interfaces import Clock
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import BROKER, Principal


class Lookups:
    """Answers lookups in one broker, measures their durations, and limits how many are in progress."""

    def __init__(
        self,
        clock: Clock,
        settings: Callable[[], BrokerSettings],
        stopping: Callable[[], bool],
        namespaces: Namespaces,
        serving_clusters: ServingClusters,
        bundles: NamespaceBundles,
        ownership: Ownership,
    ) -> None:
        """:param settings: returns the current settings

        :param stopping: returns whether the broker is stopping
        """
        self._clock = clock
        self._settings = settings
        self._stopping = stopping
        self._namespaces = namespaces
        self._serving_clusters = serving_clusters
        self._bundles = bundles
        self._ownership = ownership
        self.times = LookupTimes()
        self.pending = 0
        """The number of lookups in progress."""

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """Counts a lookup as in progress inside the ``with`` block: the lookup of a topic's owner, of a
        topic's number of partitions, or of the topics of a namespace.

        :raises TooManyRequests: too many lookups are in progress
        """
        if self.pending >= self._settings().max_lookups:
            raise TooManyRequests("Too many lookups in progress")
        self.pending += 1
        try:
            yield
        finally:
            self.pending -= 1

    async def look_up(
        self, name: TopicName, principal: Principal = BROKER, *, authoritative: bool = False
    ) -> Owner:
        """Returns the broker that serves a topic, or the broker to ask next. The topic need not exist.

        The broker to ask next may belong to a peer cluster of this cluster.

        :param principal: the principal of the client that looks the topic up
        :param authoritative: whether the leader has chosen this broker, so that it takes ownership of the
            topic's bundle if the bundle has no owner
        :raises NamespaceNotFound: the namespace does not exist
        :raises NotInThisCluster: the namespace lists neither the local cluster nor a peer
        :raises NotAllowed: this broker does not serve topics of that kind
        :raises TooManyRequests: too many lookups are in progress
        """
        started = self._clock.monotonic()
        try:
            with self.in_progress():
                if self._stopping():
                    raise ServiceNotReady("The broker is stopping")
                self._ownership.check_serving()
                await self._namespaces.check(name.namespace_name)
                other = await self._serving_clusters.other(name.namespace_name)
                if other is not None:
                    owner = _in_other_cluster(other)
                else:
                    owner = await self.owner_of(name, Asked.TAKE if authoritative else Asked.PLACE)
                if owner.here:
                    self._settings().check_served(name)
        except BrokerError:
            self.times.add(LookupEnd.FAILURE, self._clock.monotonic() - started)
            raise
        end = LookupEnd.BROKER if owner.settled else LookupEnd.REDIRECT
        self.times.add(end, self._clock.monotonic() - started)
        return owner

    async def owner_of(self, name: TopicName, asked: Asked = Asked.PLACE) -> Owner:
        """Returns the broker that serves a topic, or the broker to be asked next; the topic need not exist.

        :param asked: what happens if no broker owns the topic's bundle

        :raises NamespaceNotFound: the namespace does not exist
        :raises ServiceNotReady: the owner is not known now
        """
        bundle = await self._bundles.of_topic(name)
        return await self._ownership.owner_of(bundle, asked, persistent=name.persistent)


def _in_other_cluster(cluster: OtherCluster) -> Owner:
    """Returns the addresses of another cluster, in the form of a broker to ask next.

    :raises NotInThisCluster: the record of the cluster has no URL for clients
    """
    if not cluster.binary and not cluster.binary_tls:
        raise NotInThisCluster("Redirected cluster's brokerService url is not configured")
    addresses = Addresses(cluster.binary, cluster.binary_tls, cluster.http, cluster.http_tls)
    return Owner(cluster.name, addresses, here=False, generation=0, settled=False)
