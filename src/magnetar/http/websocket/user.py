"""The user of a WebSocket, and what that user may do with topics.

The service is a client of brokers under its own role, which may do everything, so brokers cannot tell one
user from another. Each topic that a request names, or that the client derives from it, is therefore checked
here.
"""

from __future__ import annotations

from magnetar.client.exceptions import AuthorizationError
from magnetar.errors import BrokerError
from magnetar.naming.errors import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authorization import Authorizer, check
from magnetar.security.operations import TopicOperation
from magnetar.security.principal import Principal
from magnetar.security.target import Target


class User:
    """The end user of one WebSocket."""

    def __init__(self, authorizer: Authorizer, principal: Principal) -> None:
        self._authorizer = authorizer
        self._principal = principal

    async def check_produce(self, topic: TopicName) -> None:
        """:raises AuthorizationFailure: the user may not publish to the topic"""
        await self._check(TopicOperation.PRODUCE, Target.of_topic(topic))

    async def check_consume(self, topic: TopicName, subscription: str = "") -> None:
        """:raises AuthorizationFailure: the user may not consume from the topic with the subscription"""
        await self._check(TopicOperation.CONSUME, Target.of_topic(topic, subscription))

    async def check_dead_letters(self, topic: str) -> None:
        """Checks a topic when its producer for dead letters is about to be opened.

        :raises AuthorizationError: the user may not publish to the topic, or the check is impossible now
        """
        try:
            await self.check_produce(TopicName.parse(topic))
        except (BrokerError, InvalidName) as error:
            raise AuthorizationError(str(error)) from error

    async def _check(self, operation: TopicOperation, target: Target) -> None:
        await check(self._authorizer, self._principal, operation, target)
