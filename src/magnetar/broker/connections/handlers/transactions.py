"""The commands of transactions: clients begin, extend and end transactions at the transaction coordinators,
which notify topics and subscriptions of the outcome."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from magnetar.broker import events
from magnetar.broker.connections import answers
from magnetar.broker.connections.connection import Connection
from magnetar.broker.subscriptions.persistent import end_acks
from magnetar.broker.topics.persistent import TRANSACTIONS_DISABLED, Topic
from magnetar.broker.transactions import TxnId, txn_text
from magnetar.broker.translation import to_broker_error
from magnetar.errors import (
    InternalError,
    InvalidRequest,
    NamespaceNotFound,
    NotAllowed,
    TopicNotFound,
    TransactionNotFound,
)
from magnetar.protocol.frames import signed
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    TxnAction,
)
from magnetar.security.authorization import BrokerOperation, Target

if TYPE_CHECKING:
    from magnetar.broker.coordination.coordinator import Coordinator
    from magnetar.broker.coordination.coordinators import Coordinators
    from magnetar.io.interfaces import Future

log = logging.getLogger(__name__)

_NOT_ON_SUBSCRIPTIONS = "Handle end txn on subscription failed: The transaction is disabled"
"""The error text of Apache Pulsar 4.0."""


async def connect(connection: Connection, request: CommandTcClientConnectRequest) -> None:
    """Loads a coordinator if this broker owns its bundle, and answers."""
    coordinators = _enabled(connection)
    answer = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_RESPONSE)
    response = answer.tcClientConnectResponse
    response.request_id = request.request_id
    with _failing(connection, "tcClientConnectRequest", response):
        await coordinators.connect(request.tc_id)
    connection.send(answer)


async def begin(connection: Connection, request: CommandNewTxn) -> None:
    coordinators = _enabled(connection)
    coordinator = coordinators.loaded.get(request.tc_id)
    work = _begin(connection, coordinators, request)
    if coordinator is not None and coordinator.full:
        # It may wait for the ends of others, which come over the same connection perhaps: a connection with
        # many requests in progress is not read any more. The coordinator limits how many wait.
        connection.start(work, "a transaction that waits for room")
    else:
        await work


async def _begin(connection: Connection, coordinators: Coordinators, request: CommandNewTxn) -> None:
    answer = BaseCommand(type=BaseCommand.NEW_TXN_RESPONSE)
    response = answer.newTxnResponse
    response.request_id = request.request_id
    response.txnid_most_bits = request.tc_id
    with _failing(connection, "newTxn", response):
        _most, least = await coordinators.get(request.tc_id).begin(
            # Clients send milliseconds, whatever the name of the field says.
            signed(request.txn_ttl_seconds),
            _role(connection),
            lambda: not connection.session.ended,
        )
        response.txnid_least_bits = least
    connection.send(answer)


async def add_partitions(connection: Connection, request: CommandAddPartitionToTxn) -> None:
    coordinators = _enabled(connection)
    answer = BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE)
    response = answer.addPartitionToTxnResponse
    response.request_id = request.request_id
    response.txnid_most_bits, response.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits
    with _failing(connection, "addPartitionToTxn", response):
        coordinator = await _of_owner(connection, coordinators, request)
        replication = connection.broker.replication
        if replication is not None:
            await replication.migration.check_not_migrated(request.partitions)
        await coordinator.add_partitions(signed(request.txnid_least_bits), request.partitions)
    connection.send(answer)


async def add_subscriptions(connection: Connection, request: CommandAddSubscriptionToTxn) -> None:
    coordinators = _enabled(connection)
    answer = BaseCommand(type=BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE)
    response = answer.addSubscriptionToTxnResponse
    response.request_id = request.request_id
    response.txnid_most_bits, response.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits
    with _failing(connection, "addSubscriptionToTxn", response):
        coordinator = await _of_owner(connection, coordinators, request)
        pairs = [(each.topic, each.subscription) for each in request.subscription]
        await coordinator.add_subscriptions(signed(request.txnid_least_bits), pairs)
    connection.send(answer)


async def end(connection: Connection, request: CommandEndTxn) -> None:
    """Starts the end of a transaction; the answer follows once all topics and subscriptions were notified."""
    coordinators = _enabled(connection)
    answer = BaseCommand(type=BaseCommand.END_TXN_RESPONSE)
    response = answer.endTxnResponse
    response.request_id = request.request_id
    response.txnid_most_bits, response.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits

    def ended(done: Future[None]) -> None:
        with _failing(connection, "endTxn", response):
            done.result()
        connection.send(answer)

    with _failing(connection, "endTxn", response):
        coordinator = await _of_owner(connection, coordinators, request)
        commit = _commits(request)
        ending = coordinator.end(signed(request.txnid_least_bits), commit=commit)
        ending.add_done_callback(ended)
        return
    connection.send(answer)


# The outcome, at topics and subscriptions


async def end_on_partition(connection: Connection, request: CommandEndTxnOnPartition) -> None:
    answer = BaseCommand(type=BaseCommand.END_TXN_ON_PARTITION_RESPONSE)
    response = answer.endTxnOnPartitionResponse
    response.request_id = request.request_id
    response.txnid_most_bits, response.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits
    with _failing(connection, "endTxnOnPartition", response):
        topic = await _participant(connection, request.topic, TRANSACTIONS_DISABLED)
        if topic is not None:
            commit = _commits(request)
            await topic.end_transaction(_txn(request), commit=commit, low_water=_low_water(request))
    connection.send(answer)


async def end_on_subscription(connection: Connection, request: CommandEndTxnOnSubscription) -> None:
    answer = BaseCommand(type=BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE)
    response = answer.endTxnOnSubscriptionResponse
    response.request_id = request.request_id
    response.txnid_most_bits, response.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits
    with _failing(connection, "endTxnOnSubscription", response):
        topic = await _participant(connection, request.subscription.topic, _NOT_ON_SUBSCRIPTIONS)
        found = None if topic is None else topic.subscriptions.get(request.subscription.subscription)
        if found is not None:
            commit = _commits(request)
            await end_acks(found, _txn(request), commit=commit, low_water=_low_water(request))
    connection.send(answer)


def _commits(request: CommandEndTxn | CommandEndTxnOnPartition | CommandEndTxnOnSubscription) -> bool:
    """Returns whether the request commits the transaction.

    :raises InvalidRequest: the outcome is missing, or neither COMMIT nor ABORT
    """
    if not request.HasField("txn_action"):
        raise InvalidRequest("txn_action is neither COMMIT nor ABORT")
    return request.txn_action == TxnAction.COMMIT


def _txn(request: CommandEndTxnOnPartition | CommandEndTxnOnSubscription) -> TxnId:
    return signed(request.txnid_most_bits), signed(request.txnid_least_bits)


def _low_water(request: CommandEndTxnOnPartition | CommandEndTxnOnSubscription) -> int:
    if not request.HasField("txnid_least_bits_of_low_watermark"):
        return -1
    return signed(request.txnid_least_bits_of_low_watermark)


async def _participant(connection: Connection, name: str, disabled: str) -> Topic | None:
    """Returns the topic; None if it was deleted or has no transactions, so that there is nothing to end.

    :param disabled: the error text if transactions are disabled
    :raises NotAllowed: transactions are disabled
    """
    broker = connection.broker
    if broker.settings.topic.transactions is None:
        raise NotAllowed(disabled)
    try:
        topic = await broker.topics.load(broker.parse_topic(name), create=False)
    except (TopicNotFound, NamespaceNotFound):
        return None
    return topic if isinstance(topic, Topic) else None


def _enabled(connection: Connection) -> Coordinators:
    """Returns the coordinators of the broker.

    :raises NotAllowed: transactions are disabled; answered by a plain ERROR
    """
    found = connection.broker.coordinators
    if found is None:
        raise NotAllowed("Transactions are not enabled.")
    return found


def _role(connection: Connection) -> str | None:
    """Returns the role that owns a transaction of this client; None if clients are not authenticated."""
    principal = connection.session.principal
    if not principal.method:
        return None
    return principal.role if principal.original_role is None else principal.original_role


async def _of_owner(
    connection: Connection,
    coordinators: Coordinators,
    request: CommandAddPartitionToTxn | CommandAddSubscriptionToTxn | CommandEndTxn,
) -> Coordinator:
    """Returns the coordinator of a transaction, if the client may extend and end the transaction.

    :raises TransactionCoordinatorNotFound: the coordinator is not loaded in this broker
    :raises TransactionNotFound: the transaction does not exist, or another role began it
    """
    txn: TxnId = (request.txnid_most_bits, signed(request.txnid_least_bits))
    coordinator = coordinators.get(txn[0])
    owner = coordinator.owner_of(txn[1])
    role = _role(connection)
    if owner is None or owner == role:
        return coordinator
    authorizer, principal = connection.broker.authorizer, connection.session.principal
    superuser = (
        authorizer.asks
        and await authorizer.refusal(principal, BrokerOperation.END_TRANSACTIONS, Target()) is None
    )
    if not superuser:
        raise TransactionNotFound(
            f"Client ({role}) is neither the owner of the transaction {txn_text(txn)} nor a super user"
        )
    return coordinator


@contextmanager
def _failing(connection: Connection, name: str, response: answers.OfTransaction) -> Iterator[None]:
    """Context manager: writes an error of its block into the response; clients expect no plain ERROR."""
    try:
        yield
    except Exception as error:
        told = to_broker_error(error)
        if isinstance(told, InternalError):
            log.exception("request failed", extra={"peer": connection.address, "request": name})
        else:
            events.refused(name, connection.address, str(told))
        answers.put_error(response, told)
