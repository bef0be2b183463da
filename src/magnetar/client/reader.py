"""A reader: a consumer with a non-durable subscription that starts at a chosen position."""

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
        """:param start_message_id_inclusive: whether the reader also reads the start message

        :param reader_name: the name that the topic's statistics show; None: a random name
        :param subscription_role_prefix: prefix of the subscription name if it is random
        :param subscription_name: the name of the reader's non-durable subscription; None: a random name
        :param message_listener: a function that the client calls with the reader and each message, in order
            and one call at a time; the program then does not call ``read_next``. In the asyncio interface, it
            may be a coroutine function; the blocking interface calls it in a thread. Exceptions are logged.
            Closing waits for the call in progress
        :param interceptors: interceptors, called for each message before the program reads it
        :param key_hash_ranges: hash ranges (first and last, 0 to 65535): only messages whose keys have hashes
            in these ranges are read; for a batch, the key of its first message counts. Empty: all messages
        :param partitions: number of the topic's partitions; 0: the topic is not partitioned. A partitioned
            topic requires ``MessageId.earliest``, ``MessageId.latest`` or a time as the start position
        :param find: returns the topics and partitions of a reader of several topics; None: there is one topic

        The other parameters are those of :class:`ConsumerOptions`.

        :raises InvalidConfiguration: the start position is the id of a message although there are several
            partitions or topics, or it is a time that is not in the past
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
            TopicsConsumer(services, find, name, options, services.partitions_seconds)
            if find is not None
            else PartitionedConsumer(services, topic, name, partitions, options)
            if partitions
            else new_consumer(services, topic, name, options)
        )

    async def open(self) -> None:
        """Opens the reader, and passes its messages to the listener, if any.

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
        """The full name of the topic; for several topics, a descriptive name for errors and logs."""
        return self._consumer.topic()

    def is_connected(self) -> bool:
        """Whether a connection to the broker exists now; a lost connection is replaced automatically."""
        return self._consumer.is_connected()

    @property
    def stats(self) -> ConsumerStats:
        """The present statistics of this reader."""
        return self._consumer.stats

    async def read_next(self, timeout_millis: float | None = None) -> Message:
        """Waits for the next message, and returns it.

        :param timeout_millis: maximum time to wait, in milliseconds; None: no limit
        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed or has failed permanently
        """
        return await self._consumer.receive(timeout_millis)

    async def read_next_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """Returns the next entry as stored: not decrypted, decompressed or split into messages. Do not mix
        with :meth:`read_next`.

        :param timeout_millis: maximum time to wait, in milliseconds; None: no limit
        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed or has failed permanently
        """
        return await self._consumer.receive_entry(timeout_millis)

    async def read_entries(self, limit: int, timeout_millis: float | None = None) -> list[RawEntry]:
        """Waits for the next entry; returns it together with the following entries that have already arrived.

        :param limit: maximum number of entries to return; at least 1
        :param timeout_millis: maximum time to wait for the first entry, in milliseconds; None: no limit
        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed or has failed permanently
        """
        entries = [await self._consumer.receive_entry(timeout_millis)]
        while len(entries) < limit:
            entry = self._consumer.take_entry()
            if entry is None:
                break
            entries.append(entry)
        return entries

    def widen_queue(self, receiver_queue_size: int) -> None:
        """Enlarges the receiver queue to a number of messages; a smaller size has no effect."""
        self._consumer.widen_queue(receiver_queue_size)

    async def has_message_available(self) -> bool:
        """Whether the topic has a message after the last message that was read.

        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return await self._consumer.has_message_available()

    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic is terminated and all its messages were read, so that no message follows. The
        broker reports this shortly after the reader has read the last message.
        """
        return self._consumer.has_reached_end_of_topic()

    async def get_last_message_id(self) -> MessageId:
        """Returns the id of the topic's last message; its entry id is -1 if the topic is empty.

        :raises OperationNotSupported: the reader has several topics or partitions
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return await self._consumer.get_last_message_id()

    async def seek(self, messageid: SeekTarget) -> None:
        """Seeks: continues reading at another position.

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
