"""A consumer on one topic, or on one partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from magnetar.client.acknowledging import Acknowledgements
from magnetar.client.attachment import Attached, Attachment, Services
from magnetar.client.batch_receiving import BatchReceivePolicy, receive_batch
from magnetar.client.connection import Connection
from magnetar.client.consumer_commands import ConsumerCommands
from magnetar.client.dead_letters import RetryLetters
from magnetar.client.exceptions import InvalidConfiguration, PulsarException
from magnetar.client.hot_messages import runs_of
from magnetar.client.interceptors import notify
from magnetar.client.listening import Listened
from magnetar.client.message import Acknowledged, Message, RawEntry, SeekTarget, meant_by, redeliveries_of
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.positions import Positions
from magnetar.client.receiver_queue import ReceiverQueue
from magnetar.client.receiving import Taken
from magnetar.client.redelivery import Redelivery
from magnetar.client.schema import ValueSchema
from magnetar.client.statements import AsyncMessages
from magnetar.client.stats import ConsumerStats, Intervals, ReceivedTotals, consumer_stats, log_received
from magnetar.client.value_messages import Values
from magnetar.client.wire import ConsumerEnd, Wire
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.hot_client_decode import MessageRun
from magnetar.protocol.pulsar_api_pb2 import CommandMessage

if TYPE_CHECKING:
    from magnetar.client.transactional_acks import TransactionalAcknowledgements
    from magnetar.client.transactions import AnyTransaction


class Consumer(Attached, Listened, AsyncMessages):
    """A consumer; see ``Client.subscribe``.

    Use either :meth:`receive`, which returns messages, decrypted and assembled from chunks, or
    :meth:`receive_entry`, which returns entries as stored.
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
        """:param makes_topic: whether the broker may create the topic if it does not exist

        :raises InvalidConfiguration: an option is out of range
        """
        attachment = Attachment[ConsumerEnd](
            services,
            topic,
            self,
            _consumers,
            announce=self._announce,
            close_command=lambda request_id: self._commands.close(request_id),
            attached=lambda _connection: self._positions.attached(),
            ended=lambda _error: self._queue.end(),
            moved=lambda: self._positions.migrated(),
            before_reattach=lambda: self._positions.until_sought(),
        )
        super().__init__(services, attachment)
        self._consumes = attachment
        options.check()
        loop = services.io.loop
        self._loop = loop
        self._options = options
        self._partition = TopicName.parse(topic).partition_index
        self._subscription = subscription
        self._name = options.consumer_name or services.io.randomness.token(5).hex()
        self._end_of_topic = False
        self._commands = commands = ConsumerCommands(
            attachment.id, topic, subscription, self._name, options, makes_topic=makes_topic
        )
        self._taken = taken = Taken(
            loop,
            topic,
            subscription,
            options,
            shared=options.is_shared,
            ask_again=lambda positions: self._redelivery.late(positions),
            acknowledge=self.acknowledge_soon,
            open_producer=services.open_producer,
        )
        policy = options.dead_letter_policy
        self._retry: RetryLetters | None = None
        if options.retry_enabled and policy is not None:
            self._retry = RetryLetters(policy, subscription, services.open_producer, loop)
        self._acks = acks = Acknowledgements(
            loop,
            attachment.id,
            lambda: attachment.connection,
            options,
            timeout=services.operation_timeout,
            taken=taken,
        )
        self._queue = queue = ReceiverQueue(
            services.io,
            attachment,
            options,
            commands,
            partition=self._partition,
            taken=taken,
            acks=acks,
            memory=services.memory,
        )
        if isinstance(options.schema, ValueSchema):
            queue.use_values(Values(services, topic, options.schema, queue.wake))
        self._redelivery = redelivery = Redelivery(
            loop,
            attachment,
            options,
            commands,
            queue=queue,
            taken=taken,
            acks=acks,
        )
        self._positions = Positions(
            loop, attachment, options, commands, queue=queue, acks=acks, redelivery=redelivery
        )

        self._transactional: TransactionalAcknowledgements | None = None
        self.intervals = Intervals(loop, partial(_totals, queue, acks, redelivery, taken), ReceivedTotals())

    @property
    def stats(self) -> ConsumerStats:
        """The present statistics of this consumer."""
        return consumer_stats({self.topic(): self.intervals})

    @property
    def queued_bytes(self) -> int:
        """Size of the entries in the receiver queue, in bytes."""
        return self._queue.waiting_bytes

    def end_interval(self) -> None:
        log_received(self._attachment.topic, self._subscription, self._name, self.intervals)

    def __repr__(self) -> str:
        return f"Consumer({self.topic()!r}, {self._subscription!r}, name={self._name!r})"

    async def _next(self) -> Message:
        return await self.receive()

    def subscription_name(self) -> str:
        """The name of the subscription."""
        return self._subscription

    def consumer_name(self) -> str:
        """The name given by the program, or a random name."""
        return self._name

    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic is terminated and all its messages are acknowledged, so that no message
        follows.
        """
        return self._end_of_topic

    # Receiving

    @property
    def on_arrival(self) -> Callable[[], object] | None:
        """Callback that is called when entries have arrived, or when the consumer is closed or has failed;
        None: no callback. The callback must take all messages. If a callback is set and the receiver queue
        size is 0, :meth:`take` requests a message when no message is available.
        """
        return self._queue.on_arrival

    @on_arrival.setter
    def on_arrival(self, called: Callable[[], object] | None) -> None:
        self._queue.on_arrival = called

    async def receive(self, timeout_millis: float | None = None) -> Message:
        """Waits for the next message, and returns it.

        :param timeout_millis: maximum time to wait, in milliseconds; None: no limit
        :raises Timeout: no message arrived in time
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        end = None if timeout_millis is None else self._loop.time() + timeout_millis / 1000
        while True:
            try:
                message = self._queue.take()
            except PulsarException:
                self._queue.opened.failed += 1
                raise
            if message is not None:
                return message
            await self._queue.arrival(end)

    async def batch_receive(self, policy: BatchReceivePolicy | None = None) -> list[Message]:
        """Returns the next messages together; an empty list if no message arrives in time. The last message
        can exceed the size limit.

        :param policy: the limits; None: 10 MiB and 100 ms, whichever is reached first
        :raises InvalidConfiguration: the policy has no limit
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        return await receive_batch(self._loop, self, policy or BatchReceivePolicy())

    async def receive_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """Returns the next entry as stored: not decrypted, decompressed or split into messages. Do not mix
        with :meth:`receive`.

        :param timeout_millis: maximum time to wait, in milliseconds; None: no limit
        :raises Timeout: no entry arrived in time
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        end = None if timeout_millis is None else self._loop.time() + timeout_millis / 1000
        while True:
            entry = self._queue.take_entry()
            if entry is not None:
                return entry
            await self._queue.arrival(end)

    def take_entry(self) -> RawEntry | None:
        """Returns the next entry, or None if no entry has arrived; see :meth:`receive_entry`."""
        return self._queue.take_entry()

    def take(self) -> Message | None:
        """Returns the next message, or None if no message has arrived; see :meth:`receive`."""
        return self._queue.take()

    def take_run(self, into: deque[Message]) -> int | None:
        """Takes the messages that have already arrived, and appends them to ``into``; returns their number,
        or None if no message has arrived.
        """
        return self._queue.take_run(into)

    def take_back(self, message: Message) -> None:
        """Undoes :meth:`take`: puts the message at the front of the queue."""
        self._queue.take_back(message)

    def widen_queue(self, receiver_queue_size: int) -> None:
        """Enlarges the receiver queue to a number of messages; a smaller size has no effect."""
        self._queue.permits.widen(receiver_queue_size)

    def pause(self) -> None:
        super().pause()
        self._queue.permits.pause()

    def resume(self) -> None:
        super().resume()
        self._queue.resume()

    @property
    def current_receiver_queue_size(self) -> int:
        """The present size of the receiver queue, in messages; it varies with
        ``auto_scaled_receiver_queue``.
        """
        return self._queue.permits.queue_size

    # Events of the connection

    def messages(self, buffer: bytes, run: MessageRun) -> None:
        self._queue.run_arrived(buffer, run)

    def message(self, command: CommandMessage, entry: bytes, intact: bool) -> None:
        self._queue.entry_arrived(command, entry, intact)

    def active_changed(self, active: bool) -> None:
        """Called when the broker has chosen the active consumer of a Failover subscription."""
        notified = self._options.consumer_event_listener
        if active:
            notify("became_active", notified, lambda listener: listener.became_active(self, self._partition))
        else:
            notify(
                "became_inactive", notified, lambda listener: listener.became_inactive(self, self._partition)
            )

    def end_of_topic(self) -> None:
        self._end_of_topic = True
        notified = self._options.consumer_event_listener
        notify("reached_end_of_topic", notified, lambda listener: listener.reached_end_of_topic(self))

    # Acknowledging

    async def acknowledge(self, message: Acknowledged, *, transaction: AnyTransaction | None = None) -> None:
        """Acknowledges one message; with ``ack_receipt_enabled``, and in a transaction, waits for the
        broker's answer.

        :param message: a message, an entry, or its id; consumers of several topics require the message
        :param transaction: the transaction whose commit makes the acknowledgement effective; its abort makes
            the broker deliver the message again
        :raises TransactionConflict: the message is already acknowledged, or another transaction has
            acknowledged it
        :raises PulsarException: the broker refused, or the consumer is closed
        """
        self._attachment.check_open()
        message_id = meant_by(message)
        if transaction is not None:
            others = self._queue.chunks.acknowledged(message_id.position)
            await self._of_transactions().individual(transaction.begun(), message_id, others)
            return
        answer = self._acks.with_chunks(message_id, self._queue.chunks)
        if answer is not None:
            await answer

    def _of_transactions(self) -> TransactionalAcknowledgements:
        if self._transactional is None:
            # Imported late: most consumers use no transactions.
            from magnetar.client.transactional_acks import TransactionalAcknowledgements

            self._transactional = TransactionalAcknowledgements(
                self._loop,
                self._consumes,
                self._subscription,
                acks=self._acks,
                taken=self._taken,
                redeliver=self._redelivery.request_all,
            )
        return self._transactional

    def acknowledge_soon(self, message: Acknowledged) -> None:
        """Like :meth:`acknowledge`, without waiting for an answer."""
        self._attachment.check_open()
        self._acks.with_chunks(meant_by(message), self._queue.chunks)

    def acknowledge_all(self, messages: deque[Acknowledged]) -> None:
        """Like :meth:`acknowledge_soon`, for all messages of a queue, which is emptied; other threads may
        append to the queue meanwhile.

        :raises PulsarException: the consumer is closed or has failed permanently; the queue is then empty
        """
        try:
            self._attachment.check_open()
        except PulsarException:
            messages.clear()
            raise
        chunks = self._queue.chunks
        if chunks.are_delivered or self._taken.matters:
            while messages:
                self._acks.with_chunks(meant_by(messages.popleft()), chunks)
            return
        self._acks.runs(runs_of(messages, meant_by))

    @property
    def has_receipts(self) -> bool:
        """Whether acknowledging waits for the broker's answer."""
        return self._options.ack_receipt_enabled

    async def acknowledge_cumulative(
        self, message: Acknowledged, *, transaction: AnyTransaction | None = None
    ) -> None:
        """Acknowledges a message and all earlier messages of its topic; waits like :meth:`acknowledge`.

        :param message: a message, an entry, or its id; consumers of several topics require the message
        :param transaction: as for :meth:`acknowledge`
        :raises InvalidConfiguration: the subscription is Shared or KeyShared
        :raises PulsarException: the broker refused, or the consumer is closed
        """
        self._attachment.check_open()
        if self._options.is_shared:
            raise InvalidConfiguration(
                "cumulative acknowledgement is not possible on a Shared or "
                "Key_Shared subscription; use acknowledge"
            )
        message_id = meant_by(message)
        self._queue.chunks.acknowledged_until(message_id.position)
        if transaction is not None:
            self._acks.flush()
            await self._of_transactions().cumulative(transaction.begun(), message_id)
            return
        answer = self._acks.cumulative(message_id)
        if answer is not None:
            await answer

    def flush_acknowledgements(self) -> None:
        """Sends collected acknowledgements now."""
        self._acks.flush()

    # Redelivery

    async def reconsume_later(
        self, message: Message, delay_ms: float, properties: Mapping[str, str] | None = None
    ) -> None:
        """Publishes a message to the retry topic and acknowledges it; with ``retry_enabled`` only.

        After ``max_redeliver_count`` publications to the retry topic, the message goes to the dead letter
        topic instead. Only Shared and Key_Shared subscriptions respect the delay.

        :param message: a message of this consumer
        :param delay_ms: delay before the message is delivered again, in milliseconds; 0: no delay
        :param properties: properties to add to the properties of the message
        :raises InvalidConfiguration: the consumer has no retry topic
        :raises PulsarException: the message was not published, and is redelivered
        """
        self._attachment.check_open()
        if self._retry is None:
            raise InvalidConfiguration("reconsume_later requires the option retry_enabled")
        try:
            await self._retry.publish(message, max(delay_ms, 0), properties or {})
        except PulsarException:
            self.negative_acknowledge(message)
            raise
        await self.acknowledge(message)

    def negative_acknowledge(self, message: Acknowledged) -> None:
        """Requests redelivery of a message after ``negative_ack_redelivery_delay_ms``, or after the delay
        that ``negative_ack_redelivery_backoff`` returns. Of a batch, the broker redelivers all messages.

        :param message: a message, an entry, or its id; consumers of several topics require the message
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        self._attachment.check_open()
        self._redelivery.refused(meant_by(message).position, redeliveries_of(message))

    def redeliver_unacknowledged_messages(self) -> None:
        """Requests redelivery of all unacknowledged messages of this consumer."""
        self._redelivery.request_all()

    # Positions

    async def seek(self, target: SeekTarget) -> None:
        """Seeks: resets the subscription to another position, from which all its consumers receive after they
        have reconnected.

        If the caller is cancelled, the seek continues, and a later seek waits for its end.

        :param target: the id of a message, ``MessageId.earliest`` or ``MessageId.latest``, or a publish time
            in milliseconds since 1970; or a function that returns one of these for the name of each topic or
            partition. The message with the given id is delivered only with ``start_message_id_inclusive``
        :raises InvalidConfiguration: the id is not from a topic or partition of the consumer
        :raises PulsarException: the broker refused, or the consumer could not subscribe again in time
        """
        reached, self._end_of_topic = self._end_of_topic, False
        try:
            await self._positions.seek(target(self.topic()) if callable(target) else target)
        except PulsarException:
            self._end_of_topic = reached
            raise

    async def get_last_message_id(self) -> MessageId:
        """Returns the id of the topic's last message; its entry id is -1 if the topic is empty.

        :raises OperationNotSupported: the consumer has several topics or partitions
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return (await self._positions.last_message())[0]

    async def seek_to_last(self) -> None:
        """Resets the subscription to the topic's last message; no effect if the topic is empty.

        :raises PulsarException: the broker refused, or the consumer is not connected
        """
        last = await self.get_last_message_id()
        if last.entry_id() >= 0:
            await self.seek(last)

    async def has_message_available(self) -> bool:
        """Whether the topic has a message after the last received message.

        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return await self._positions.has_message_available()

    # Life

    async def _announce(self, connection: Connection) -> None:
        self._queue.forget()
        self._acks.forget()
        self._taken.forget()
        start, epoch = self._positions.subscribing(), self._queue.epoch
        await self._attachment.introduce(
            connection, lambda request_id: self._commands.subscribe(request_id, start, epoch)
        )

    async def unsubscribe(self) -> None:
        """Deletes the subscription, and closes the consumer.

        :raises PulsarException: the broker refused; the consumer stays open
        """
        connection = self._attachment.connected_to()
        await self.end_listening()
        self._acks.flush()
        await self._attachment.ask(connection, self._commands.unsubscribe)
        self._attachment.forget(connection)
        self._end()

    async def close(self) -> None:
        """Sends collected acknowledgements, and closes the consumer. Idempotent.

        :raises PulsarException: the broker refused
        """
        if self._attachment.closed:
            return
        await self.end_listening()
        connection = self._attachment.connection
        self._acks.close()
        self._end()
        try:
            await self._taken.close()
            if self._retry is not None:
                await self._retry.close()
        finally:
            await self._attachment.say_goodbye(connection)

    def _end(self) -> None:
        self._attachment.stop()
        self._redelivery.forget()
        self._positions.end()
        self._queue.end()


def _consumers(wire: Wire) -> dict[int, ConsumerEnd]:
    return wire.consumers


def _totals(
    queue: ReceiverQueue, acks: Acknowledgements, redelivery: Redelivery, taken: Taken
) -> ReceivedTotals:
    totals = queue.totals()
    totals.acks, totals.acks_failed = acks.sent, acks.failed
    totals.refused, totals.late, totals.dead = redelivery.refusals, redelivery.timed_out, taken.dead
    return totals
