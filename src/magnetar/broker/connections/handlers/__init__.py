"""What each command that is not per message does. One function a command; the table is at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.broker import events
from magnetar.broker.connections import answers
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import consumers, lookups, producers, schemas, session
from magnetar.broker.translation import to_broker_error
from magnetar.errors import BrokerError, InternalError, NotAllowed
from magnetar.protocol.errors import FrameError
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

log = logging.getLogger(__name__)

Handler = Callable[[Connection, BaseCommand], None]
Request = Callable[[Connection, Any], Coroutine[Any, Any, None]]
Refusal = Callable[[int, BrokerError], BaseCommand]
"""From the request's id and what went wrong to the answer."""


async def _answer(
    connection: Connection, name: str, work: Coroutine[Any, Any, None], request_id: int, refusal: Refusal
) -> None:
    """Runs a request to its end; whatever goes wrong is answered, none of it ends the connection."""
    try:
        await work
    except Exception as error:
        told = to_broker_error(error)
        if isinstance(told, InternalError):
            log.exception("request failed", extra={"peer": connection.address, "request": request_id})
        else:
            events.refused(name, connection.address, str(told))
        connection.send(refusal(request_id, told))


def _begin(connection: Connection, message: Any, work: Coroutine[Any, Any, None]) -> None:
    """Runs what a request asks for; it is in progress until that has ended."""
    size = message.ByteSize()
    connection.requests.began(size)
    task = connection.broker.io.loop.create_task(work)
    task.add_done_callback(lambda _done: connection.requests.ended(size))


def _request(field: str, handler: Request, refusal: Refusal = answers.failure) -> Handler:
    """:param refusal: the form of the answer when it cannot be done"""

    def handle_request(connection: Connection, command: BaseCommand) -> None:
        message = getattr(command, field)
        work = _answer(connection, field, handler(connection, message), message.request_id, refusal)
        _begin(connection, message, work)

    return handle_request


def _refuse(field: str, what: str) -> Handler:
    def refuse(connection: Connection, command: BaseCommand) -> None:
        request_id = getattr(command, field).request_id
        refusal = NotAllowed(f"{what} are not supported by this broker yet")
        events.refused(field, connection.address, str(refusal))
        connection.send_error(request_id, refusal)

    return refuse


_TRANSACTIONS = "Transactions"

TABLE: dict[int, Handler] = {
    BaseCommand.CONNECT: session.connect,
    BaseCommand.PING: session.ping,
    BaseCommand.PONG: session.pong,
    BaseCommand.AUTH_RESPONSE: session.auth_response,
    BaseCommand.PARTITIONED_METADATA: _request(
        "partitionMetadata", lookups.partitioned_metadata, answers.partitions_failure
    ),
    BaseCommand.LOOKUP: _request("lookupTopic", lookups.lookup, answers.lookup_failure),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: _request("getTopicsOfNamespace", lookups.topics_of_namespace),
    BaseCommand.PRODUCER: _request("producer", producers.open_producer),
    BaseCommand.CLOSE_PRODUCER: _request("close_producer", producers.close_producer),
    BaseCommand.SEND: producers.send_slowly,
    BaseCommand.SUBSCRIBE: _request("subscribe", consumers.subscribe),
    BaseCommand.FLOW: consumers.flow,
    BaseCommand.ACK: consumers.acknowledge,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: consumers.redeliver,
    BaseCommand.UNSUBSCRIBE: _request("unsubscribe", consumers.unsubscribe),
    BaseCommand.CLOSE_CONSUMER: _request("close_consumer", consumers.close_consumer),
    BaseCommand.SEEK: _request("seek", consumers.seek),
    BaseCommand.GET_LAST_MESSAGE_ID: _request("getLastMessageId", consumers.last_message_id),
    BaseCommand.CONSUMER_STATS: consumers.consumer_stats,
    BaseCommand.GET_SCHEMA: _request("getSchema", schemas.get_schema, answers.schema_failure),
    BaseCommand.GET_OR_CREATE_SCHEMA: _request(
        "getOrCreateSchema", schemas.get_or_create_schema, answers.made_schema_failure
    ),
    BaseCommand.WATCH_TOPIC_LIST: _request("watchTopicList", lookups.watch_topic_list),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: _request("watchTopicListClose", lookups.close_topic_list),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: _refuse("tcClientConnectRequest", _TRANSACTIONS),
    BaseCommand.NEW_TXN: _refuse("newTxn", _TRANSACTIONS),
    BaseCommand.ADD_PARTITION_TO_TXN: _refuse("addPartitionToTxn", _TRANSACTIONS),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _refuse("addSubscriptionToTxn", _TRANSACTIONS),
    BaseCommand.END_TXN: _refuse("endTxn", _TRANSACTIONS),
    BaseCommand.END_TXN_ON_PARTITION: _refuse("endTxnOnPartition", _TRANSACTIONS),
    BaseCommand.END_TXN_ON_SUBSCRIPTION: _refuse("endTxnOnSubscription", _TRANSACTIONS),
}


def handle(connection: Connection, command: BaseCommand) -> None:
    """:raises FrameError: a command that only brokers send, or none at all"""
    handler = TABLE.get(command.type)
    if handler is None:
        raise FrameError(f"{BaseCommand.Type.Name(command.type)} is not for brokers")
    handler(connection, command)
