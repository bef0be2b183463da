"""Who may do what: asked wherever something is asked for, decided by one object."""

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
    """What decides. It answers from memory where it can; never asked per message."""

    @property
    def asks(self) -> bool:
        """False: everybody may do everything, and nothing of it ever changes."""
        ...

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        """Why somebody may not do something; None: they may.

        :raises MetadataFailure: it cannot be known now
        """
        ...

    def listen(self, changed: Changed) -> None:
        """``changed`` is called, in the loop, with what has other rules from now on."""
        ...


class EverybodyMay:
    """Of a broker without authorization."""

    asks = False

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        """None, always."""
        return None

    def listen(self, changed: Changed) -> None:
        """Nothing ever changes."""


async def check(authorizer: Authorizer, principal: Principal, operation: Operation, target: Target) -> None:
    """:raises AuthorizationFailure: somebody may not do something"""
    if not authorizer.asks:
        return
    reason = await authorizer.refusal(principal, operation, target)
    if reason is not None:
        raise AuthorizationFailure(reason)
