"""A reader: a consumer with a non-durable subscription, from a chosen position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.client.attachment import Services
from magnetar.client.consumer import Consumer
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.exceptions import InvalidConfiguration, PulsarException
from magnetar.client.message import Message, RawEntry
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.partitioned import PartitionedConsumer
from magnetar.client.schema import ProducerSchema
from magnetar.client.statements import AsyncMessages

if TYPE_CHECKING:
    from magnetar.client.encryption.key_readers import KeyReader


class Reader(AsyncMessages):
    """A reader; see ``Client.create_reader``."""

    def __init__(
        self,
        services: Services,
        topic: str,
        start_message_id: MessageId,
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
        schema: ProducerSchema | None = None,
        partitions: int = 0,
    ) -> None:
        """:param start_message_id_inclusive: whether that message is itself read

        :param reader_name: the name that statistics show; None: the broker chooses one
        :param subscription_role_prefix: the beginning of the name of a random subscription
        :param subscription_name: the name of the reader's non-durable subscription; None: a random one
        :param partitions: number of the topic's partitions; 0: it is not partitioned. The start position of a
            partitioned topic is one of its ends

        The others are those of :class:`ConsumerOptions`.

        :raises InvalidConfiguration: the start position is a message of a partitioned topic
        """
        prefix = f"{subscription_role_prefix}-" if subscription_role_prefix else ""
        self._to_last = start_message_id_inclusive and start_message_id == MessageId.latest
        name = subscription_name or f"{prefix}reader-{services.io.randomness.token(5).hex()}"
        options = ConsumerOptions(
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
        )
        if partitions and start_message_id not in (MessageId.earliest, MessageId.latest):
            raise InvalidConfiguration(
                f"a reader of all partitions of {topic} starts at MessageId.earliest or MessageId.latest, "
                f"not {start_message_id}; create a reader of one partition, or seek to a time"
            )
        self._consumer = (
            PartitionedConsumer(services, topic, name, partitions, options)
            if partitions
            else Consumer(services, topic, name, options)
        )

    async def open(self) -> None:
        """Opens the reader.

        :raises PulsarException: the reader cannot be opened
        """
        await self._consumer.open()
        if self._to_last:
            try:
                await self._consumer.seek_to_last()
            except PulsarException:
                await self.close()
                raise

    @property
    def consumer(self) -> Consumer | PartitionedConsumer:
        """The consumer of the reader's subscription."""
        return self._consumer

    def __repr__(self) -> str:
        return f"Reader({self.topic()!r})"

    async def _next(self) -> Message:
        return await self.read_next()

    def topic(self) -> str:
        """The full name of the topic."""
        return self._consumer.topic()

    def is_connected(self) -> bool:
        """Whether it has a connection to the broker now; it reconnects by itself."""
        return self._consumer.is_connected()

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

    async def get_last_message_id(self) -> MessageId:
        """Returns the id of the topic's last message; its entry id is -1 if the topic is empty.

        :raises OperationNotSupported: the reader has several topics or partitions
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return await self._consumer.get_last_message_id()

    async def seek(self, messageid: MessageId | int) -> None:
        """Continues elsewhere.

        :param messageid: the id of a message, ``MessageId.earliest`` or ``MessageId.latest``, or a publish
            time in milliseconds since 1970
        :raises PulsarException: the broker refused, or the reader is not connected
        """
        await self._consumer.seek(messageid)

    async def close(self) -> None:
        """Closes the reader. Idempotent.

        :raises PulsarException: the broker refused
        """
        await self._consumer.close()
