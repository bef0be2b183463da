"""A reader: a consumer without a durable subscription, from a place of its choice on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.client.attachment import Services
from magnetar.client.consumer import Consumer
from magnetar.client.consumer_options import ConsumerOptions
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.exceptions import PulsarException
from magnetar.client.message import Message, RawEntry
from magnetar.client.message_id import MessageId

if TYPE_CHECKING:
    from magnetar.client.encryption.key_readers import KeyReader


class Reader:
    """Made by ``Client.create_reader``."""

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
    ) -> None:
        """:param start_message_id_inclusive: whether that message is read itself

        The last five are those of :class:`ConsumerOptions`.
        """
        prefix = f"{subscription_role_prefix}-" if subscription_role_prefix else ""
        self._to_last = start_message_id_inclusive and start_message_id == MessageId.latest
        self._consumer = Consumer(
            services,
            topic,
            f"{prefix}reader-{services.io.randomness.token(5).hex()}",
            ConsumerOptions(
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
            ),
        )

    async def open(self) -> None:
        """:raises PulsarException: why it cannot be"""
        await self._consumer.open()
        if self._to_last:
            try:
                last = await self._consumer.get_last_message_id()
                if last.entry_id() >= 0:
                    await self._consumer.seek(last)
            except PulsarException:
                await self.close()
                raise

    def topic(self) -> str:
        return self._consumer.topic()

    def is_connected(self) -> bool:
        return self._consumer.is_connected()

    async def read_next(self, timeout_millis: float | None = None) -> Message:
        """The next message.

        :raises Timeout: none came in time
        :raises PulsarException: the reader is closed, or has failed for good
        """
        return await self._consumer.receive(timeout_millis)

    async def read_next_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """The next entry as it is stored; do not mix with :meth:`read_next`.

        :raises Timeout: none came in time
        :raises PulsarException: the reader is closed, or has failed for good
        """
        return await self._consumer.receive_entry(timeout_millis)

    async def read_entries(self, limit: int, timeout_millis: float | None = None) -> list[RawEntry]:
        """The next entry, and those behind it that are here already; at most ``limit``.

        :raises Timeout: none came in time
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
        """Asks for so many messages ahead from now on; never for fewer than before."""
        self._consumer.widen_queue(receiver_queue_size)

    async def has_message_available(self) -> bool:
        """Whether there is a message behind the one that was read last."""
        return await self._consumer.has_message_available()

    async def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message; entry id -1 when it has none."""
        return await self._consumer.get_last_message_id()

    async def seek(self, messageid: MessageId | int) -> None:
        """Goes on at a message, or at a publish time in ms since 1970."""
        await self._consumer.seek(messageid)

    async def close(self) -> None:
        await self._consumer.close()
