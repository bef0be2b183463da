"""Owners of bundles, as lookups, loading of topics and administration ask for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from magnetar.errors import InvalidRequest
from magnetar.naming.bundles import BundleRange
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class Bundle:
    """Some of a namespace's topics: those whose hashes lie in a range."""

    namespace: NamespaceName
    range: BundleRange

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


class Ownership(Protocol):
    def check_serving(self) -> None:
        """:raises ServiceNotReady: this broker cannot own anything now"""
        ...

    async def owner_of(self, bundle: Bundle) -> Owner:
        """The broker that serves a bundle; it becomes this one where nobody did and this one may.

        :raises ServiceNotReady: it is not known now
        """
        ...

    def is_current(self, bundle: Bundle, owner: Owner) -> bool:
        """Whether an owner that was told earlier still owns it, as far as this broker knows."""
        ...

    def listen(self, lost: Lost) -> None:
        """``lost`` is called in the loop; from then on nothing of it may be written."""
        ...


class Placement(Protocol):
    """Who is to serve what nobody serves: asked at the broker that leads."""

    async def choose(self, bundle: Bundle, exclude: frozenset[str] = frozenset()) -> str | None:
        """The id of a live broker; None: no broker may serve it now.

        :param exclude: ids of brokers that are not to be chosen as long as there are others
        """
        ...
