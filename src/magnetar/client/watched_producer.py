"""Producers with interceptors, and producers of clients with a memory limit."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice, takewhile

from magnetar.client.attachment import Services
from magnetar.client.exceptions import InvalidConfiguration, MemoryBufferIsFull, PulsarException
from magnetar.client.interceptors import OutgoingMessage, producer_chain
from magnetar.client.message_id import MessageId
from magnetar.client.options import ProducerOptions
from magnetar.client.outgoing_message import Done, MessageOptions, Pending, PreparedEntry
from magnetar.client.producer import Producer
from magnetar.protocol.hot_client_decode import ReceiptRun

log = logging.getLogger(__name__)


def new_producer(services: Services, topic: str, options: ProducerOptions) -> Producer:
    """Creates a producer on a topic or a partition, without opening it.

    :raises InvalidConfiguration: an option is out of range
    :raises CryptoError: the encryption key cannot be read, or is not a valid key
    """
    if options.interceptors:
        kind = InterceptedProducer if services.memory is None else LimitedInterceptedProducer
        return kind(services, topic, options)
    return (Producer if services.memory is None else LimitedProducer)(services, topic, options)


class LimitedProducer(Producer):
    """A producer of a client with a memory limit."""

    def __init__(self, services: Services, topic: str, options: ProducerOptions) -> None:
        super().__init__(services, topic, options)
        if services.memory is None:
            raise InvalidConfiguration("the client has no memory limit")
        self._memory = services.memory

    @property
    def _is_full(self) -> bool:
        if super()._is_full:
            return True
        attachment = self._attachment
        # Messages of a producer that has ended wait no longer: they get its error.
        return attachment.failure is None and not attachment.closed and not self._memory.is_free

    def enqueue(
        self, content: bytes, done: Done, sequence_id: int | None, options: MessageOptions | None
    ) -> None:
        size = self._taken(len(content))
        try:
            super().enqueue(content, self._memory.until_done(size, done), sequence_id, options)
        except BaseException:
            self._memory.give(size)
            raise

    def enqueue_prepared(self, entry: PreparedEntry, done: Done) -> None:
        size = self._taken(len(entry.payload))
        try:
            super().enqueue_prepared(entry, self._memory.until_done(size, done))
        except BaseException:
            self._memory.give(size)
            raise

    def _taken(self, size: int) -> int:
        """Counts a message against the memory limit; returns the counted bytes.

        :raises PulsarException: the producer is closed or has failed permanently, or the memory limit is
            reached
        """
        self._attachment.check_open()
        memory = self._memory
        if not memory.take(size):
            self._sent.failed += 1
            raise MemoryBufferIsFull(
                f"{self._attachment.topic}: messages that wait for receipts, or in receiver queues, use "
                f"{memory.used} of the {memory.limit} bytes of memory_limit_bytes; wait for receipts, or use "
                "block_if_queue_full"
            )
        return size

    def enqueue_or_wait(
        self, content: bytes, done: Done, sequence_id: int | None, options: MessageOptions | None
    ) -> None:
        super().enqueue_or_wait(content, done, sequence_id, options)
        self._wait_if_necessary()

    def _wait_if_necessary(self) -> None:
        # With too many pending messages it waits for receipts first.
        if self._queued and not super()._is_full:
            self._memory.wait(self._turn)

    def _turn(self) -> None:
        """Sends one message that waits for memory."""
        if self._queued and not super()._is_full:
            self._send_queued()
        self._wait_if_necessary()

    def _moved_on(self) -> None:
        super()._moved_on()
        self._wait_if_necessary()

    def _fail_pending(self, error: PulsarException) -> None:
        super()._fail_pending(error)
        if not self._queued:
            self._memory.forget(self._turn)


class InterceptedProducer(Producer):
    """A producer with interceptors."""

    def __init__(self, services: Services, topic: str, options: ProducerOptions) -> None:
        super().__init__(services, topic, options)
        self._chain = producer_chain(options.interceptors)

    async def open(self) -> None:
        await super().open()
        self._chain.begin()

    def enqueue(
        self, content: bytes, done: Done, sequence_id: int | None, options: MessageOptions | None
    ) -> None:
        message, interceptors = self._chain.intercepted(self, OutgoingMessage(content, options))
        if options is not None:
            # Another message of an interceptor is the same message to the transaction.
            message.options.transaction = options.transaction

        def tell(message_id: MessageId | None, error: PulsarException | None) -> None:
            for interceptor in interceptors:
                try:
                    interceptor.on_send_acknowledgement(self, message, message_id, error)
                except Exception:
                    log.exception("on_send_acknowledgement of %r failed", interceptor)

        def told(message_id: MessageId | None, error: PulsarException | None) -> None:
            tell(message_id, error)
            done(message_id, error)

        try:
            super().enqueue(message.content, told, sequence_id, message.options)
        except PulsarException as error:
            tell(None, error)
            raise

    def receipts(self, run: ReceiptRun) -> None:
        first = list(islice(self._pending, run.count))
        super().receipts(run)
        left = self._pending[0] if self._pending else None
        self._answered(takewhile(lambda each: each is not left, first), stored=True)

    def _fail_pending(self, error: PulsarException) -> None:
        failed = list(self._pending)
        super()._fail_pending(error)
        self._answered(failed, stored=False)

    def _answered(self, sent: Iterable[Pending], *, stored: bool) -> None:
        observer = self._services.observer
        if observer is not None:
            now = self._loop.time()
            for each in sent:
                observer.answered(self, now - each.born, len(each.done), stored=stored)

    async def close(self) -> None:
        was_open = self._attachment.opened and not self._attachment.closed
        try:
            await super().close()
        finally:
            if was_open:
                self._chain.end()


class LimitedInterceptedProducer(InterceptedProducer, LimitedProducer):
    """A producer with interceptors, of a client with a memory limit."""
