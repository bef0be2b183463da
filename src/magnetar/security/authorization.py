"""Interfaces of authorization: one object decides for all operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from magnetar.errors import AuthorizationFailure
from magnetar.naming.namespace_name import NamespaceName
from magnetar.security.operations import Operation
from magnetar.security.principal import Principal
from magnetar.security.target import Target

Touched = NamespaceName | str | None
"""A namespace, a tenant by its name, or everything."""
Changed = Callable[[Touched], None]


class Authorizer(Protocol):
    """Decides on permissions, from memory if possible; never called per message."""

    @property
    def asks(self) -> bool:
        """False: without authorization."""
        ...

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        """Returns why a principal lacks the permission; None: it has it.

        :raises MetadataFailure: permissions cannot be read now
        """
        ...

    def listen(self, changed: Changed) -> None:
        """Registers ``changed``, to be called in the loop with the scope of changed permissions."""
        ...


class EverybodyMay:
    """Permits everything, for a broker without authorization."""

    asks = False

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        """Always returns None."""
        return None

    def listen(self, changed: Changed) -> None:
        """Does nothing: nothing changes."""


async def check(authorizer: Authorizer, principal: Principal, operation: Operation, target: Target) -> None:
    """:raises AuthorizationFailure: the principal lacks the permission"""
    if not authorizer.asks:
        return
    reason = await authorizer.refusal(principal, operation, target)
    if reason is not None:
        raise AuthorizationFailure(reason)
