"""The user of a WebSocket, and the user's permissions. The WebSocket service connects to brokers with its own
role, which has all permissions, so brokers cannot distinguish users. Therefore this module checks the user's
permission on each topic that a request names or that the client derives from it, such as a dead letter topic;
it checks again when permissions change (see :class:`magnetar.broker.upkeep.revocation.Revocation`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from magnetar.broker import events
from magnetar.broker.translation import to_broker_error
from magnetar.client.exceptions import AuthorizationError
from magnetar.errors import BrokerError, InternalError
from magnetar.io.interfaces import Cancellable, Clock, Loop, Task
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import Authenticator, Claim, Principal
from magnetar.security.authorization import Authorizer, Target, TopicOperation, check
from magnetar.security.chain import renewed

log = logging.getLogger("magnetar.http")

_LONGEST_TIMER_SECONDS = 86_400.0


class User:
    """The user of one WebSocket; exists from the request that opens the WebSocket until the WebSocket has
    ended.
    """

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        authenticator: Authenticator,
        authorizer: Authorizer,
        principal: Principal,
        claim: Claim,
        forget: Callable[[User], object],
    ) -> None:
        """:param claim: the credentials of ``principal``

        :param forget: called when the WebSocket has ended
        """
        self.address = claim.credentials[0].peer if claim.credentials else ""
        """``host:port`` of the client."""
        self._loop = loop
        self._clock = clock
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._principal = principal
        self._claim = claim
        self._forget = forget
        self._allowed: dict[tuple[TopicOperation, Target], None] = {}
        """The permissions that the WebSocket needs and that were granted, as keys; the values are not
        used.
        """
        self._end: Callable[[str], object] | None = None
        self._lost: str | None = None
        """Why the user must no longer use the WebSocket; None: the user may use it."""
        self._timer: Cancellable | None = None
        self._tasks = TaskScope(loop, "a WebSocket client", owner_goes_on)
        self._proving: Task[None] | None = None
        self._await_expiry()

    # what the user may do

    async def check_produce(self, topic: TopicName, *, replicates: bool = False) -> None:
        """Checks that the user may publish to a topic.

        :param replicates: whether the producer's name is reserved for replicators of other clusters
        :raises AuthorizationFailure: the user lacks permission to publish to the topic
        """
        await self._check(TopicOperation.PRODUCE, Target.of_topic(topic))
        if replicates:
            await self._check(TopicOperation.REPLICATE, Target.of_topic(topic))

    async def check_consume(self, topic: TopicName, subscription: str = "") -> None:
        """Checks that the user may consume from a topic with a subscription.

        :raises AuthorizationFailure: the user lacks permission to consume from the topic with the
            subscription
        """
        await self._check(TopicOperation.CONSUME, Target.of_topic(topic, subscription))

    async def check_dead_letters(self, topic: str) -> None:
        """Checks that the user may publish to a dead letter topic, before a producer is opened on it.

        :raises AuthorizationError: the user lacks permission to publish to the topic, or the check failed
        """
        try:
            await self.check_produce(TopicName.parse(topic))
        except (BrokerError, InvalidName) as error:
            raise AuthorizationError(str(error)) from error

    async def _check(self, operation: TopicOperation, target: Target) -> None:
        await check(self._authorizer, self._principal, operation, target)
        self._allowed[operation, target] = None

    # the end

    def until(self, end: Callable[[str], object]) -> None:
        """Calls ``end`` once, with the reason, when the user must no longer use the WebSocket; immediately if
        this is already the case.
        """
        self._end = end
        if self._lost is not None:
            end(self._lost)

    def leave(self) -> None:
        """Must be called when the WebSocket has ended or could not be opened: ends all checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._proving is not None:
            self._proving.cancel()
            self._proving = None
        self._end = None
        self._forget(self)

    def _lose(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            if self._end is not None:
                self._end(reason)

    # permissions that change

    async def ask_again(self, touched: frozenset[NamespaceName | str] | None) -> None:
        """Checks the permissions again after they have changed.

        :param touched: the namespaces and tenants whose permissions may have changed; None: all
        :raises MetadataFailure: the permissions cannot be read now
        """
        for operation, target in list(self._allowed):
            if touched is not None and target.namespace not in touched and target.tenant not in touched:
                continue
            reason = await self._authorizer.refusal(self._principal, operation, target)
            if reason is not None and self._lost is None:
                events.revoked("WebSocket", self.address, self._principal.named, reason)
                self._lose(reason)

    # credentials that expire

    def _await_expiry(self) -> None:
        """Ends the WebSocket when the user's credentials expire, because clients cannot send new credentials
        over it.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._principal.expires is None:
            return
        left = self._principal.expires - self._clock.wall_ms() / 1000
        if left > _LONGEST_TIMER_SECONDS:
            self._timer = self._loop.call_later(_LONGEST_TIMER_SECONDS, self._await_expiry)
        else:
            self._timer = self._loop.call_later(max(left, 0.0), self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._disprove("The credentials of the client have expired")

    async def authenticate_again(self, methods: frozenset[str] | None) -> None:
        """Authenticates the user again after the configuration of authentication methods has changed.

        :param methods: the authentication methods that have changed; None: possibly all of them
        """
        if methods is not None and self._principal.method not in methods:
            return
        if self._proving is not None:
            self._proving.cancel()
        self._proving = self._tasks.start(self._renew(), "checking its credentials again")

    async def _renew(self) -> None:
        again = [replace(one, again=True) for one in self._claim.credentials]
        try:
            found = await self._authenticator.authenticate(replace(self._claim, credentials=again))
            self._principal = renewed(self._principal, found)
        except Exception as error:
            told = to_broker_error(error)
            if isinstance(told, InternalError):
                log.error(
                    "authentication of a WebSocket client failed with an internal error",
                    extra={"peer": self.address},
                    exc_info=error,
                )
            self._disprove(str(told))
            return
        finally:
            self._proving = None
        self._await_expiry()

    def _disprove(self, reason: str) -> None:
        if self._lost is None:
            events.unauthenticated(self.address, self._principal.named, reason)
            self._lose(reason)
