"""A reader: a consumer with a non-durable subscription, from a chosen position."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from magnetar.client.attachment import Services
from magnetar.client.consumer import Consumer
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.exceptions import InvalidConfiguration
from magnetar.client.gathered import Find, TopicsConsumer
from magnetar.client.interceptors import BeforeRead, ReaderInterceptor, consumer_chain
from magnetar.client.listening import MessageListener, listen
from magnetar.client.message import Message, RawEntry, SeekTarget
from magnetar.client.message_id import MessageId
from magnetar.client.options import ReaderOptions
from magnetar.client.partitioned import PartitionedConsumer
from magnetar.client.schema import ProducerSchema, ValueSchema
from magnetar.client.statements import AsyncMessages
from magnetar.client.stats import ConsumerStats
from magnetar.client.watched_consumer import new_consumer

if TYPE_CHECKING:
    from magnetar.client.encryption.key_readers import KeyReader


class Reader(AsyncMessages):
    """A reader; see ``Client.create_reader``."""

    def __init__(
        self,
        services: Services,
        topic: str,
        start_message_id: MessageId | timedelta,
        *,
        start_message_id_inclusive: bool = False,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
        crypto_key_reader: KeyReader | None = None,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        expire_time_of_incomplete_chunked_message_ms: float = 60_000,
        subscription_name: str | None = None,
        schema: ProducerSchema | ValueSchema | None = None,
        message_listener: MessageListener | None = None,
        interceptors: Sequence[ReaderInterceptor] = (),
        key_hash_ranges: Sequence[tuple[int, int]] = (),
        partitions: int = 0,
        find: Find | None = None,
    ) -> None:
        """:param start_message_id_inclusive: whether that message is itself read

        :param reader_name: the name that statistics show; None: the broker chooses one
        :param subscription_role_prefix: the beginning of the name of a random subscription
        :param subscription_name: the name of the reader's non-durable subscription; None: a random one
        :param message_listener: called with the reader and each message, instead of ``read_next``: in order,
            the next message when the call has ended. A coroutine is awaited; the blocking interface calls it
            in a thread of the reader. What it raises is logged. Closing waits for the call
        :param interceptors: called for each message before the program reads it
        :param key_hash_ranges: reads only messages whose keys have a hash (0 to 65535) in one of these
            ranges, first and last; of a batch, the first key decides. Empty: all messages
        :param partitions: number of the topic's partitions; 0: it is not partitioned. The start position of a
            partitioned topic is one of its ends, or a time
        :param find: returns the topics and partitions of a reader of several topics; None: there is one

        The others are those of :class:`ConsumerOptions`.

        :raises InvalidConfiguration: the start position is a message of a partitioned topic or of several
            topics, or is not in the past
        """
        prefix = f"{subscription_role_prefix}-" if subscription_role_prefix else ""
        self._to_last = start_message_id_inclusive and start_message_id == MessageId.latest
        name = subscription_name or f"{prefix}reader-{services.io.randomness.token(5).hex()}"
        self._services = services
        self._options = options = ReaderOptions(
            receiver_queue_size=receiver_queue_size,
            consumer_name=reader_name,
            start_message_id=start_message_id,
            start_message_id_inclusive=start_message_id_inclusive,
            is_read_compacted=is_read_compacted,
            crypto_failure_action=crypto_failure_action,
            crypto_key_reader=crypto_key_reader,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            expire_time_of_incomplete_chunked_message_ms=expire_time_of_incomplete_chunked_message_ms,
            durable=False,
            schema=schema,
            message_listener=message_listener,
            interceptors=(
                [consumer_chain([BeforeRead(self, each) for each in interceptors])] if interceptors else ()
            ),
            key_shared_ranges=key_hash_ranges,
        )
        is_message = start_message_id not in (MessageId.earliest, MessageId.latest)
        if (partitions or find is not None) and is_message and isinstance(start_message_id, MessageId):
            raise InvalidConfiguration(
                f"a reader of all partitions of {topic} starts at MessageId.earliest, MessageId.latest or a "
                f"timedelta, not {start_message_id}; create a reader of one partition, or seek"
            )
        self._consumer = (
            TopicsConsumer(services, find, name, options, services.partitions_seconds, come_and_go=False)
            if find is not None
            else PartitionedConsumer(services, topic, name, partitions, options)
            if partitions
            else new_consumer(services, topic, name, options)
        )

    async def open(self) -> None:
        """Opens the reader, and passes its messages to the listener, if it has one.

        :raises PulsarException: the reader cannot be opened
        """
        services = self._services
        await self._consumer.open()
        if self._to_last:
            await services.opened(self._consumer.seek_to_last(), self.close)
        listen(services.io.loop, self._consumer, self._options, services.listenings, reader=self)

    @property
    def consumer(self) -> Consumer | PartitionedConsumer | TopicsConsumer:
        """The consumer of the reader's subscription."""
        return self._consumer

    def __repr__(self) -> str:
        return f"Reader({self.topic()!r})"

    async def _next(self) -> Message:
        return await self.read_next()

    def topic(self) -> str:
        """The full name of the topic; of several topics, a name for messages and errors."""
        return self._consumer.topic()

    def is_connected(self) -> bool:
        """Whether there is a connection to the broker now; a lost connection is replaced automatically."""
        return self._consumer.is_connected()

    @property
    def stats(self) -> ConsumerStats:
        """Statistics of this reader, as of now."""
        return self._consumer.stats

    async def read_next(self, timeout_millis: float | None = None) -> Message:
        """Returns the next message.

        :param timeout_millis: how long to wait, in milliseconds; None: until one arrives
        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed, or has failed for good
        """
        return await self._consumer.receive(timeout_millis)

    async def read_next_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """Returns the next entry as stored: not decrypted, uncompressed or split. Do not mix with
        :meth:`read_next`.

        :param timeout_millis: how long to wait, in milliseconds; None: until one arrives
        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed, or has failed for good
        """
        return await self._consumer.receive_entry(timeout_millis)

    async def read_entries(self, limit: int, timeout_millis: float | None = None) -> list[RawEntry]:
        """Returns the next entry, and following ones that have arrived already.

        :param limit: the most entries to return; at least 1
        :param timeout_millis: how long to wait for the first one, in milliseconds; None: until it arrives
        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed, or has failed for good
        """
        entries = [await self._consumer.receive_entry(timeout_millis)]
        while len(entries) < limit:
            entry = self._consumer.take_entry()
            if entry is None:
                break
            entries.append(entry)
        return entries

    def widen_queue(self, receiver_queue_size: int) -> None:
        """Enlarges the receiver queue; a smaller size has no effect."""
        self._consumer.widen_queue(receiver_queue_size)

    async def has_message_available(self) -> bool:
        """Whether the topic has a message after the last read one.

        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return await self._consumer.has_message_available()

    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic is terminated and all its messages were read, so that none follows. The broker
        tells the reader a moment after it has read the last one."""
        return self._consumer.has_reached_end_of_topic()

    async def get_last_message_id(self) -> MessageId:
        """Returns the id of the topic's last message; its entry id is -1 if the topic is empty.

        :raises OperationNotSupported: the reader has several topics or partitions
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return await self._consumer.get_last_message_id()

    async def seek(self, messageid: SeekTarget) -> None:
        """Continues elsewhere.

        :param messageid: the id of a message, ``MessageId.earliest`` or ``MessageId.latest``, or a publish
            time in milliseconds since 1970; or a function that returns one of these for the name of each
            topic or partition
        :raises PulsarException: the broker refused, or the reader is not connected
        """
        await self._consumer.seek(messageid)

    async def close(self) -> None:
        """Closes the reader. Idempotent.

        :raises PulsarException: the broker refused
        """
        await self._consumer.close()
