"""A client's connection as the rooms see it that hold it back, or watch over it."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.flow.outgoing import Outgoing
from magnetar.naming.namespace_name import NamespaceName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


class ClientConnection(Protocol):
    """``connections.connection.Connection``: a room above this one has it."""

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
        """Whether it is not read for a reason that is not its client's."""
        ...

    @property
    def throttled(self) -> bool:
        """Whether it is not read because its client has published beyond a rate."""
        ...

    @property
    def greeted(self) -> bool:
        """Whether it is known who its client is, and no longer asked."""
        ...

    async def authenticate_again(self, methods: frozenset[str] | None) -> None:
        """What clients are let in by has changed: those that came by one of ``methods``; None: all."""
        ...

    async def ask_again(self, touched: frozenset[NamespaceName | str] | None) -> None:
        """What is allowed has changed, in namespaces and tenants (by name); None: everywhere.

        :raises MetadataFailure: it cannot be known now
        """
        ...

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def read_on(self) -> None:
        """Takes apart what it holds, then what comes; unless it has been stopped again, or has gone."""
        ...

    def send(self, command: BaseCommand) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
