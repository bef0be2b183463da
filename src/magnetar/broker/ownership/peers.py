"""Administration that has to be done at another broker of the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.broker.ownership.brokers import BrokerRecord, LiveBrokers
from magnetar.broker.ownership.contract import Addresses, Placement
from magnetar.broker.ownership.leader import Leadership
from magnetar.errors import BrokerError
from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from magnetar.client.client import Client


class PeerRefused(BrokerError):
    """Another broker was asked and refused; ``str()`` is its reason."""

    def __init__(self, status: int, reason: str, location: str = "") -> None:
        """:param status: of HTTP, from 300 on

        :param location: where it sends whoever asks; empty: nowhere
        """
        super().__init__(reason)
        self.status = status
        self.location = location

    @property
    def http_status(self) -> int:
        return self.status


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What another broker answered."""

    status: int
    body: bytes
    location: str = ""
    """Where it sends whoever asks; empty: nowhere."""

    def json(self) -> Any:
        """:raises ValueError: it is none"""
        return json.loads(self.body) if self.body else None


class PeerAdmin(Protocol):
    """Asks other brokers in this one's own name, over their HTTP interface."""

    async def call(
        self,
        broker: BrokerRecord,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> PeerAnswer:
        """:param path: absolute, encoded as in a URL

        :param body: JSON
        :raises ServiceNotReady: it does not answer in time, or not at all
        :raises PeerRefused: it answers anything else than success; redirects are not followed
        """
        ...


@dataclass(frozen=True, slots=True)
class Beside:
    """What a broker knows of the others of its cluster, and by which it asks them."""

    brokers: LiveBrokers
    leadership: Leadership
    placement: Placement
    admin: PeerAdmin
    client: Callable[[Addresses], Client]
    """Makes one that comes by a broker's own address, in its own name."""
