"""Notifies topics and subscriptions of the end of a transaction, at the brokers that serve them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from magnetar.broker.coordination.transaction import Participant
from magnetar.broker.ownership.contract import Asked
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.subscriptions.persistent import end_acks
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.transactions import TransactionSettings, TxnId
from magnetar.broker.transactions.figures import EndFigures
from magnetar.errors import (
    BrokerError,
    NotAllowed,
    OwnerUnknown,
    ServerErrorCode,
    ServiceNotReady,
    TopicNotFound,
)
from magnetar.io.locks import FairSemaphore
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    TxnAction,
)

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.client.connection import Connection

log = logging.getLogger(__name__)

_GONE = (int(ServerErrorCode.TOPIC_NOT_FOUND), int(ServerErrorCode.SUBSCRIPTION_NOT_FOUND))
"""Errors that mean that the participant does not exist, so that there is nothing to end."""


def end_command(
    participant: Participant, transaction: TxnId, request_id: int, *, commit: bool, low_water: int
) -> BaseCommand:
    """Returns the command that tells a participant's broker that a transaction has ended."""
    command = BaseCommand()
    if participant.subscription is None:
        command.type = BaseCommand.END_TXN_ON_PARTITION
        request: CommandEndTxnOnPartition | CommandEndTxnOnSubscription = command.endTxnOnPartition
        command.endTxnOnPartition.topic = participant.topic
    else:
        command.type = BaseCommand.END_TXN_ON_SUBSCRIPTION
        request = command.endTxnOnSubscription
        command.endTxnOnSubscription.subscription.topic = participant.topic
        command.endTxnOnSubscription.subscription.subscription = participant.subscription
    request.request_id = request_id
    request.txn_action = TxnAction.COMMIT if commit else TxnAction.ABORT
    request.txnid_most_bits, request.txnid_least_bits = (each % 2**64 for each in transaction)
    request.txnid_least_bits_of_low_watermark = low_water % 2**64
    return command


class Participants:
    """The means to notify the topics and subscriptions in the transactions of this broker's coordinators."""

    def __init__(
        self, topics: ServedTopics, settings: TransactionSettings, client: Callable[[], Client] | None
    ) -> None:
        """:param client: makes a client with the broker's credentials; None: there are no other brokers"""
        self._topics = topics
        self._settings = settings
        self._make_client = client
        self._client: Client | None = None
        self._turns = FairSemaphore(topics.io.loop, settings.max_requests)
        self.figures = EndFigures()

    async def tell(self, participant: Participant, transaction: TxnId, commit: bool, low_water: int) -> None:
        """Notifies a participant of the end of a transaction, unless the participant was deleted or cannot be
        part of a transaction; see :data:`magnetar.broker.coordination.coordinator.Tell`.

        :raises BrokerError: the participant must be notified again
        """
        try:
            name = TopicName.parse(participant.topic)
        except InvalidName:
            return
        if not name.persistent or not name.has_transactions:
            return
        clock = self._topics.io.clock
        began = clock.monotonic()
        self.figures.pending += 1
        try:
            async with self._turns:
                await self._tell(name, participant, transaction, commit, low_water)
        except BrokerError:
            self.figures.of(participant.topic, commit=commit).failed += 1
            raise
        finally:
            self.figures.pending -= 1
        self.figures.of(participant.topic, commit=commit).took.add((clock.monotonic() - began) * 1000)

    async def _tell(
        self, name: TopicName, participant: Participant, transaction: TxnId, commit: bool, low_water: int
    ) -> None:
        try:
            if await self._is_here(name):
                await self._tell_here(name, participant.subscription, transaction, commit, low_water)
            else:
                await self._tell_there(participant, transaction, commit, low_water)
        except TopicNotFound:
            return

    async def _is_here(self, name: TopicName) -> bool:
        """Whether this broker serves the topic.

        :raises ServiceNotReady: the owner is not known, and there are no other brokers to ask
        """
        bundle = await self._topics.bundles.of_topic(name)
        try:
            return (await self._topics.ownership.owner_of(bundle, Asked.LOOK)).here
        except OwnerUnknown:
            raise
        except ServiceNotReady:
            # No broker has the bundle: a lookup finds one for it.
            if self._make_client is None:
                raise
            return False

    async def _tell_here(
        self, name: TopicName, subscription: str | None, transaction: TxnId, commit: bool, low_water: int
    ) -> None:
        try:
            topic = await self._topics.load(name, create=False, awaited=True)
        except NotAllowed:
            if name.partition_index < 0 and await self._topics.namespaces.partitions(name):
                # A partitioned topic has no messages: its partitions have.
                return
            raise
        if not isinstance(topic, Topic):
            return
        if subscription is None:
            await topic.end_transaction(transaction, commit=commit, low_water=low_water)
        elif (found := topic.subscriptions.get(subscription)) is not None:
            await end_acks(found, transaction, commit=commit, low_water=low_water)

    async def _tell_there(
        self, participant: Participant, transaction: TxnId, commit: bool, low_water: int
    ) -> None:
        async def ask(connection: Connection) -> BaseCommand:
            request_id = connection.wire.new_request_id()
            command = end_command(participant, transaction, request_id, commit=commit, low_water=low_water)
            return await connection.ask(request_id, command, self._settings.request_seconds)

        answered = await self.at_owner(participant.topic, ask)
        answer = (
            answered.endTxnOnPartitionResponse
            if participant.subscription is None
            else answered.endTxnOnSubscriptionResponse
        )
        if answer.HasField("error") and int(answer.error) not in _GONE:
            raise ServiceNotReady(
                f"The broker of {participant} refuses to end the transaction: {answer.message}"
            )

    async def at_owner(self, topic: str, ask: Callable[[Connection], Awaitable[BaseCommand]]) -> BaseCommand:
        """Sends a request to the broker that serves a topic, found by a lookup; returns the answer.

        :raises ServiceNotReady: the broker cannot be found, or does not answer
        :raises TopicNotFound: the topic or its namespace does not exist
        """
        # Imported here: a standalone broker needs no client.
        from magnetar.client.exceptions import PulsarException
        from magnetar.client.exceptions import TopicNotFound as NotThere

        if self._client is None:
            if self._make_client is None:
                raise ServiceNotReady(f"{topic} is served by no broker at present")
            self._client = self._make_client()
        services = self._client.services
        try:
            owner = await services.lookup.owner(topic)
            return await ask(await services.pool.next(owner.broker, owner.through))
        except NotThere as error:
            raise TopicNotFound(str(error)) from error
        except PulsarException as error:
            raise ServiceNotReady(f"The broker of {topic} did not answer: {error}") from error

    async def close(self) -> None:
        """Closes the client; requests in progress fail."""
        if self._client is None:
            return
        from magnetar.client.exceptions import PulsarException

        try:
            await self._client.close()
        except PulsarException as error:
            log.warning("cannot close the client of coordinators", extra={"error": str(error)})
