"""The interface through which lookups, the loading of topics, and administration find a bundle's owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Protocol

from magnetar.errors import InvalidRequest, ServiceNotReady
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import MetadataStore, SessionEvent
from magnetar.naming.bundles import BundleRange
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle: the topics of a namespace whose hashes lie in one range."""

    namespace: NamespaceName
    range: BundleRange

    @classmethod
    def parse(cls, text: str) -> Bundle:
        """Parses ``tenant/namespace/0xSTART_0xEND``.

        :raises InvalidName: the text has another form
        """
        namespace, _, bounds = text.rpartition("/")
        return cls(NamespaceName.parse(namespace), BundleRange.parse(bounds))

    def __contains__(self, name: TopicName) -> bool:
        return name.namespace_name == self.namespace and name.bundle_hash in self.range

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of a broker for clients; None for a kind of connection that the broker does not offer."""

    binary: str | None
    binary_tls: str | None = None
    http: str | None = None
    http_tls: str | None = None

    def as_record(self) -> dict[str, str | None]:
        """Returns the addresses in the form of a cluster's record (Pulsar's ``ClusterData``)."""
        return {
            "serviceUrl": self.http,
            "serviceUrlTls": self.http_tls,
            "brokerServiceUrl": self.binary,
            "brokerServiceUrlTls": self.binary_tls,
        }


@dataclass(frozen=True, slots=True)
class Owner:
    """The broker that owns a bundle or, if the bundle has no owner, the broker to ask next."""

    broker_id: str
    addresses: Addresses
    here: bool
    """Whether the owner is this broker."""
    generation: int
    """A number that changes whenever the owner changes; callers compare it again after every wait."""
    listeners: Mapping[str, Addresses] = field(default_factory=dict)
    """Addresses for clients that name an advertised listener (``advertisedListeners``)."""
    settled: bool = True
    """Whether the broker owns the bundle; False if no broker owns it, and this broker must be asked next."""
    authoritative: bool = True
    """For a broker that must be asked next: whether it takes ownership of the bundle without asking the
    leader."""

    def addresses_of(self, listener: str | None) -> Addresses:
        """Returns the addresses for a client.

        :param listener: the name of the listener in the client's request; None or empty: the request names no
            listener
        :raises InvalidRequest: the broker has listeners, but none of that name
        """
        if not listener or not self.listeners:
            return self.addresses
        found = self.listeners.get(listener)
        if found is None:
            raise InvalidRequest(f"The broker has no listener named {listener!r}")
        return found


Lost = Callable[[Bundle | None], None]
"""Called with a bundle that this broker has lost; with None, if the broker has lost all bundles."""


class Asked(Enum):
    """The treatment of a bundle that no broker owns, in a request for its owner."""

    PLACE = "place"
    """The leader chooses the broker that will own the bundle."""
    TAKE = "take"
    """This broker, which was chosen, takes ownership of the bundle."""
    LOOK = "look"
    """The request only reads the owner; the bundle stays without one."""
    READ = "read"
    """As LOOK, but the owner's node is read from the metadata store and not from the cache.

    When the answer arrives, the listeners have been told of all earlier changes: ZooKeeper sends a client the
    notification of a change before the answer to a later read (ZooKeeper's programmer's guide, on watches).
    """


class Ownership(Protocol):
    def check_serving(self) -> None:
        """Checks that this broker can own bundles.

        :raises ServiceNotReady: this broker cannot own bundles now
        """
        ...

    async def owner_of(self, bundle: Bundle, asked: Asked = Asked.PLACE, *, persistent: bool = True) -> Owner:
        """Returns the broker that owns a bundle or must be asked next. If the bundle has no owner and this
        broker was chosen, this broker becomes the owner.

        :param persistent: whether the request is for a persistent topic; a bundle without an owner goes to a
            broker that serves topics of that kind
        :raises ServiceNotReady: the bundle has no owner and gets none, or its owner is unloading it
        :raises OwnerUnknown: the metadata store does not answer
        """
        ...

    def held(self) -> Sequence[Bundle]:
        """Returns the bundles that this broker owns and is not releasing; empty in a standalone broker, which
        owns every bundle."""
        ...

    def begin_release(self, bundle: Bundle) -> bool:
        """Starts the release of a bundle: this broker no longer answers lookups as its owner, and loads no
        more of its topics.

        :returns: False if this broker does not own the bundle, or is releasing it already
        """
        ...

    async def release(self, bundle: Bundle, towards: str | None = None) -> None:
        """Completes the release that :meth:`begin_release` began: from now on, other brokers may own the
        bundle.

        :param towards: the broker that is to own the bundle next; None: not known
        :raises MetadataError: the metadata store refuses the request; this broker stays the owner
        """
        ...

    async def retire_bundle(self, bundle: Bundle) -> None:
        """Retires a bundle that was split: no broker can own it again, even one that does not know of the
        split.

        :raises MetadataFailure: the metadata store refuses the request
        """
        ...

    def is_current(self, bundle: Bundle, owner: Owner) -> bool:
        """Whether a previously returned owner still owns the bundle, as far as this broker knows.

        True also while the bundle is being released or was split, so that a topic that is loading is not
        dropped.
        """
        ...

    def listen(self, lost: Lost) -> None:
        """Registers ``lost``, called on the loop when this broker has lost a bundle; from then on, the broker
        must not write anything for the bundle's topics.
        """
        ...


MakeOwnership = Callable[[Callable[[int], Owner]], Ownership]
"""Makes the ownership for a broker; the argument is a function that, given a generation, returns the
:class:`Owner` that describes this broker.
"""


class Placement(Protocol):
    """Chooses the broker for a bundle without an owner; runs in the leader.

    Only the placement remembers the destination of a bundle; the most recent choice applies.
    """

    def wants(self, bundle: Bundle, persistent: bool) -> None:
        """Sets the kind of topics for which the next broker of a bundle is chosen."""
        ...

    def prefer(self, bundle: Bundle, broker_id: str, *, owned: bool) -> None:
        """Makes a broker the answer to all lookups of a bundle that has no owner, if the broker is live and
        may own the bundle.

        Clients of several topics of the bundle come at the same time; the preference applies to all of them
        until the bundle has its next owner.

        :param owned: whether the bundle has an owner, which is to release it first
        """
        ...

    def left(self, bundle: Bundle) -> None:
        """Records that the owner of a bundle has released it."""
        ...

    def arrived(self, bundle: Bundle) -> None:
        """Drops the preference for a bundle that has its next owner."""
        ...

    async def choose(self, bundle: Bundle, exclude: frozenset[str] = frozenset()) -> str | None:
        """Returns the id of a live broker; None if no broker may own the bundle now.

        :param exclude: ids of brokers that are chosen only if there are no others
        """
        ...


class OnlyBroker:
    """Ownership in a standalone broker, which owns every bundle as long as its session lasts."""

    def __init__(self, metadata: MetadataStore, own: Callable[[int], Owner]) -> None:
        """:param own: returns, for a generation, the :class:`Owner` that describes this broker"""
        self._own = own
        self._generation = 1
        self._lasts = True
        """Whether this broker has a session with the metadata store."""
        self._listeners: list[Lost] = []
        metadata.listen_session(self._session_changed)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._lasts = False
            self._generation += 1
            for lost in self._listeners:
                lost(None)
        elif event in (SessionEvent.CONNECTED, SessionEvent.RECONNECTED):
            self._lasts = True

    def check_serving(self) -> None:
        if not self._lasts:
            raise ServiceNotReady("The broker has lost its session with the metadata store")

    async def owner_of(self, bundle: Bundle, asked: Asked = Asked.PLACE, *, persistent: bool = True) -> Owner:
        self.check_serving()
        return self._own(self._generation)

    async def retire_bundle(self, bundle: Bundle) -> None:
        """Does nothing, because this broker owns every bundle."""

    def held(self) -> Sequence[Bundle]:
        return ()

    def begin_release(self, bundle: Bundle) -> bool:
        return False

    async def release(self, bundle: Bundle, towards: str | None = None) -> None:
        """Does nothing, because no other broker could own the bundle."""

    def is_current(self, bundle: Bundle, owner: Owner) -> bool:
        return self._lasts and owner.generation == self._generation

    def listen(self, lost: Lost) -> None:
        self._listeners.append(lost)
