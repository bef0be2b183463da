"""Owners of bundles, as lookups, loading of topics and administration ask for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Protocol

from magnetar.errors import InvalidRequest
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.bundles import BundleRange
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class Bundle:
    """Some of a namespace's topics: those whose hashes lie in a range."""

    namespace: NamespaceName
    range: BundleRange

    @classmethod
    def parse(cls, text: str) -> Bundle:
        """Reads ``tenant/namespace/0xSTART_0xEND``.

        :raises InvalidName: it has another shape
        """
        namespace, _, bounds = text.rpartition("/")
        return cls(NamespaceName.parse(namespace), BundleRange.parse(bounds))

    def __contains__(self, name: TopicName) -> bool:
        return name.namespace_name == self.namespace and name.bundle_hash in self.range

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where clients reach a broker; None: not in that way."""

    binary: str | None
    binary_tls: str | None = None
    http: str | None = None
    http_tls: str | None = None

    def as_record(self) -> dict[str, str | None]:
        """As the record of a cluster (``ClusterData`` of Pulsar's) would lead there."""
        return {
            "serviceUrl": self.http,
            "serviceUrlTls": self.http_tls,
            "brokerServiceUrl": self.binary,
            "brokerServiceUrlTls": self.binary_tls,
        }


@dataclass(frozen=True, slots=True)
class Owner:
    """A broker that serves a bundle."""

    broker_id: str
    addresses: Addresses
    here: bool
    """Whether it is this broker."""
    generation: int
    """Another one whenever the bundle changed hands; who acts after having waited compares it."""
    listeners: Mapping[str, Addresses] = field(default_factory=dict)
    """Addresses for clients that ask by the name of a listener (``advertisedListeners``)."""
    settled: bool = True
    """It has the bundle; False: nobody does, and this broker is the one to be asked next."""
    authoritative: bool = True
    """Of one that is to be asked next: whether it is to take the bundle, and not to ask who should."""

    def addresses_of(self, listener: str | None) -> Addresses:
        """What a client is told.

        :param listener: the name it asks by; None or empty: by none
        :raises InvalidRequest: the broker has listeners, and none of that name
        """
        if not listener or not self.listeners:
            return self.addresses
        found = self.listeners.get(listener)
        if found is None:
            raise InvalidRequest(f"The broker has no listener named {listener!r}")
        return found


Lost = Callable[[Bundle | None], None]
"""Told of a bundle that is this broker's no more; None: of all of them."""


class Asked(Enum):
    """What becomes of a bundle that nobody serves when somebody asks for its owner."""

    PLACE = "place"
    """The broker that leads says who is to serve it."""
    TAKE = "take"
    """This broker was chosen: it takes the bundle."""
    LOOK = "look"
    """Nothing: who asks does not come with a lookup."""


class Ownership(Protocol):
    def check_serving(self) -> None:
        """:raises ServiceNotReady: this broker cannot own anything now"""
        ...

    async def owner_of(self, bundle: Bundle, asked: Asked = Asked.PLACE, *, persistent: bool = True) -> Owner:
        """The broker that serves a bundle, or is to be asked next; it becomes this one where nobody served it
        and this one is to.

        :param persistent: the kind of topic that it is asked for: it goes where such are served
        :raises ServiceNotReady: nobody has it and it is not taken, or it is being given up
        :raises OwnerUnknown: the store does not answer
        """
        ...

    def held(self) -> Sequence[Bundle]:
        """What this broker owns, as far as it has to be taken and given up one by one."""
        ...

    def begin_release(self, bundle: Bundle) -> bool:
        """From now on it is nobody's as far as lookups here go, and nothing of it is loaded.

        :returns: False when it is not this broker's, or being given up already
        """
        ...

    async def release(self, bundle: Bundle, towards: str | None = None) -> None:
        """Ends what :meth:`begin_release` began: others may take the bundle.

        :param towards: the broker that is to have it next, where that is known
        :raises MetadataError: the store refused; it stays this broker's
        """
        ...

    async def retire_bundle(self, bundle: Bundle) -> None:
        """A bundle of this broker was divided: nobody takes it again, whoever has not heard of that yet.

        :raises MetadataFailure: the store refused
        """
        ...

    def is_current(self, bundle: Bundle, owner: Owner) -> bool:
        """Whether an owner that was told earlier still owns it, as far as this broker knows.

        While it is being given up, or was divided, it still is: nobody gives up what is being loaded.
        """
        ...

    def listen(self, lost: Lost) -> None:
        """``lost`` is called in the loop; from then on nothing of it may be written."""
        ...


class Placement(Protocol):
    """Who is to serve what nobody serves: asked at the broker that leads.

    Here alone is remembered where a bundle is to go; the latest word counts.
    """

    def wants(self, bundle: Bundle, persistent: bool) -> None:
        """The topics that count in the next choice for a bundle."""
        ...

    def prefer(self, bundle: Bundle, broker_id: str) -> None:
        """All who ask while nobody has the bundle are sent to that broker, if it lives and may have it.

        Clients of several of its topics come at once: all of them, until somebody has it.
        """
        ...

    def arrived(self, bundle: Bundle) -> None:
        """Somebody has the bundle: what was said of where it is to go counts no more."""
        ...

    async def choose(self, bundle: Bundle, exclude: frozenset[str] = frozenset()) -> str | None:
        """The id of a live broker; None: no broker may serve it now.

        :param exclude: ids of brokers that are not to be chosen as long as there are others
        """
        ...
