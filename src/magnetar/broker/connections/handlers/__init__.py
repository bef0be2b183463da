"""Handlers of all commands except FLOW, plain SENDs and plain ACKs: one function per command.

The table of commands is at the end. In docstrings, ``REQUEST → ANSWER`` is a command and its answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Never, TypeVar

from google.protobuf.message import Message

from magnetar.broker import events
from magnetar.broker.connections import answers, permissions
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import consumers, producers, queries, session
from magnetar.broker.connections.permissions import Rule
from magnetar.broker.translation import to_broker_error
from magnetar.errors import BrokerError, InternalError
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.errors import FrameError
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

log = logging.getLogger(__name__)

Handler = Callable[[Connection, BaseCommand], None]
M = TypeVar("M", bound=Message)
R = TypeVar("R")
Work = Coroutine[object, None, None]
Request = Callable[[Connection, M], Work]
Refusal = Callable[[int, BrokerError], BaseCommand]
"""Makes the answer from the request's id and the error."""


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table of commands."""

    handle: Handler
    rule: Rule[Never]
    """The permissions that the command needs; :func:`_request` applies it."""


async def _answer(connection: Connection, name: str, work: Work, request_id: int, refusal: Refusal) -> None:
    """Runs a request to its end. An error is sent as the answer, and never ends the connection."""
    try:
        await work
    except Exception as error:
        told = to_broker_error(error)
        if isinstance(told, InternalError):
            log.exception("request failed", extra={"peer": connection.address, "request": request_id})
        else:
            events.refused(name, connection.address, str(told))
        connection.send(refusal(request_id, told))


def _begin(connection: Connection, message: Message, work: Work) -> None:
    """Starts the handler of a request, which counts as in progress until the handler ends."""
    size = message.ByteSize()
    connection.requests.began(size)
    task = connection.start(work, "a request")
    task.add_done_callback(lambda _done: connection.requests.ended(size))


async def _allowed(connection: Connection, rule: Rule[R], message: R, handle: Callable[[], Work]) -> None:
    await rule.check(connection, message)
    await handle()


def _request(
    field: str,
    handler: Request[M],
    rule: Rule[R],
    refusal: Refusal = answers.failure,
    *,
    asks: bool = True,
) -> Command:
    """Returns the row of a request, a command that is always answered.

    :param refusal: makes the answer for an error
    :param asks: whether the rule is checked before the handler; False: the handler checks it
    """

    def handle_request(connection: Connection, command: BaseCommand) -> None:
        message = getattr(command, field)
        if asks:
            done = _allowed(connection, rule, message, lambda: handler(connection, message))
        else:
            done = handler(connection, message)
        work = _answer(connection, field, done, message.request_id, refusal)
        _begin(connection, message, work)

    return Command(handle_request, rule)


def _in_transactions(name: str) -> Request[Message]:
    """Returns a handler of the module ``transactions``. The module is imported when the first command for
    transactions arrives, because most brokers never get such a command.
    """

    def handle(connection: Connection, message: Message) -> Work:
        from magnetar.broker.connections.handlers import transactions

        handler: Request[Message] = getattr(transactions, name)
        return handler(connection, message)

    return handle


TABLE: dict[int, Command] = {
    BaseCommand.CONNECT: Command(session.connect, permissions.SESSION),
    BaseCommand.PING: Command(session.ping, permissions.SESSION),
    BaseCommand.PONG: Command(session.pong, permissions.SESSION),
    BaseCommand.AUTH_RESPONSE: Command(session.auth_response, permissions.SESSION),
    BaseCommand.PARTITIONED_METADATA: _request(
        "partitionMetadata", queries.partitioned_metadata, permissions.LOOKUP, answers.partitions_failure
    ),
    BaseCommand.LOOKUP: _request("lookupTopic", queries.lookup, permissions.LOOKUP, answers.lookup_failure),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: _request(
        "getTopicsOfNamespace", queries.topics_of_namespace, permissions.TOPICS
    ),
    BaseCommand.PRODUCER: _request("producer", producers.open_producer, permissions.PRODUCER, asks=False),
    BaseCommand.CLOSE_PRODUCER: _request("close_producer", producers.close_producer, permissions.HELD),
    BaseCommand.SEND: Command(producers.send_slowly, permissions.HELD),
    BaseCommand.SUBSCRIBE: _request("subscribe", consumers.subscribe, permissions.SUBSCRIBE, asks=False),
    BaseCommand.FLOW: Command(consumers.flow, permissions.HELD),
    BaseCommand.ACK: Command(consumers.acknowledge, permissions.HELD),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: Command(consumers.redeliver, permissions.HELD),
    BaseCommand.UNSUBSCRIBE: _request("unsubscribe", consumers.unsubscribe, permissions.UNSUBSCRIBE),
    BaseCommand.CLOSE_CONSUMER: _request("close_consumer", consumers.close_consumer, permissions.HELD),
    BaseCommand.SEEK: _request("seek", consumers.seek, permissions.SEEK),
    BaseCommand.GET_LAST_MESSAGE_ID: _request(
        "getLastMessageId", consumers.last_message_id, permissions.LAST_MESSAGE
    ),
    BaseCommand.CONSUMER_STATS: Command(consumers.consumer_stats, permissions.HELD),
    BaseCommand.GET_SCHEMA: _request(
        "getSchema", queries.get_schema, permissions.GET_SCHEMA, answers.schema_failure
    ),
    BaseCommand.GET_OR_CREATE_SCHEMA: _request(
        "getOrCreateSchema", queries.get_or_create_schema, permissions.ADD_SCHEMA, answers.made_schema_failure
    ),
    BaseCommand.WATCH_TOPIC_LIST: _request("watchTopicList", queries.watch_topic_list, permissions.TOPICS),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: _request(
        "watchTopicListClose", queries.close_topic_list, permissions.HELD
    ),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: _request(
        "tcClientConnectRequest", _in_transactions("connect"), permissions.TRANSACTIONS
    ),
    BaseCommand.NEW_TXN: _request("newTxn", _in_transactions("begin"), permissions.TRANSACTIONS),
    BaseCommand.ADD_PARTITION_TO_TXN: _request(
        "addPartitionToTxn", _in_transactions("add_partitions"), permissions.TRANSACTION
    ),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _request(
        "addSubscriptionToTxn", _in_transactions("add_subscriptions"), permissions.TRANSACTION
    ),
    BaseCommand.END_TXN: _request("endTxn", _in_transactions("end"), permissions.TRANSACTION),
    BaseCommand.END_TXN_ON_PARTITION: _request(
        "endTxnOnPartition",
        _in_transactions("end_on_partition"),
        permissions.OUTCOME,
    ),
    BaseCommand.END_TXN_ON_SUBSCRIPTION: _request(
        "endTxnOnSubscription",
        _in_transactions("end_on_subscription"),
        permissions.OUTCOME,
    ),
}


def handle(connection: Connection, command: BaseCommand) -> None:
    """Handles one command of the client.

    :raises FrameError: clients must not send the command, or it is unknown
    """
    row = TABLE.get(command.type)
    if row is None:
        raise FrameError(f"{BaseCommand.Type.Name(command.type)} must not be sent to a broker")
    row.handle(connection, command)
