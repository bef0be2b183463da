"""A client's connection as seen by the layers that pause or watch it, or redirect its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from magnetar.broker.flow.outgoing import Outgoing
from magnetar.naming.namespace_name import NamespaceName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


class ClientConnection(Protocol):
    """``connections.connection.Connection``, in a layer above this one."""

    outgoing: Outgoing

    @property
    def host(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def pending_publishes(self) -> int: ...
    @property
    def held_back(self) -> bool:
        """Whether reading is paused for a reason on the broker's side."""
        ...

    @property
    def throttled(self) -> bool:
        """Whether reading is paused because the client exceeds a publish rate."""
        ...

    @property
    def greeted(self) -> bool:
        """Whether the client is authenticated."""
        ...

    async def authenticate_again(self, methods: frozenset[str] | None) -> None:
        """Authenticates the client again if it used one of the changed ``methods``; None: all methods."""
        ...

    async def ask_again(self, touched: frozenset[NamespaceName | str] | None) -> None:
        """Checks permissions again in the changed namespaces and tenants (by name); None: everywhere.

        :raises MetadataFailure: the permissions cannot be read
        """
        ...

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def read_on(self) -> None:
        """Handles what was read already, then reads on, unless the connection was paused again or closed."""
        ...

    def send(self, command: BaseCommand) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Assigned(NamedTuple):
    """The addresses of the broker that serves a topic from now on; empty: it has no such address."""

    url: str
    url_tls: str


class Departure:
    """Topics of one bundle that are leaving: input of their clients is ignored until they are told the new
    broker.
    """

    def __init__(self) -> None:
        self._farewells: list[Callable[[Assigned | None], None]] = []

    def add(self, farewell: Callable[[Assigned | None], None]) -> None:
        """:param farewell: tells one client"""
        self._farewells.append(farewell)

    @property
    def waiting(self) -> int:
        return len(self._farewells)

    def tell(self, assigned: Assigned | None) -> None:
        """:param assigned: None: clients look their topics up"""
        farewells, self._farewells = self._farewells, []
        for farewell in farewells:
            farewell(assigned)
