"""Raw producers and consumers, which build frames from templates and create no object per message."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable

from magnetar.cli.perf.ends import ReceiveSettings, SendSettings, Shared
from magnetar.cli.perf.hot_raw import Histogram, OrderCheck, RawReceiver, RawSender
from magnetar.client.attachment import Services
from magnetar.client.connection import Connection
from magnetar.client.consumer_commands import ConsumerCommands
from magnetar.client.enums import ConsumerType, InitialPosition
from magnetar.client.exceptions import PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.wire import Assigned
from magnetar.io.interfaces import Cancellable
from magnetar.protocol.hot_client_decode import MessageRun, ReceiptRun
from magnetar.protocol.hot_client_encode import encode_acks
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandMessage, MessageMetadata

_INDIVIDUAL = 0
_CUMULATIVE = 1
_SEND_AT_ONCE = 2000


async def _connect(services: Services, topic: str) -> Connection:
    owner = await services.lookup.owner(topic)
    return await services.pool.next(owner.broker, owner.through)


class RawProducer:
    """A producer that sends the frames of :class:`RawSender`."""

    def __init__(
        self, services: Services, topic: str, number: int, settings: SendSettings, shared: Shared
    ) -> None:
        """:param number: the number of the producer, which is unique in the run"""
        self._services = services
        self._topic = topic
        self._number = number
        self._settings = settings
        self._shared = shared
        self._id = services.new_id()
        self._connection: Connection | None = None
        self._sender: RawSender | None = None
        self._on_room: Callable[[], object] = lambda: None
        self._closing = False
        self.sent = 0
        self.confirmed = 0
        self.latencies = Histogram()

    async def open(self, on_room: Callable[[], object]) -> None:
        """Opens the producer at the broker.

        :param on_room: called when receipts permit sending further messages
        :raises PulsarException: opening failed
        """
        self._on_room = on_room
        settings = self._settings
        connection = await self._services.retrying(lambda: _connect(self._services, self._topic))
        request_id = connection.wire.new_request_id()
        command = BaseCommand(type=BaseCommand.PRODUCER)
        producer = command.producer
        producer.topic, producer.producer_id, producer.request_id = self._topic, self._id, request_id
        producer.producer_access_mode = settings.access_mode  # type: ignore[assignment]
        if settings.producer_name:
            producer.producer_name = f"{settings.producer_name}-{self._number}"
            producer.user_provided_producer_name = True
        answered = await connection.ask(request_id, command, self._services.operation_timeout)
        name = answered.producer_success.producer_name
        head = MessageMetadata(producer_name=name).SerializePartialToString()
        per_bytes = max(1, settings.batch_bytes // (settings.size + 16))
        sender = RawSender(
            self._id,
            self._number,
            head,
            settings.contents[0],
            min(settings.batch, per_bytes),
            settings.max_outstanding,
            self._shared.window,
        )
        self.latencies = sender.latencies
        self._sender = sender
        self._connection = connection
        connection.wire.producers[self._id] = self

    def room(self) -> int:
        return min(_SEND_AT_ONCE, self._settings.max_outstanding - self.sent + self.confirmed)

    def send(self, count: int, due: int, interval: int) -> None:
        assert self._sender is not None
        assert self._connection is not None
        self.sent += count
        publish_ms = self._shared.clock.now() // 1_000_000
        self._connection.send(self._sender.make(count, due, interval, publish_ms))

    def flush(self) -> None:
        """Does nothing, because this producer sends every message at once."""

    def receipts(self, run: ReceiptRun) -> None:
        sender = self._sender
        assert sender is not None
        self.confirmed += sender.receipts(run.sequence_ids, run.count, self._shared.clock.now())
        if sender.errors:
            self._shared.failed(f"{sender.errors} receipts of {self._topic} do not match the messages sent")
        self._on_room()

    def send_failed(self, sequence_id: int, error: PulsarException) -> None:
        self._shared.failed(f"{self._topic}: {error!r}")

    def migrated(self, there: Assigned) -> None:
        self._shared.failed(f"{self._topic}: the topic has moved to {there.url or there.url_tls}")

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        self._shared.failed(f"{self._topic}: the broker closed a producer")

    def connection_lost(self, error: PulsarException) -> None:
        if not self._closing:
            self._shared.failed(f"{self._topic}: {error!r}")

    async def close(self) -> None:
        self._closing = True
        connection = self._connection
        if connection is None or connection.closed:
            return
        request_id = connection.wire.new_request_id()
        command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        command.close_producer.producer_id = self._id
        command.close_producer.request_id = request_id
        await connection.ask(request_id, command, self._services.operation_timeout)
        connection.wire.producers.pop(self._id, None)


class RawConsumer:
    """A consumer that acknowledges messages, and counts and checks them with :class:`RawReceiver`."""

    def __init__(
        self,
        services: Services,
        topic: str,
        settings: ReceiveSettings,
        shared: Shared,
        order: OrderCheck | None,
        start: MessageId | None = None,
    ) -> None:
        """:param start: the start position of a non-durable subscription, whose messages are not
        acknowledged; None: the subscription is durable
        """
        self._services = services
        self._topic = topic
        self._settings = settings
        self._shared = shared
        self._start = start
        self._id = services.new_id()
        options = ConsumerOptions(
            consumer_type=ConsumerType(settings.consumer_type),
            initial_position=InitialPosition.Earliest if settings.earliest else InitialPosition.Latest,
            durable=start is None,
            replicate_subscription_state_enabled=settings.replicated,
        )
        name = f"{settings.subscription}-{self._id}"
        self._commands = ConsumerCommands(self._id, topic, settings.subscription, name, options)
        self._receiver = RawReceiver(order, shared.window)
        self.order = order
        self._connection: Connection | None = None
        self._used = 0
        self._threshold = max(1, settings.queue // 2)
        self._ledgers = array("q")
        self._entries = array("q")
        self._timer: Cancellable | None = None
        self._loop = asyncio.get_running_loop()
        self._closing = False

    @property
    def received(self) -> int:
        return self._receiver.messages

    @property
    def size(self) -> int:
        return self._receiver.size

    @property
    def foreign(self) -> int:
        return self._receiver.foreign

    @property
    def latencies(self) -> Histogram:
        return self._receiver.latencies

    async def open(self) -> None:
        """Opens the consumer at the broker.

        :raises PulsarException: opening failed
        """
        connection = await self._services.retrying(lambda: _connect(self._services, self._topic))
        request_id = connection.wire.new_request_id()
        command = self._commands.subscribe(request_id, self._start)
        connection.wire.consumers[self._id] = self
        await connection.ask(request_id, command, self._services.operation_timeout)
        self._connection = connection
        connection.wire.send(self._commands.flow(self._settings.queue))

    def messages(self, buffer: bytes, run: MessageRun) -> None:
        count = run.count
        before = self._receiver.messages
        self._receiver.take(buffer, run.starts, run.ends, run.batch_sizes, count, self._shared.clock.now())
        self._shared.received += self._receiver.messages - before
        connection = self._connection
        if connection is None:
            return
        self._used += run.total_messages
        if self._used >= self._threshold:
            used, self._used = self._used, 0
            connection.wire.send(self._commands.flow(used))
        if self._start is None:
            self._acknowledge(connection, run, count)
        self._shared.on_received()

    def _acknowledge(self, connection: Connection, run: MessageRun, count: int) -> None:
        settings = self._settings
        first = count - 1 if settings.cumulative else 0
        if settings.cumulative:
            self._ledgers, self._entries = array("q"), array("q")
        self._ledgers += run.ledger_ids[first:count]
        self._entries += run.entry_ids[first:count]
        if settings.ack_delay_millis <= 0 or len(self._ledgers) >= settings.ack_group:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(settings.ack_delay_millis / 1000, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ledgers, entries = self._ledgers, self._entries
        if not ledgers or self._connection is None:
            return
        self._ledgers, self._entries = array("q"), array("q")
        kind = _CUMULATIVE if self._settings.cumulative else _INDIVIDUAL
        group = self._settings.ack_group
        for first in range(0, len(ledgers), group):
            count = min(group, len(ledgers) - first)
            self._connection.send(encode_acks(self._id, kind, ledgers, entries, first, count, -1))

    def message(self, command: CommandMessage, entry: bytes, intact: bool) -> None:
        what = "of an unusual form" if intact else "with a wrong checksum"
        self._shared.failed(f"{self._topic}: a message {what}")

    def active_changed(self, active: bool) -> None:
        """Does nothing: the load generator does not depend on which consumer of a Failover subscription is
        active.
        """

    def end_of_topic(self) -> None:
        self._shared.failed(f"{self._topic}: the topic was terminated")

    def migrated(self, there: Assigned) -> None:
        self._shared.failed(f"{self._topic}: the topic has moved to {there.url or there.url_tls}")

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        self._shared.failed(f"{self._topic}: the broker closed a consumer")

    def connection_lost(self, error: PulsarException) -> None:
        if not self._closing:
            self._shared.failed(f"{self._topic}: {error!r}")

    async def close(self) -> None:
        self.flush()
        self._closing = True
        connection = self._connection
        if connection is None or connection.closed:
            return
        request_id = connection.wire.new_request_id()
        await connection.ask(request_id, self._commands.close(request_id), self._services.operation_timeout)
        connection.wire.consumers.pop(self._id, None)
