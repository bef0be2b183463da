"""A consumer on one topic, or on one partition."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from magnetar.client.acknowledging import Acknowledgements, NegativeAcknowledgements
from magnetar.client.attachment import Attachment, Services, take_back_unanswered
from magnetar.client.connection import Connection
from magnetar.client.consumer_commands import ConsumerCommands, last_message_of
from magnetar.client.entries import MessageOpening
from magnetar.client.exceptions import (
    AlreadyClosed,
    InvalidConfiguration,
    InvalidMessage,
    NotConnected,
    PulsarException,
)
from magnetar.client.message import Acknowledged, Message, RawEntry, entries_of, entry_of, id_of, meant_by
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.receiving import Arrivals, Permits, StartPosition, Taken
from magnetar.client.unpacking import Aside
from magnetar.io.interfaces import Future
from magnetar.io.waiting import finished
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.errors import EntryError
from magnetar.protocol.hot_client_decode import MessageRun
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, CommandMessage

log = logging.getLogger(__name__)


class Consumer(Attachment):
    """A consumer; see ``Client.subscribe``.

    Use either :meth:`receive` for messages or :meth:`receive_entry` for whole entries: entries are as stored,
    messages are decrypted, and assembled if they were sent in chunks.
    """

    def __init__(
        self,
        services: Services,
        topic: str,
        subscription: str,
        options: ConsumerOptions,
        *,
        makes_topic: bool = True,
    ) -> None:
        """:param makes_topic: create a missing topic, if the broker permits

        :raises InvalidConfiguration: an option is out of range
        """
        super().__init__(services, topic)
        options.check()
        self._options = options
        self._subscription = subscription
        self._name = options.consumer_name or services.io.randomness.token(5).hex()
        self._partition = TopicName.parse(topic).partition_index
        self._commands = ConsumerCommands(
            self._id, topic, subscription, self._name, options, makes_topic=makes_topic
        )
        self._queue: deque[RawEntry] = deque()
        self._ready: deque[Message] = deque()
        self._arrivals = Arrivals(self._loop)
        self.on_arrival: Callable[[], object] | None = None
        """Called when entries have arrived, or when the consumer has ended.

        The callback must take all messages. With a receiver queue of 0, :meth:`take` then requests one.
        """
        self._epoch = 0
        self._permits = Permits(options.receiver_queue_size, self._flow)
        self._start = options.start_message_id
        self._place = StartPosition(None, options.start_message_id_inclusive)
        self._last_taken: MessageId | None = None
        self._seeking: Future[None] | None = None
        self._attachments = Arrivals(self._loop)
        self.active = True
        """Whether a Failover subscription delivers to this consumer."""
        self._end_of_topic = False
        self._taken = Taken(
            self._loop,
            topic,
            subscription,
            options,
            shared=self._options.is_shared,
            ask_again=self._redeliver,
            acknowledge=self.acknowledge_soon,
            open_producer=services.open_producer,
        )
        self._aside = Aside(self._loop, options.unpacking, self._opened_aside, self._not_opened)
        self._opening = MessageOpening(
            services.io,
            topic,
            options,
            used=self._permits.use,
            acknowledge=self._acknowledge_entry,
            withheld=self._taken.withheld,
            open_waiting=self._open_all,
            aside=self._aside.takes,
        )
        self._acks = Acknowledgements(
            self._loop,
            self._id,
            lambda: self._connection,
            options,
            timeout=services.operation_timeout,
            taken=self._taken,
        )
        self._nacks = NegativeAcknowledgements(
            self._loop, options.negative_ack_redelivery_delay_ms / 1000, self._redeliver
        )

    def subscription_name(self) -> str:
        return self._subscription

    def consumer_name(self) -> str:
        return self._name

    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic is terminated and all its messages were delivered."""
        return self._end_of_topic

    # Receiving

    async def receive(self, timeout_millis: float | None = None) -> Message:
        """Returns the next message.

        :raises Timeout: no message arrived in time
        :raises PulsarException: the consumer is closed, or has failed for good
        """
        end = None if timeout_millis is None else self._loop.time() + timeout_millis / 1000
        while True:
            message = self.take()
            if message is not None:
                return message
            await self._arrival(end)

    async def receive_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """Returns the next entry as stored; a batch is not split.

        :raises Timeout: no entry arrived in time
        :raises PulsarException: the consumer is closed, or has failed for good
        """
        end = None if timeout_millis is None else self._loop.time() + timeout_millis / 1000
        while True:
            entry = self.take_entry()
            if entry is not None:
                return entry
            await self._arrival(end)

    def take_entry(self) -> RawEntry | None:
        """Returns the next entry if one has arrived, else None; see :meth:`receive_entry`."""
        self.check_open()
        while self._queue:
            entry = self._queue.popleft()
            self._permits.use(entry.num_messages)
            if not self._place.skips(entry.message_id()):
                self._last_taken = entry.message_id()
                return entry
        return None

    def widen_queue(self, receiver_queue_size: int) -> None:
        """Enlarges the receiver queue; a smaller size has no effect."""
        self._permits.widen(receiver_queue_size)

    def take(self) -> Message | None:
        """Returns the next message if one has arrived, else None; see :meth:`receive`."""
        self.check_open()
        while True:
            while self._ready:
                message = self._ready.popleft()
                self._permits.use(1)
                message_id = message.message_id()
                if self._place.matters and self._place.skips(message_id):
                    continue
                self._last_taken = message_id
                if self._taken.matters:
                    self._taken.add(message)
                return message
            if self._aside.entry is not None:
                return None
            if not self._queue:
                if self.on_arrival is not None:
                    self._permits.ask_for_one()
                return None
            self._open_next()

    def _open_next(self) -> None:
        entry = self._queue.popleft()
        try:
            skipped = self._place.matters and self._place.skips(entry.message_id())
            self._ready.extend(self._opening.messages(entry, skipped=skipped))
        except InvalidMessage as error:
            self._discard(entry.message_id(), error, CommandAck.BatchDeSerializeError, entry.num_messages)

    def _open_all(self) -> None:
        while self._queue and self._aside.entry is None:
            self._open_next()

    def _opened_aside(self, entry: RawEntry) -> None:
        try:
            self._ready.extend(entry.messages(self._topic))
        except InvalidMessage as error:
            self._not_opened(entry, error)
            return
        self._wake()

    def _not_opened(self, entry: RawEntry, error: PulsarException) -> None:
        if isinstance(error, InvalidMessage):
            self._discard(entry.message_id(), error, CommandAck.BatchDeSerializeError, entry.num_messages)
            self._wake()
        else:
            # The entry is intact, and another consumer may have memory for it.
            self._fail(error)

    def _acknowledge_entry(self, position: tuple[int, int]) -> None:
        self._acks.individual(MessageId(self._partition, *position))

    async def _arrival(self, end: float | None) -> None:
        self._permits.ask_for_one()
        await self._arrivals.wait(end, f"{self._topic}: no message arrived in time")

    def _wake(self) -> None:
        self._arrivals.wake()
        if self.on_arrival is not None:
            self.on_arrival()

    def _flow(self, permits: int) -> None:
        if self._connection is not None:
            self._connection.wire.send(self._commands.flow(permits))

    # Events of the connection

    def messages(self, buffer: bytes, run: MessageRun) -> None:
        self._permits.arrived()
        if run.epoch < self._epoch and self._epoch:
            self._permits.use(run.total_messages)
            return
        self._queue.extend(entries_of(buffer, run, self._partition))
        self._wake()

    def message(self, command: CommandMessage, entry: bytes, intact: bool) -> None:
        message_id = id_of(command, self._partition)
        self._permits.arrived()
        if not intact:
            self._discard(message_id, "its checksum is wrong", CommandAck.ChecksumMismatch)
            return
        try:
            arrived = entry_of(command, entry, self._partition)
        except EntryError as error:
            self._discard(message_id, error, CommandAck.BatchDeSerializeError)
            return
        epoch = command.consumer_epoch if command.HasField("consumer_epoch") else -1
        if epoch < self._epoch and self._epoch:
            self._permits.use(arrived.num_messages)
            return
        if arrived.ack_set:
            self._acks.known(message_id.position, arrived.batch_size, arrived.ack_set)
        self._queue.append(arrived)
        self._wake()

    def active_changed(self, active: bool) -> None:
        self.active = active

    def end_of_topic(self) -> None:
        self._end_of_topic = True

    # Acknowledging

    async def acknowledge(self, message: Acknowledged) -> None:
        """Acknowledges one message, or a whole entry; with ``ack_receipt_enabled`` waits for the answer.

        :raises PulsarException: the broker refused, or the consumer is closed
        """
        self.check_open()
        answer = self._individual(meant_by(message))
        if answer is not None:
            await answer

    def _individual(self, message_id: MessageId) -> Future[None] | None:
        for position in self._opening.chunks.acknowledged(message_id.position):
            self._acknowledge_entry(position)
        return self._acks.individual(message_id)

    def acknowledge_soon(self, message: Acknowledged) -> None:
        """As :meth:`acknowledge`, without waiting for an answer."""
        self.check_open()
        self._individual(meant_by(message))

    @property
    def has_receipts(self) -> bool:
        """Whether acknowledging waits for the broker's answer."""
        return self._options.ack_receipt_enabled

    async def acknowledge_cumulative(self, message: Acknowledged) -> None:
        """Acknowledges all messages up to and including one; as :meth:`acknowledge`.

        :raises InvalidConfiguration: the subscription is Shared or KeyShared
        """
        self.check_open()
        if self._options.is_shared:
            raise InvalidConfiguration("cumulative acknowledgement is not possible on a shared subscription")
        message_id = meant_by(message)
        self._opening.chunks.acknowledged_until(message_id.position)
        answer = self._acks.cumulative(message_id)
        if answer is not None:
            await answer

    def negative_acknowledge(self, message: Acknowledged) -> None:
        """Requests redelivery after ``negative_ack_redelivery_delay_ms``."""
        self.check_open()
        position = meant_by(message).position
        self._taken.refused(position)
        self._nacks.add(position)

    def flush_acknowledgements(self) -> None:
        """Sends collected acknowledgements now."""
        self._acks.flush()

    def redeliver_unacknowledged_messages(self) -> None:
        """Requests redelivery of all unacknowledged messages of this consumer."""
        self.check_open()
        if self._connection is not None:
            self._acks.flush()
            cleared = self._forget_messages()
            self._taken.forget()
            if not self._options.is_shared:
                # Messages that were in transit before the broker rewound have a lower number.
                self._epoch += 1
            self._connection.wire.send(self._commands.redeliver([], self._epoch))
            # Only after the request, or the broker would continue from its old position.
            self._permits.use(cleared)

    def _redeliver(self, positions: list[tuple[int, int]]) -> None:
        if self._closed or self._failure is not None:
            return
        if not self._options.is_shared:
            # Exclusive and Failover subscriptions rewind as a whole.
            self.redeliver_unacknowledged_messages()
        else:
            self._ask_again(self._taken.without_dead(positions, self._ask_again))

    def _ask_again(self, positions: list[tuple[int, int]]) -> None:
        if positions and self._connection is not None:
            whole = self._opening.chunks.all_of(positions)
            self._connection.wire.send(self._commands.redeliver(whole, 0))

    def _discard(
        self, message_id: MessageId, reason: object, why: CommandAck.ValidationError, messages: int = 1
    ) -> None:
        log.warning("%s: discarding message %s: %s", self._topic, message_id, reason)
        self._permits.use(messages)
        if self._connection is not None:
            self._connection.wire.send(self._commands.discard(message_id, why))

    # Positions

    async def seek(self, target: MessageId | int) -> None:
        """Moves the subscription to a message, or to a publish time in ms since 1970.

        :raises PulsarException: the broker refused, or the consumer is not connected
        """
        connection = self._connected_to()
        while self._seeking is not None:
            await finished(self._loop, self._seeking)
        self._seeking = self._loop.create_future()
        request_id = connection.wire.new_request_id()
        try:
            command = self._commands.seek(request_id, target)
            await connection.ask(request_id, command, self._services.operation_timeout)
            cleared = self._forget_messages()
            if self._connection is connection:
                # A non-persistent topic has no positions, so its broker does not close the consumer.
                self._permits.use(cleared)
            self._acks.forget()
            self._nacks.forget()
            self._taken.forget()
            self._last_taken = None
            self._start = target if isinstance(target, MessageId) else None
            self._place = StartPosition(self._start, self._options.start_message_id_inclusive)
        finally:
            self._seeking.set_result(None)
            self._seeking = None
        await self._until_attached()

    async def _before_reattach(self) -> None:
        if self._seeking is not None:
            await finished(self._loop, self._seeking)

    async def _until_attached(self) -> None:
        if self._connection is not None:
            return
        self.check_open()
        end = self._loop.time() + self._services.operation_timeout
        await self._attachments.wait(end, f"{self._topic}: could not be attached in time")
        self.check_open()

    async def get_last_message_id(self) -> MessageId:
        """Returns the id of the topic's last message; its entry id is -1 if the topic is empty."""
        return (await self._last_message_id())[0]

    async def _last_message_id(self) -> tuple[MessageId, tuple[int, int] | None]:
        """Also returns the mark-delete position, if the broker sends it."""
        connection = self._connected_to()
        request_id = connection.wire.new_request_id()
        command = self._commands.last_message_id(request_id)
        answered: BaseCommand = await connection.ask(request_id, command, self._services.operation_timeout)
        return last_message_of(answered.getLastMessageIdResponse)

    async def has_message_available(self) -> bool:
        """Whether the topic has a message after the last received one."""
        self.check_open()
        if self._queue or self._ready or self._aside.entry is not None:
            return True
        last, mark = await self._last_message_id()
        if last.entry_id() < 0:
            return False
        if self._last_taken is not None:
            return last > self._last_taken
        behind = StartPosition(self._start, self._place.inclusive).is_before(last)
        if behind is not None:
            return behind
        return mark is None or last.position > mark

    # Life

    async def _announce(self, connection: Connection) -> None:
        self._forget_messages()
        self._acks.forget()
        self._taken.forget()
        if not self._options.durable:
            inclusive = self._place.inclusive and self._last_taken is None
            self._start = self._last_taken or self._start
            self._place = StartPosition(self._start, inclusive)
        wire = connection.wire
        request_id = wire.new_request_id()
        wire.consumers[self._id] = self
        command = self._commands.subscribe(request_id, self._start, self._epoch)
        asked = self._asked = connection.ask(request_id, command, self._services.operation_timeout)
        take_back_unanswered(asked, lambda: self._take_back(connection))
        try:
            await asked
        except PulsarException:
            wire.consumers.pop(self._id, None)
            raise
        if wire.consumers.get(self._id) is not self:
            raise NotConnected(f"{self._topic}: closed again by the broker")

    def _moved(self) -> None:
        opened = self._id in self._services.attachments
        if not self._options.durable and (opened or self._start != MessageId.latest):
            # Message ids are not valid in the other cluster; all messages of this one were received.
            self._last_taken, self._start = None, MessageId.earliest

    def _attached(self, connection: Connection) -> None:
        self._permits.attached(listened=self.on_arrival is not None, waited=bool(self._arrivals))
        self._attachments.wake()

    def _forget_messages(self) -> int:
        """Drops messages that were not received yet; returns their number of permits."""
        cleared = sum(entry.num_messages for entry in self._queue) + len(self._ready)
        cleared += self._aside.forget()
        self._queue.clear()
        self._ready.clear()
        self._opening.chunks.forget()
        return cleared

    def _ended(self, error: PulsarException) -> None:
        self._forget_messages()
        self._wake()
        self._attachments.wake()

    def _ask_close(self, connection: Connection) -> Future[BaseCommand]:
        request_id = connection.wire.new_request_id()
        return connection.ask(request_id, self._commands.close(request_id), self._services.operation_timeout)

    def _take_back(self, connection: Connection) -> Future[BaseCommand]:
        connection.wire.consumers.pop(self._id, None)
        return self._ask_close(connection)

    async def unsubscribe(self) -> None:
        """Deletes the subscription, and closes.

        :raises PulsarException: the broker refused; the consumer stays open
        """
        connection = self._connected_to()
        self._acks.flush()
        request_id = connection.wire.new_request_id()
        command = self._commands.unsubscribe(request_id)
        await connection.ask(request_id, command, self._services.operation_timeout)
        connection.wire.consumers.pop(self._id, None)
        self._end()

    async def close(self) -> None:
        """Sends collected acknowledgements, and closes. Idempotent."""
        if self._closed:
            return
        connection = self._connection
        self._acks.close()
        self._end()
        try:
            await self._taken.close()
        finally:
            if connection is not None and not connection.closed:
                await self._goodbye(self._ask_close(connection))
                connection.wire.consumers.pop(self._id, None)

    def _end(self) -> None:
        self._stop()
        self._nacks.forget()
        self._taken.forget()
        self._forget_messages()
        if self._failure is None:
            self._failure = AlreadyClosed(f"{self._topic}: closed")
        self._wake()
        self._attachments.wake()
