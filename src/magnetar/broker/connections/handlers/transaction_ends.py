"""END_TXN_ON_PARTITION and END_TXN_ON_SUBSCRIPTION: coordinators tell the outcome of transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.topics.persistent import TRANSACTIONS_DISABLED, Topic
from magnetar.broker.transactions import TxnId
from magnetar.errors import BrokerError, NamespaceNotFound, NotAllowed, TopicNotFound
from magnetar.protocol.frames import signed
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    TxnAction,
)

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection


_NOT_ON_SUBSCRIPTIONS = "Handle end txn on subscription failed: The transaction is disabled"
"""The text is that of Apache Pulsar 4.0."""


async def end_on_partition(connection: Connection, request: CommandEndTxnOnPartition) -> None:
    topic = await _topic(connection, request.topic, TRANSACTIONS_DISABLED)
    if topic is not None:
        await topic.end_transaction(
            _txn(request),
            commit=request.txn_action == TxnAction.COMMIT,
            low_water=_low_water(request),
        )
    answer = BaseCommand(type=BaseCommand.END_TXN_ON_PARTITION_RESPONSE)
    response = answer.endTxnOnPartitionResponse
    response.request_id = request.request_id
    response.txnid_least_bits = request.txnid_least_bits
    response.txnid_most_bits = request.txnid_most_bits
    connection.send(answer)


async def end_on_subscription(connection: Connection, request: CommandEndTxnOnSubscription) -> None:
    topic = await _topic(connection, request.subscription.topic, _NOT_ON_SUBSCRIPTIONS)
    subscription = None if topic is None else topic.subscriptions.get(request.subscription.subscription)
    if subscription is not None:
        await subscription.end_transaction(
            _txn(request),
            commit=request.txn_action == TxnAction.COMMIT,
            low_water=_low_water(request),
        )
    answer = BaseCommand(type=BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE)
    response = answer.endTxnOnSubscriptionResponse
    response.request_id = request.request_id
    response.txnid_least_bits = request.txnid_least_bits
    response.txnid_most_bits = request.txnid_most_bits
    connection.send(answer)


def partition_failure(request_id: int, error: BrokerError) -> BaseCommand:
    answer = BaseCommand(type=BaseCommand.END_TXN_ON_PARTITION_RESPONSE)
    response = answer.endTxnOnPartitionResponse
    response.request_id = request_id
    response.error = int(error.code)  # type: ignore[assignment]
    response.message = str(error)
    return answer


def subscription_failure(request_id: int, error: BrokerError) -> BaseCommand:
    answer = BaseCommand(type=BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE)
    response = answer.endTxnOnSubscriptionResponse
    response.request_id = request_id
    response.error = int(error.code)  # type: ignore[assignment]
    response.message = str(error)
    return answer


def _txn(request: CommandEndTxnOnPartition | CommandEndTxnOnSubscription) -> TxnId:
    return signed(request.txnid_most_bits), signed(request.txnid_least_bits)


def _low_water(request: CommandEndTxnOnPartition | CommandEndTxnOnSubscription) -> int:
    if not request.HasField("txnid_least_bits_of_low_watermark"):
        return -1
    return signed(request.txnid_least_bits_of_low_watermark)


async def _topic(connection: Connection, name: str, disabled: str) -> Topic | None:
    """Returns the topic; None: it was deleted, or keeps no transactions, and there is nothing to end.

    :param disabled: what clients are told if transactions are disabled
    :raises NotAllowed: transactions are disabled
    """
    broker = connection.broker
    if broker.settings.topic.transactions is None:
        raise NotAllowed(disabled)
    parsed = broker.parse_topic(name)
    try:
        topic = await broker.topics.load(parsed, create=False)
    except (TopicNotFound, NamespaceNotFound):
        return None
    return topic if isinstance(topic, Topic) else None
