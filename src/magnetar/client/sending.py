"""The common part of producers on a topic and on a partitioned topic: sending messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from magnetar.client.exceptions import PulsarException, Result
from magnetar.client.message_id import MessageId
from magnetar.client.options import ProducerOptions
from magnetar.client.outgoing_message import Done, MessageOptions
from magnetar.client.schema import content_of
from magnetar.client.statements import ClosedByAsyncWith
from magnetar.client.transactional_sends import SendingMessage, note_failure
from magnetar.io.interfaces import Loop

SendCallback = Callable[[Result, MessageId | None], object]


class AcceptsMessages(ClosedByAsyncWith):
    """The public interface of a producer. If a message of a transaction is refused, the transaction cannot be
    committed.
    """

    _loop: Loop
    _options: ProducerOptions

    async def send(self, content: object, *, sequence_id: int | None = None, **options: Any) -> MessageId:
        """Publishes one message and waits for the receipt. If the call is cancelled, the message may still be
        published.

        :param content: the payload as bytes; for a producer with a schema of ``magnetar.client.schemas``, a
            value, or None together with ``null_value``
        :param sequence_id: the sequence id of the message, by which the broker recognizes duplicates; None:
            the next sequence id
        :param options: the fields of :class:`MessageOptions`
        :returns: the id of the message; its entry id is -1 if the broker recognized the message as a
            duplicate
        :raises ProducerQueueIsFull: too many messages are pending, and ``block_if_queue_full`` is off
        :raises MessageTooBig: the message is larger than the broker accepts
        :raises InvalidMessage: an option is out of range, or contradicts others
        :raises Timeout: no receipt within the send time-out; the message may still have been published
        :raises PulsarException: the producer is closed or has failed permanently
        """
        data = content_of(content, self._options.schema, options)
        said = self.message_options(options)
        if said is None or said.transaction is None:
            return await self.send_content(data, sequence_id, said)
        with SendingMessage(said.transaction):
            return await self.send_content(data, sequence_id, said)

    def send_async(
        self, content: object, callback: SendCallback, *, sequence_id: int | None = None, **options: object
    ) -> None:
        """Publishes one message without waiting for the receipt.

        :param content: as for :meth:`send`
        :param callback: called on the event loop with the result and the id of the message (None after an
            error)
        :param sequence_id: as for :meth:`send`
        :param options: as for :meth:`send`
        :raises ProducerQueueIsFull: too many messages are pending
        :raises PulsarException: the message is refused at once, as by :meth:`send`; ``callback`` is not
            called
        """

        def done(message_id: MessageId | None, error: PulsarException | None) -> None:
            result = Result.Ok if error is None else error.result
            self._loop.call_soon(callback, result, message_id)

        data = content_of(content, self._options.schema, options)
        said = self.message_options(options)
        try:
            self.enqueue(data, done, sequence_id, said)
        except PulsarException as error:
            note_failure(said, error)
            raise

    @abstractmethod
    async def send_content(
        self, content: bytes, sequence_id: int | None, options: MessageOptions | None
    ) -> MessageId:
        """Like :meth:`send`, but the caller has already encoded the payload."""

    @abstractmethod
    def message_options(self, options: Mapping[str, object]) -> MessageOptions | None:
        """Returns the options of a message; None: the message has no options.

        :raises InvalidMessage: options contradict each other
        """

    @abstractmethod
    def enqueue(
        self, content: bytes, done: Done, sequence_id: int | None, options: MessageOptions | None
    ) -> None:
        """Publishes one message; ``done`` is called exactly once, with the receipt or the failure.

        :raises PulsarException: the message is refused at once; ``done`` is not called
        """
