"""Builds the commands to clients except receipts and messages; limits requests that wait for an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from magnetar import __version__
from magnetar.broker.flow.connection import Assigned
from magnetar.errors import BrokerError, ServerErrorCode
from magnetar.invariants import violated
from magnetar.io.interfaces import Loop
from magnetar.io.locks import FairSemaphore, Mutex
from magnetar.protocol.frames import unsigned
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAckResponse,
    CommandAddPartitionToTxnResponse,
    CommandAddSubscriptionToTxnResponse,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandEndTxnOnPartitionResponse,
    CommandEndTxnOnSubscriptionResponse,
    CommandEndTxnResponse,
    CommandError,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchemaResponse,
    CommandLookupTopicResponse,
    CommandNewTxnResponse,
    CommandPartitionedTopicMetadataResponse,
    CommandTcClientConnectResponse,
    CommandTopicMigrated,
)

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection


OfTransaction = (
    CommandAddPartitionToTxnResponse
    | CommandAddSubscriptionToTxnResponse
    | CommandEndTxnOnPartitionResponse
    | CommandEndTxnOnSubscriptionResponse
    | CommandEndTxnResponse
    | CommandNewTxnResponse
    | CommandTcClientConnectResponse
)
Failing = (
    OfTransaction
    | CommandAckResponse
    | CommandError
    | CommandLookupTopicResponse
    | CommandPartitionedTopicMetadataResponse
)
"""Responses that have fields for an error code and an error text."""
SERVER_REQUEST_ID = 2**64 - 1
"""The request id of commands that answer no request: closing producers and consumers, fatal errors."""
MOST = 256
"""The number of requests in progress at which reading pauses; it resumes when half of them have ended."""
MOST_BYTES = 1024 * 1024
"""The bytes of requests in progress at which reading pauses. A single request may be larger."""
MOST_OPENING = 32
"""The maximum number of topics being loaded and subscriptions being created for one connection; further
requests wait in order. All requests that wait for the same commit of the metadata continue in one turn of the
loop, so this limit bounds the length of that turn.
"""


def success(request_id: int) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.SUCCESS)
    command.success.request_id = request_id
    return command


def auth_challenge(method: str) -> BaseCommand:
    """Returns a request for new credentials, with the data that Pulsar's clients recognize (PIP-30)."""
    command = BaseCommand(type=BaseCommand.AUTH_CHALLENGE)
    command.authChallenge.server_version = f"Magnetar {__version__}"
    command.authChallenge.challenge.auth_method_name = method
    command.authChallenge.challenge.auth_data = b"PulsarAuthRefresh"
    return command


def failure(request_id: int, error: BrokerError) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.ERROR)
    command.error.request_id = request_id
    put_error(command.error, error)
    return command


def put_error(response: Failing, error: BrokerError) -> None:
    """Writes an error and its text into the response to a request."""
    response.error = int(error.code)  # type: ignore[assignment]
    response.message = str(error)


def lookup_failure(request_id: int, error: BrokerError) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    command.lookupTopicResponse.response = CommandLookupTopicResponse.Failed
    _refuse_place(command.lookupTopicResponse, request_id, error)
    return command


def partitions_failure(request_id: int, error: BrokerError) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    command.partitionMetadataResponse.response = CommandPartitionedTopicMetadataResponse.Failed
    _refuse_place(command.partitionMetadataResponse, request_id, error)
    return command


def _refuse_place(
    response: CommandLookupTopicResponse | CommandPartitionedTopicMetadataResponse,
    request_id: int,
    error: BrokerError,
) -> None:
    response.request_id = request_id
    put_error(response, error)


def schema_failure(request_id: int, error: BrokerError) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE)
    _refuse_schema(command.getSchemaResponse, request_id, error)
    return command


def made_schema_failure(request_id: int, error: BrokerError) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    _refuse_schema(command.getOrCreateSchemaResponse, request_id, error)
    return command


def _refuse_schema(
    response: CommandGetSchemaResponse | CommandGetOrCreateSchemaResponse,
    request_id: int,
    error: BrokerError,
) -> None:
    response.request_id = request_id
    response.error_code = int(error.code)  # type: ignore[assignment]
    response.error_message = str(error)


def send_error(producer_id: int, sequence_id: int, code: ServerErrorCode, text: str) -> BaseCommand:
    """Returns the command that reports that an entry is not stored, with the reason."""
    command = BaseCommand(type=BaseCommand.SEND_ERROR)
    command.send_error.producer_id = unsigned(producer_id)
    command.send_error.sequence_id = unsigned(sequence_id)
    command.send_error.error = int(code)  # type: ignore[assignment]
    command.send_error.message = text
    return command


def close_producer(producer_id: int, assigned: Assigned | None = None) -> BaseCommand:
    """Returns the command that closes a producer; its client opens it again.

    :param assigned: the broker that serves the topic, used by clients from 3.2 on; None: the client looks the
        topic up
    """
    command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
    command.close_producer.producer_id = unsigned(producer_id)
    command.close_producer.request_id = SERVER_REQUEST_ID
    _assign(command.close_producer, assigned)
    return command


def _assign(closed: CommandCloseProducer | CommandCloseConsumer, assigned: Assigned | None) -> None:
    if assigned is not None and assigned.url:
        closed.assignedBrokerServiceUrl = assigned.url
    if assigned is not None and assigned.url_tls:
        closed.assignedBrokerServiceUrlTls = assigned.url_tls


def close_consumer(consumer_id: int, assigned: Assigned | None = None) -> BaseCommand:
    """Returns the command that closes a consumer; its client opens it again. See :func:`close_producer`."""
    command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
    command.close_consumer.consumer_id = unsigned(consumer_id)
    command.close_consumer.request_id = SERVER_REQUEST_ID
    _assign(command.close_consumer, assigned)
    return command


def end_of_topic(consumer_id: int) -> BaseCommand:
    """Returns the command that reports that a consumer has received everything of a terminated topic."""
    command = BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC)
    command.reachedEndOfTopic.consumer_id = unsigned(consumer_id)
    return command


def producer_migrated(producer_id: int, url: str, url_tls: str) -> BaseCommand:
    """Returns the command that reports that a producer's topic has moved to another cluster; CLOSE_PRODUCER
    follows."""
    return _migrated(CommandTopicMigrated.Producer, producer_id, url, url_tls)


def consumer_migrated(consumer_id: int, url: str, url_tls: str) -> BaseCommand:
    """Returns the command that reports that a consumer's topic has moved to another cluster; CLOSE_CONSUMER
    follows."""
    return _migrated(CommandTopicMigrated.Consumer, consumer_id, url, url_tls)


def _migrated(
    kind: CommandTopicMigrated.ResourceType, resource_id: int, url: str, url_tls: str
) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.TOPIC_MIGRATED)
    moved = command.topicMigrated
    moved.resource_id = unsigned(resource_id)
    moved.resource_type = kind
    if url:
        moved.brokerServiceUrl = url
    if url_tls:
        moved.brokerServiceUrlTls = url_tls
    return command


def active_consumer_change(consumer_id: int, active: bool) -> BaseCommand:
    """Returns the command that tells a consumer of a Failover subscription whether it is the active
    consumer.
    """
    command = BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE)
    command.active_consumer_change.consumer_id = unsigned(consumer_id)
    command.active_consumer_change.is_active = active
    return command


class Requests:
    """Requests in progress on a connection: limits on their number and bytes, and large answers.

    A client that sends requests faster than they are answered, or does not read the answers, must wait.
    """

    __slots__ = ("_connection", "_large", "_loop", "_opening", "bytes", "count", "paused")

    def __init__(self, connection: Connection, loop: Loop) -> None:
        self._connection = connection
        self._loop = loop
        self.count = 0
        self.bytes = 0
        self.paused = False
        """Whether reading is paused because of the requests in progress."""
        self._large: Mutex | None = None
        self._opening: FairSemaphore | None = None

    def began(self, size: int) -> None:
        """Counts a request that has arrived.

        :param size: the size of the request in bytes
        """
        self.count += 1
        self.bytes += size
        if not self.paused and (self.count >= MOST or self.bytes >= MOST_BYTES):
            self.paused = True
            self._connection.input.pause()

    def ended(self, size: int) -> None:
        """Subtracts a request that was answered.

        :param size: the same as for :meth:`began`
        """
        self.count -= 1
        self.bytes -= size
        if self.count < 0 or self.bytes < 0:
            what = "requests in progress on a connection, and their bytes"
            violated(self._connection.fail, what, "at least 0", (self.count, self.bytes))
        if self.paused and self.count <= MOST // 2 and self.bytes <= MOST_BYTES // 2:
            self.paused = False
            self._connection.input.resume()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Excludes a request from the number of requests in progress while it waits for other clients.

        The wait may have any length. The size of the request still counts.
        """
        self.ended(0)
        try:
            yield
        finally:
            self.began(0)

    def opening(self) -> FairSemaphore:
        """Returns the semaphore for loading topics and creating subscriptions: see :data:`MOST_OPENING`."""
        if self._opening is None:
            self._opening = FairSemaphore(self._loop, MOST_OPENING)
        return self._opening

    @asynccontextmanager
    async def large_answer(self) -> AsyncIterator[None]:
        """Guards an answer that may take megabytes: the next large answer begins when the previous one has
        been sent.

        The connection may be closed by the time the body of the ``with`` block runs.
        """
        if self._large is None:
            self._large = Mutex(self._loop)
        async with self._large:
            await self._connection.outgoing.taken()
            yield
