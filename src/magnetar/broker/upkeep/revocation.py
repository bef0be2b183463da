"""Revocation: after a permission is revoked, producers, consumers, topic list watchers and WebSockets that
need it are closed.

Every change of permissions or credentials records its scope. A moment later, the objects in that scope are
checked again, one slice at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from magnetar.errors import BrokerError
from magnetar.io.interfaces import Cancellable, Io, Task
from magnetar.io.slices import Slice, next_turn
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.wheel import TimerWheel
from magnetar.metadata.interface import MetadataError
from magnetar.naming.namespace_name import NamespaceName
from magnetar.security.authentication import Authenticator
from magnetar.security.authorization import Authorizer, Touched

log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.2
_RETRY_SECONDS = 1.0


class Holder(Protocol):
    """A connection or a WebSocket, whose objects depend on permissions and credentials."""

    @property
    def address(self) -> str: ...

    async def authenticate_again(self, methods: frozenset[str] | None) -> None:
        """Checks credentials again after a change of authentication, if the client uses one of the
        authentication methods ``methods``; None: any method.
        """
        ...

    async def ask_again(self, touched: frozenset[NamespaceName | str] | None) -> None:
        """Checks again the permissions that depend on these namespaces and tenants (by name), where
        permissions have changed; None: all permissions.

        :raises MetadataFailure: the permissions cannot be read now
        """
        ...


class Revocation:
    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        holders: Callable[[], Iterable[Holder]],
        authenticator: Authenticator,
        authorizer: Authorizer,
    ) -> None:
        """:param holders: returns the connections and WebSockets to check"""
        self._io = io
        self._wheel = wheel
        self._holders = [holders]
        self.generation = 0
        """A number that increases with every change that may revoke a permission, after which earlier
        decisions are checked again."""
        self._everything = False
        self._touched: dict[NamespaceName | str, None] = {}
        self._methods: set[str] = set()
        self._all_methods = False
        self._tasks = TaskScope(io.loop, "the check of permissions", owner_goes_on)
        self._task: Task[None] | None = None
        self._timer: Cancellable | None = None
        authorizer.listen(self._permissions_changed)
        authenticator.listen(self._credentials_changed)

    def watch(self, holders: Callable[[], Iterable[Holder]]) -> None:
        """Adds a source of holders, which is queried at every change."""
        self._holders.append(holders)

    def roles_changed(self) -> None:
        """Checks all clients again after a change of the superusers or the roles of proxies."""
        self._all_methods = True
        self._permissions_changed(None)

    def _permissions_changed(self, touched: Touched) -> None:
        self.generation += 1
        if touched is None:
            self._everything = True
        else:
            self._touched[touched] = None
        self._soon(_GATHER_SECONDS)

    def _credentials_changed(self, methods: frozenset[str] | None) -> None:
        if methods is None:
            self._all_methods = True
        else:
            self._methods |= methods
        self._soon(0.0)

    def _soon(self, seconds: float) -> None:
        if self._timer is None and self._task is None:
            self._timer = self._wheel.schedule(seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = self._tasks.start(self._run(), "a check")

    async def _run(self) -> None:
        touched, everything = self._touched, self._everything
        methods, all_methods = self._methods, self._all_methods
        self._touched, self._everything = {}, False
        self._methods, self._all_methods = set(), False
        again = _GATHER_SECONDS
        if methods or all_methods:
            which = None if all_methods else frozenset(methods)
            if not await self._each(lambda holder: holder.authenticate_again(which)):
                self._methods |= methods
                self._all_methods |= all_methods
                again = _RETRY_SECONDS
        if touched or everything:
            by = None if everything else frozenset(touched)
            if not await self._each(lambda holder: holder.ask_again(by)):
                self._touched.update(touched)
                self._everything |= everything
                again = _RETRY_SECONDS
        self._task = None
        if self._touched or self._everything or self._methods or self._all_methods:
            self._soon(again)

    async def _each(self, work: Callable[[Holder], Awaitable[None]]) -> bool:
        """Calls ``work`` for each holder; returns False if some holders could not be checked now; the other
        holders are checked in any case.
        """
        running = Slice(self._io, "permissions")
        failure: Exception | None = None
        for holder in [one for holders in self._holders for one in holders()]:
            try:
                await work(holder)
            except (BrokerError, MetadataError) as error:
                failure = error
            except Exception as error:
                log.exception(
                    "checking the permissions of a client again failed", extra={"peer": holder.address}
                )
                failure = error
            if running.is_over():
                running.end()
                await next_turn(self._io)
                running.begin()
        if failure is not None:
            log.warning("cannot read permissions; trying again", extra={"error": str(failure)})
        return failure is None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tasks.cancel()
