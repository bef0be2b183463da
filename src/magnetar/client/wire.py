"""The protocol of one connection, without sockets, time or futures.

:class:`Wire` parses received bytes, calls a method for each command in them, and passes the bytes to send to
the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.client.exceptions import PulsarException, server_exception
from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import (
    DEFAULT_MAX_MESSAGE_SIZE,
    decode_command,
    encode_command,
    max_frame_size,
    signed,
)
from magnetar.protocol.hot_client_decode import MessageRun, ReceiptRun, read_messages, read_receipts
from magnetar.protocol.hot_codec import command_bounds, frame_end, next_frame
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandMessage,
    CommandTopicMigrated,
    FeatureFlags,
)

if TYPE_CHECKING:
    from magnetar.client.connection import Connection


CLIENT_VERSION = "Magnetar-Python"
PROTOCOL_VERSION = 21
_CHECKSUM_MISMATCH = 1
_NO_REQUEST = 2**64 - 1

Answer = Callable[[BaseCommand | None, PulsarException | None], object]
"""Called once, with the command that answers a request, or with the error; the other argument is None."""


class Assigned(NamedTuple):
    """The new broker of a topic, as named in CLOSE_PRODUCER, CLOSE_CONSUMER or TOPIC_MIGRATED; an empty field
    means that there is no address of this kind.
    """

    url: str
    url_tls: str


def _assigned(closed: CommandCloseProducer | CommandCloseConsumer) -> Assigned | None:
    told = Assigned(closed.assignedBrokerServiceUrl, closed.assignedBrokerServiceUrlTls)
    return told if any(told) else None


class ProducerEnd(Protocol):
    """The interface through which a connection passes events to a producer.

    The :class:`ReceiptRun` that a method gets is reused, so the method must copy the data that it keeps.
    """

    def receipts(self, run: ReceiptRun) -> None: ...
    def send_failed(self, sequence_id: int, error: PulsarException) -> None: ...
    def migrated(self, there: Assigned) -> None:
        """Called when the topic of an attached or attaching producer has migrated to another cluster;
        CLOSE_PRODUCER follows.
        """
        ...

    def closed_by_broker(self, assigned: Assigned | None) -> None: ...
    def connection_lost(self, error: PulsarException) -> None: ...


class ConsumerEnd(Protocol):
    """The interface through which a connection passes events to a consumer."""

    def messages(self, buffer: bytes, run: MessageRun) -> None:
        """Called when the entries ``buffer[run.starts[i]:run.ends[i]]`` have arrived; their checksums are
        correct.
        """
        ...

    def message(self, command: CommandMessage, entry: bytes, intact: bool) -> None:
        """Called when an entry has arrived whose MESSAGE has fields that :meth:`messages` does not pass, or
        whose checksum is wrong (``intact`` is then False).
        """
        ...

    def active_changed(self, active: bool) -> None: ...
    def end_of_topic(self) -> None: ...
    def migrated(self, there: Assigned) -> None:
        """Called when a consumer's topic has migrated to another cluster."""
        ...

    def closed_by_broker(self, assigned: Assigned | None) -> None: ...
    def connection_lost(self, error: PulsarException) -> None: ...


class Runs:
    """Arrays into which received frames are parsed; the connections of one event loop share them."""

    __slots__ = ("messages", "receipts")

    def __init__(self) -> None:
        self.receipts = ReceiptRun()
        self.messages = MessageRun()


class Wire:
    """The protocol state of one connection."""

    __slots__ = (
        "_needed",
        "_owner",
        "_partial",
        "_partial_size",
        "_runs",
        "confirms_positions",
        "consumers",
        "max_frame",
        "max_message_size",
        "next_id",
        "offers_topic_watches",
        "pending",
        "producers",
        "ready",
        "watchers",
    )

    def __init__(self, owner: Connection, runs: Runs) -> None:
        self._owner = owner
        self._runs = runs
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._needed = 0
        self.ready = False
        self.confirms_positions = False
        """Whether the broker's receipts for replicated messages contain the messages' positions in the source
        cluster.
        """
        self.offers_topic_watches = False
        """Whether the broker supports WATCH_TOPIC_LIST."""
        self.max_message_size = DEFAULT_MAX_MESSAGE_SIZE
        self.max_frame = max_frame_size(DEFAULT_MAX_MESSAGE_SIZE)
        self.next_id = 1
        self.pending: dict[int, Answer] = {}
        self.producers: dict[int, ProducerEnd] = {}
        self.consumers: dict[int, ConsumerEnd] = {}
        self.watchers: dict[int, Callable[[PulsarException | None], object]] = {}
        """By watcher id: called with None when topics were created or deleted, and with the error when the
        connection is lost.
        """

    # Outgoing

    def connect(self, proxy_to: str = "", auth_method: str = "", auth_data: bytes = b"") -> None:
        """Sends CONNECT.

        :param proxy_to: ``host:port`` of the broker behind a proxy; empty: no proxy
        """
        command = BaseCommand(type=BaseCommand.CONNECT)
        connect = command.connect
        connect.client_version = CLIENT_VERSION
        connect.protocol_version = PROTOCOL_VERSION
        flags = FeatureFlags(supports_partial_producer=True, supports_repl_dedup_by_lid_and_eid=True)
        connect.feature_flags.CopyFrom(flags)
        if proxy_to:
            connect.proxy_to_broker_url = proxy_to
        if auth_method:
            connect.auth_method_name = auth_method
            connect.auth_data = auth_data
            connect.feature_flags.supports_auth_refresh = True
        self.send(command)

    def respond(self, auth_method: str, auth_data: bytes) -> None:
        """Answers the broker's authentication challenge."""
        command = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
        answer = command.authResponse
        answer.client_version = CLIENT_VERSION
        answer.protocol_version = PROTOCOL_VERSION
        answer.response.auth_method_name = auth_method
        answer.response.auth_data = auth_data
        self.send(command)

    def send(self, command: BaseCommand) -> None:
        self._owner.send(encode_command(command))

    def ping(self) -> None:
        command = BaseCommand(type=BaseCommand.PING)
        command.ping.SetInParent()
        self.send(command)

    @property
    def is_used(self) -> bool:
        """Whether the connection has an unanswered request, a producer, a consumer, or a watch."""
        return bool(self.pending or self.producers or self.consumers or self.watchers)

    def new_request_id(self) -> int:
        number = self.next_id
        self.next_id += 1
        return number

    # Incoming

    def receive(self, data: bytes) -> None:
        """Processes received bytes.

        :raises FrameError: the bytes violate the protocol; the connection must be closed
        """
        if self._partial:
            self._partial.append(data)
            self._partial_size += len(data)
            if self._partial_size < self._needed:
                return
            data = b"".join(self._partial)
            self._partial.clear()
        position = 0
        limit = len(data)
        while position < limit:
            kind = next_frame(data, position, limit, self.max_frame)
            if kind == 0:
                self._keep(data, position, limit)
                return
            position = self._take(kind, data, position, limit)

    def _keep(self, data: bytes, position: int, limit: int) -> None:
        rest = data[position:] if position else data
        self._partial.append(rest)
        self._partial_size = limit - position
        self._needed = 4 + int.from_bytes(rest[:4], "big") if len(rest) >= 4 else 4

    def _take(self, kind: int, data: bytes, position: int, limit: int) -> int:
        if kind == BaseCommand.SEND_RECEIPT:
            receipts = self._runs.receipts
            after = read_receipts(data, position, limit, self.max_frame, receipts)
            if receipts.count:
                producer = self.producers.get(receipts.producer_id)
                if producer is not None:
                    producer.receipts(receipts)
                return after
        elif kind == BaseCommand.MESSAGE:
            messages = self._runs.messages
            after = read_messages(data, position, limit, self.max_frame, messages, True)
            if messages.count:
                consumer = self.consumers.get(messages.consumer_id)
                if consumer is not None:
                    consumer.messages(data, messages)
                return after
            intact = messages.error != _CHECKSUM_MISMATCH
            return self._single_message(data, position, intact)
        self._command(decode_command(data, position))
        return frame_end(data, position)

    def _single_message(self, data: bytes, position: int, intact: bool) -> int:
        command = decode_command(data, position).message
        end = frame_end(data, position)
        consumer = self.consumers.get(command.consumer_id)
        if consumer is not None:
            entry_at = command_bounds(data, position)[1]
            consumer.message(command, data[entry_at:end], intact)
        return end

    def _command(self, command: BaseCommand) -> None:
        act = _ACTIONS.get(command.type)
        if act is not None:
            act(self, command)
            return
        name = _ANSWERS.get(command.type)
        if name is not None:
            self._answer(getattr(command, name).request_id, command)
            return
        raise FrameError(
            f"the broker sent {BaseCommand.Type.Name(command.type)}, which must not be sent to clients"
        )

    def _answer(self, request_id: int, command: BaseCommand) -> None:
        answer = self.pending.pop(request_id, None)
        if answer is not None:
            answer(command, None)

    # Commands

    def _connected(self, command: BaseCommand) -> None:
        connected = command.connected
        if connected.max_message_size > 0:
            self.max_message_size = connected.max_message_size
            self.max_frame = max_frame_size(connected.max_message_size)
        self.confirms_positions = connected.feature_flags.supports_repl_dedup_by_lid_and_eid
        self.offers_topic_watches = connected.feature_flags.supports_topic_watchers
        self.ready = True
        self._owner.connected(connected)

    def _ping(self, command: BaseCommand) -> None:
        answer = BaseCommand(type=BaseCommand.PONG)
        answer.pong.SetInParent()
        self.send(answer)

    def _pong(self, command: BaseCommand) -> None:
        self._owner.pong()

    def _challenge(self, command: BaseCommand) -> None:
        self._owner.challenged()

    def _error(self, command: BaseCommand) -> None:
        error = server_exception(command.error.error, command.error.message)
        answer = self.pending.pop(command.error.request_id, None)
        if answer is not None:
            answer(None, error)
        elif not self.ready or command.error.request_id == _NO_REQUEST:
            self._owner.refused(error)

    def _producer_success(self, command: BaseCommand) -> None:
        success = command.producer_success
        if success.HasField("producer_ready") and not success.producer_ready:
            # A second answer with the same id follows when the producer gets exclusive access.
            waiting = self.pending.get(success.request_id)
            if waiting is not None:
                waiting(command, None)
            return
        self._answer(success.request_id, command)

    def _receipt(self, command: BaseCommand) -> None:
        """Handles a receipt with unusual fields, which the fast parser leaves out."""
        receipt = command.send_receipt
        producer = self.producers.get(receipt.producer_id)
        if producer is None:
            return
        run = self._runs.receipts
        run.producer_id = receipt.producer_id
        run.sequence_ids[0] = signed(receipt.sequence_id)
        highest = receipt.highest_sequence_id if receipt.HasField("highest_sequence_id") else -1
        run.highest_sequence_ids[0] = signed(highest % 2**64)
        known = receipt.HasField("message_id")
        run.ledger_ids[0] = signed(receipt.message_id.ledgerId) if known else -1
        run.entry_ids[0] = signed(receipt.message_id.entryId) if known else -1
        run.count = 1
        producer.receipts(run)

    def _send_error(self, command: BaseCommand) -> None:
        failed = command.send_error
        producer = self.producers.get(failed.producer_id)
        if producer is not None:
            producer.send_failed(failed.sequence_id, server_exception(failed.error, failed.message))

    def _close_producer(self, command: BaseCommand) -> None:
        producer = self.producers.pop(command.close_producer.producer_id, None)
        if producer is not None:
            producer.closed_by_broker(_assigned(command.close_producer))

    def _close_consumer(self, command: BaseCommand) -> None:
        consumer = self.consumers.pop(command.close_consumer.consumer_id, None)
        if consumer is not None:
            consumer.closed_by_broker(_assigned(command.close_consumer))

    def _active_change(self, command: BaseCommand) -> None:
        change = command.active_consumer_change
        consumer = self.consumers.get(change.consumer_id)
        if consumer is not None:
            consumer.active_changed(change.is_active)

    def _end_of_topic(self, command: BaseCommand) -> None:
        consumer = self.consumers.get(command.reachedEndOfTopic.consumer_id)
        if consumer is not None:
            consumer.end_of_topic()

    def _topics_changed(self, command: BaseCommand) -> None:
        watcher = self.watchers.get(command.watchTopicUpdate.watcher_id)
        if watcher is not None:
            watcher(None)

    def _topic_migrated(self, command: BaseCommand) -> None:
        moved = command.topicMigrated
        of_producer = moved.resource_type == CommandTopicMigrated.Producer
        ends: Mapping[int, ProducerEnd | ConsumerEnd] = self.producers if of_producer else self.consumers
        end = ends.get(moved.resource_id)
        if end is not None:
            end.migrated(Assigned(moved.brokerServiceUrl, moved.brokerServiceUrlTls))

    def lost(self, error: PulsarException) -> None:
        """Reports the loss of the connection to all its users."""
        pending, self.pending = self.pending, {}
        producers, self.producers = self.producers, {}
        consumers, self.consumers = self.consumers, {}
        watchers, self.watchers = self.watchers, {}
        self._partial.clear()
        for answer in pending.values():
            answer(None, error)
        for producer in producers.values():
            producer.connection_lost(error)
        for consumer in consumers.values():
            consumer.connection_lost(error)
        for watcher in watchers.values():
            watcher(error)


_ACTIONS: dict[int, Callable[[Wire, BaseCommand], None]] = {
    BaseCommand.CONNECTED: Wire._connected,
    BaseCommand.PING: Wire._ping,
    BaseCommand.PONG: Wire._pong,
    BaseCommand.AUTH_CHALLENGE: Wire._challenge,
    BaseCommand.ERROR: Wire._error,
    BaseCommand.PRODUCER_SUCCESS: Wire._producer_success,
    BaseCommand.SEND_RECEIPT: Wire._receipt,
    BaseCommand.SEND_ERROR: Wire._send_error,
    BaseCommand.CLOSE_PRODUCER: Wire._close_producer,
    BaseCommand.CLOSE_CONSUMER: Wire._close_consumer,
    BaseCommand.ACTIVE_CONSUMER_CHANGE: Wire._active_change,
    BaseCommand.REACHED_END_OF_TOPIC: Wire._end_of_topic,
    BaseCommand.TOPIC_MIGRATED: Wire._topic_migrated,
    BaseCommand.WATCH_TOPIC_UPDATE: Wire._topics_changed,
}

_ANSWERS: dict[int, str] = {
    BaseCommand.SUCCESS: "success",
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS: "watchTopicListSuccess",
    BaseCommand.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    BaseCommand.LOOKUP_RESPONSE: "lookupTopicResponse",
    BaseCommand.CONSUMER_STATS_RESPONSE: "consumerStatsResponse",
    BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    BaseCommand.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE: "getOrCreateSchemaResponse",
    BaseCommand.ACK_RESPONSE: "ackResponse",
    BaseCommand.TC_CLIENT_CONNECT_RESPONSE: "tcClientConnectResponse",
    BaseCommand.NEW_TXN_RESPONSE: "newTxnResponse",
    BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE: "addPartitionToTxnResponse",
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE: "addSubscriptionToTxnResponse",
    BaseCommand.END_TXN_RESPONSE: "endTxnResponse",
    BaseCommand.END_TXN_ON_PARTITION_RESPONSE: "endTxnOnPartitionResponse",
    BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE: "endTxnOnSubscriptionResponse",
}
