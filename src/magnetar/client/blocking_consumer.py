"""Consumers, readers and message listeners of the blocking interface; consumers and readers fetch messages
from the loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from magnetar.client.batch_receiving import BatchReceivePolicy, receive_batch
from magnetar.client.consumer import Consumer as AsyncConsumer
from magnetar.client.exceptions import PulsarException
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.listening import MessageListener, ThreadedListener
from magnetar.client.message import Acknowledged, Message, RawEntry, SeekTarget
from magnetar.client.message_id import MessageId
from magnetar.client.partitioned import PartitionedConsumer
from magnetar.client.reader import Reader as AsyncReader
from magnetar.client.statements import Messages
from magnetar.client.stats import ConsumerStats
from magnetar.io.real.loop_thread import CallThread, LoopThread, Together
from magnetar.io.waiting import report

if TYPE_CHECKING:
    from magnetar.client.transactions import AnyTransaction

_AHEAD = 500
"""Number of fetched messages at which fetching stops; all messages of an entry are fetched together."""


class FetchedMessages:
    """Passes messages from a consumer on the loop's thread to receiving threads, and acknowledged ids back to
    the loop's thread. Messages and ids are passed in groups, because each change of threads is expensive.
    """

    def __init__(
        self, consumer: AsyncConsumer | PartitionedConsumer | TopicsConsumer, thread: LoopThread
    ) -> None:
        self._consumer = consumer
        self._thread = thread
        self.messages: deque[Message] = deque()
        self._fetching = 0
        self.acknowledge = Together(thread.post, self._acknowledge).add
        """Acknowledges one message without waiting for an answer; one call on the loop's thread handles all
        acknowledgements that were collected meanwhile.
        """

    def next(self) -> Message | None:
        """Returns the next fetched message, or None if all were returned."""
        try:
            return self.messages.popleft()
        except IndexError:
            return None

    async def fetch(self, timeout_millis: float | None) -> None:
        """Fetches at least one message, unless fetched messages remain; runs on the loop.

        :raises Timeout: no message arrived in time
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        taken = self.messages
        if taken:
            # Another thread has fetched messages since this one checked.
            return
        self._fetching += 1
        try:
            taken.append(await self._consumer.receive(timeout_millis))
        finally:
            self._fetching -= 1
        count = 1
        # A thread that waits for the next message would not see messages that are fetched meanwhile.
        while count < _AHEAD and not self._fetching:
            more = self._consumer.take_run(taken)
            if more is None:
                return
            count += more

    def _acknowledge(self, messages: deque[Acknowledged]) -> None:
        while messages:
            try:
                self._consumer.acknowledge_all(messages)
            except PulsarException as error:
                report(self._thread.loop, self._consumer.acknowledge_all, error)

    def redeliver(self) -> None:
        """Requests redelivery of all unacknowledged messages; called on the loop."""
        self.messages.clear()
        self._consumer.redeliver_unacknowledged_messages()

    async def seek(self, target: SeekTarget) -> None:
        """Drops the fetched messages and seeks; runs on the loop.

        :raises PulsarException: as :meth:`Consumer.seek`
        """
        await self._consumer.seek(target)
        self.messages.clear()

    async def close(self) -> None:
        """Closes the consumer; runs on the loop.

        :raises PulsarException: the broker refused
        """
        self.messages.clear()
        await self._consumer.close()


class Consumer(Messages):
    """A consumer; see :meth:`Client.subscribe`.

    Several hundred messages are fetched from the loop's thread at once; :meth:`seek` and
    :meth:`redeliver_unacknowledged_messages` drop fetched messages that the program has not received.
    """

    def __init__(
        self,
        consumer: AsyncConsumer | PartitionedConsumer | TopicsConsumer,
        thread: LoopThread,
        fetched: FetchedMessages | None = None,
    ) -> None:
        """:param fetched: fetched messages that other objects share with this object; None: this object has
        its own
        """
        self._consumer = consumer
        self._thread = thread
        self._fetched = fetched or FetchedMessages(consumer, thread)
        self._taken = self._fetched.messages

    def __repr__(self) -> str:
        return repr(self._consumer)

    def _next(self) -> Message:
        return self.receive()

    def topic(self) -> str:
        """The full name of the topic, or the pattern; for a list, a descriptive name for errors and logs."""
        return self._consumer.topic()

    def subscription_name(self) -> str:
        """The name of the subscription."""
        return self._consumer.subscription_name()

    def consumer_name(self) -> str:
        """The name given by the program, or a random name."""
        return self._consumer.consumer_name()

    def is_connected(self) -> bool:
        """Whether a connection to the broker exists now; a lost connection is replaced automatically."""
        return self._consumer.is_connected()

    @property
    def stats(self) -> ConsumerStats:
        """The present statistics of this consumer. A message counts as received when the blocking interface
        has fetched it, even if the program has not received it yet.
        """
        return self._thread.run(self._stats())

    async def _stats(self) -> ConsumerStats:
        return self._consumer.stats

    def pause(self) -> None:
        """Stops requesting messages and passing them to the listener, until :meth:`resume` is called. The
        program can still receive messages that have arrived.
        """
        self._thread.run(self._pause())

    async def _pause(self) -> None:
        self._consumer.pause()

    def resume(self) -> None:
        """Continues after :meth:`pause`."""
        self._thread.run(self._resume())

    async def _resume(self) -> None:
        self._consumer.resume()

    @property
    def current_receiver_queue_size(self) -> int:
        """The present size of the receiver queue, in messages; it varies with
        ``auto_scaled_receiver_queue``.
        """
        return self._consumer.current_receiver_queue_size

    def receive(self, timeout_millis: float | None = None) -> Message:
        """Waits for the next message, and returns it.

        :param timeout_millis: maximum time to wait, in milliseconds; None: no limit
        :raises Timeout: no message arrived in time
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        while True:
            try:
                return self._taken.popleft()
            except IndexError:
                # Another thread may receive the message that this one fetched: then fetch again.
                self._thread.run(self._fetched.fetch(timeout_millis))

    def batch_receive(self, policy: BatchReceivePolicy | None = None) -> list[Message]:
        """Returns the next messages together; an empty list if no message arrives in time. The last message
        can exceed the size limit.

        :param policy: the limits; None: 10 MiB and 100 ms, whichever is reached first
        :raises InvalidConfiguration: the policy has no limit
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        wanted = policy or BatchReceivePolicy()
        return self._thread.run(receive_batch(self._thread.loop, self._consumer, wanted, self._taken))

    def receive_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """Returns the next entry as stored: not decrypted, decompressed or split into messages. Do not mix
        with :meth:`receive`.

        :param timeout_millis: maximum time to wait, in milliseconds; None: no limit
        :raises Timeout: no entry arrived in time
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        return self._thread.run(self._consumer.receive_entry(timeout_millis))

    def acknowledge(self, message: Acknowledged, *, transaction: AnyTransaction | None = None) -> None:
        """Acknowledges one message; with ``ack_receipt_enabled``, and in a transaction, waits for the
        broker's answer.

        :param message: a message, an entry, or its id; consumers of several topics require the message
        :param transaction: the transaction whose commit makes the acknowledgement effective; its abort makes
            the broker deliver the message again
        :raises TransactionConflict: the message is already acknowledged, or another transaction has
            acknowledged it
        :raises PulsarException: the broker refused, or the consumer is closed
        """
        consumer = self._consumer
        if transaction is not None or consumer.has_receipts:
            self._thread.run(consumer.acknowledge(message, transaction=transaction))
        else:
            consumer.check_open()
            self._fetched.acknowledge(message)

    def acknowledge_cumulative(
        self, message: Acknowledged, *, transaction: AnyTransaction | None = None
    ) -> None:
        """Acknowledges a message and all earlier messages of its topic; waits like :meth:`acknowledge`.

        :param message: a message, an entry, or its id; consumers of several topics require the message
        :param transaction: as for :meth:`acknowledge`
        :raises InvalidConfiguration: the subscription is Shared or KeyShared
        :raises PulsarException: the broker refused, or the consumer is closed
        """
        self._thread.run(self._consumer.acknowledge_cumulative(message, transaction=transaction))

    def reconsume_later(
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
        self._thread.run(self._consumer.reconsume_later(message, delay_ms, properties))

    def negative_acknowledge(self, message: Acknowledged) -> None:
        """Requests redelivery of a message after ``negative_ack_redelivery_delay_ms``, or after the delay
        that ``negative_ack_redelivery_backoff`` returns. Of a batch, the broker redelivers all messages.

        :param message: a message, an entry, or its id; consumers of several topics require the message
        :raises AlreadyClosed: the client is closed
        """
        self._thread.post(self._consumer.negative_acknowledge, message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Requests redelivery of all unacknowledged messages of this consumer.

        :raises AlreadyClosed: the client is closed
        """
        self._thread.run(self._redeliver())

    async def _redeliver(self) -> None:
        self._fetched.redeliver()

    def seek(self, messageid: SeekTarget) -> None:
        """Seeks: resets the subscription to another position, from which all its consumers receive after they
        have reconnected.

        :param messageid: the id of a message, ``MessageId.earliest`` or ``MessageId.latest``, or a publish
            time in milliseconds since 1970; or a function that returns one of these for the name of each
            topic or partition, called in the client's thread. The message with the given id is delivered only
            with ``start_message_id_inclusive``
        :raises InvalidConfiguration: the id is not from a topic or partition of the consumer
        :raises PulsarException: the broker refused, or the consumer is not connected
        """
        self._thread.run(self._fetched.seek(messageid))

    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic is terminated and all its messages are acknowledged, so that no message
        follows.
        """
        return not self._taken and self._consumer.has_reached_end_of_topic()

    def get_last_message_id(self) -> MessageId:
        """Returns the id of the topic's last message; its entry id is -1 if the topic is empty.

        :raises OperationNotSupported: the consumer has several topics or partitions
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._thread.run(self._consumer.get_last_message_id())

    def unsubscribe(self) -> None:
        """Deletes the subscription, and closes the consumer.

        :raises PulsarException: the broker refused; the consumer stays open
        """
        self._thread.run(self._consumer.unsubscribe())

    def close(self) -> None:
        """Sends collected acknowledgements, and closes the consumer. Idempotent.

        :raises PulsarException: the broker refused
        """
        self._thread.run(self._fetched.close())


class Reader(Messages):
    """A reader; see :meth:`Client.create_reader`.

    Several hundred messages are fetched from the loop's thread at once; :meth:`seek` drops fetched messages
    that the program has not read.
    """

    def __init__(self, reader: AsyncReader, thread: LoopThread) -> None:
        self._reader = reader
        self._thread = thread
        self._fetched = FetchedMessages(reader.consumer, thread)
        self._taken = self._fetched.messages

    def __repr__(self) -> str:
        return repr(self._reader)

    def _next(self) -> Message:
        return self.read_next()

    def topic(self) -> str:
        """The full name of the topic; for several topics, a descriptive name for errors and logs."""
        return self._reader.topic()

    def is_connected(self) -> bool:
        """Whether a connection to the broker exists now; a lost connection is replaced automatically."""
        return self._reader.is_connected()

    @property
    def stats(self) -> ConsumerStats:
        """The present statistics of this reader. A message counts as received when the blocking interface has
        fetched it, even if the program has not read it yet.
        """
        return self._thread.run(self._stats())

    async def _stats(self) -> ConsumerStats:
        return self._reader.stats

    def read_next(self, timeout_millis: float | None = None) -> Message:
        """Waits for the next message, and returns it.

        :param timeout_millis: maximum time to wait, in milliseconds; None: no limit
        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed or has failed permanently
        """
        while True:
            try:
                return self._taken.popleft()
            except IndexError:
                # Another thread may read the message that this one fetched: then fetch again.
                self._thread.run(self._fetched.fetch(timeout_millis))

    def read_next_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """Returns the next entry as stored: not decrypted, decompressed or split into messages. Do not mix
        with :meth:`read_next`.

        :param timeout_millis: maximum time to wait, in milliseconds; None: no limit
        :raises Timeout: no entry arrived in time
        :raises PulsarException: the reader is closed or has failed permanently
        """
        return self._thread.run(self._reader.read_next_entry(timeout_millis))

    def read_entries(self, limit: int, timeout_millis: float | None = None) -> list[RawEntry]:
        """Waits for the next entry; returns it together with the following entries that have already arrived.

        :param limit: maximum number of entries to return; at least 1
        :param timeout_millis: maximum time to wait for the first entry, in milliseconds; None: no limit
        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed or has failed permanently
        """
        return self._thread.run(self._reader.read_entries(limit, timeout_millis))

    def widen_queue(self, receiver_queue_size: int) -> None:
        """Enlarges the receiver queue to a number of messages; a smaller size has no effect."""
        self._thread.post(self._reader.widen_queue, receiver_queue_size)

    def has_message_available(self) -> bool:
        """Whether the topic has a message after the last message that was read.

        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return bool(self._taken) or self._thread.run(self._reader.has_message_available())

    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic is terminated and all its messages were read, so that no message follows. The
        broker reports this shortly after the reader has read the last message.
        """
        return not self._taken and self._reader.has_reached_end_of_topic()

    def get_last_message_id(self) -> MessageId:
        """Returns the id of the topic's last message; its entry id is -1 if the topic is empty.

        :raises OperationNotSupported: the reader has several topics or partitions
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._thread.run(self._reader.get_last_message_id())

    def seek(self, messageid: SeekTarget) -> None:
        """Seeks: continues reading at another position.

        :param messageid: the id of a message, ``MessageId.earliest`` or ``MessageId.latest``, or a publish
            time in milliseconds since 1970; or a function that returns one of these for the name of each
            topic or partition, called in the client's thread
        :raises PulsarException: the broker refused, or the reader is not connected
        """
        self._thread.run(self._fetched.seek(messageid))

    def close(self) -> None:
        """Closes the reader. Idempotent.

        :raises PulsarException: the broker refused
        """
        self._thread.run(self._fetched.close())


class ListenerOnThreads(ThreadedListener):
    """Calls a listener with the blocking consumer or reader, on threads.

    There is one thread for each call that may run at the same time.
    """

    def __init__(self, listener: MessageListener, thread: LoopThread) -> None:
        self._listener = listener
        self._thread = thread
        self._idle: list[CallThread] = []
        self._source: Consumer | Reader | None = None
        self._ended = False

    async def __call__(
        self, source: AsyncConsumer | PartitionedConsumer | TopicsConsumer | AsyncReader, message: Message
    ) -> None:
        if self._source is None:
            self._source = (
                Reader(source, self._thread)
                if isinstance(source, AsyncReader)
                else Consumer(source, self._thread)
            )
        thread = self._idle.pop() if self._idle else CallThread("listener")
        try:
            await thread.call(self._thread.loop, partial(self._listener, self._source, message))
        finally:
            if self._ended:
                thread.end()
            else:
                self._idle.append(thread)

    def end(self) -> None:
        self._ended = True
        for thread in self._idle:
            thread.end()
