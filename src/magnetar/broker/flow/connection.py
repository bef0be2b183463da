"""A client's connection as seen by the layers that pause or watch it."""

from __future__ import annotations

from typing import Protocol

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
