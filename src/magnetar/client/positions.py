"""The position of a consumer in its topic: the start position, seeks, and whether more messages follow."""

from __future__ import annotations

from datetime import timedelta

from magnetar.client.acknowledging import Acknowledgements
from magnetar.client.attachment import Attachment
from magnetar.client.connection import Connection
from magnetar.client.consumer_commands import ConsumerCommands, last_message_of
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions, ReaderOptions
from magnetar.client.receiver_queue import ReceiverQueue
from magnetar.client.receiving import StartPosition
from magnetar.client.redelivery import Redelivery
from magnetar.client.wire import ConsumerEnd
from magnetar.io.interfaces import Cancellable, Loop, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, outcome


class Positions:
    """The start position and the seeks of one consumer."""

    def __init__(
        self,
        loop: Loop,
        attachment: Attachment[ConsumerEnd],
        options: ConsumerOptions,
        commands: ConsumerCommands,
        *,
        queue: ReceiverQueue,
        acks: Acknowledgements,
        redelivery: Redelivery,
    ) -> None:
        self._loop = loop
        self._attachment = attachment
        self._durable = options.durable
        self._reads = isinstance(options, ReaderOptions)
        self._compacted = options.is_read_compacted
        self._inclusive = options.start_message_id_inclusive
        self._commands = commands
        self._queue = queue
        self._acks = acks
        self._redelivery = redelivery
        start = options.start_message_id
        self._start = None if isinstance(start, timedelta) else start
        """Start position of a non-durable subscription; None: the subscription is durable, or the start is a
        time.
        """
        self._since = loop.time() - start.total_seconds() if isinstance(start, timedelta) else None
        """If the start is an age: the loop's time at which a message with this age was published, in seconds;
        otherwise None.
        """
        self._seeks = TaskScope(loop, attachment.topic)
        self._seeking: Task[None] | None = None
        self._group_seconds = options.ack_group_time_ms / 1000
        self._acknowledging: Cancellable | None = None

    def attached(self) -> None:
        """Requests messages after the consumer was attached on a new connection."""
        self._queue.attached()
        if self._reads:
            self._acknowledge_read()

    def _acknowledge_read(self) -> None:
        """Acknowledges the messages that were read, together after a delay; called when the program has
        received a message. The broker needs the acknowledgements to compute a reader's backlog, and to report
        that a terminated topic was read to its end.
        """
        # Until the time has passed, further messages cost nothing.
        self._queue.on_taken = None
        if self._acknowledging is None:
            self._acknowledging = self._loop.call_later(self._group_seconds, self._acknowledge_now)

    def _acknowledge_now(self) -> None:
        self._acknowledging = None
        if self._seeking is not None:
            # A position before the seek must not move the subscription after it.
            self._acknowledge_read()
            return
        queue = self._queue
        queue.on_taken = self._acknowledge_read
        read = queue.last_taken
        if read is None and not queue.start.inclusive:
            # The broker delivers the message of the start position, too.
            read = self._start
        if read is not None and read.ledger_id() >= 0 and read != MessageId.latest:
            queue.chunks.acknowledged_until(read.position)
            self._acks.cumulative(read)

    def end(self) -> None:
        """Stops acknowledging."""
        if self._acknowledging is not None:
            self._acknowledging.cancel()

    async def seek(self, target: MessageId | int) -> None:
        """Like :meth:`Consumer.seek`. If the caller is cancelled, the seek continues."""
        attachment = self._attachment
        await attachment.until_attached()
        while self._seeking is not None:
            await finished(self._loop, self._seeking)
            await attachment.until_attached()
        connection = attachment.connected_to()
        self._seeking = self._seeks.answer(self._seek(connection, target))
        await outcome(self._loop, self._seeking)
        await attachment.until_attached()

    async def _seek(self, connection: Connection, target: MessageId | int) -> None:
        attachment, queue = self._attachment, self._queue
        try:
            await attachment.ask(connection, lambda request_id: self._commands.seek(request_id, target))
            cleared = queue.forget()
            queue.returned.clear()
            if attachment.connection is connection:
                # A non-persistent topic has no positions, so its broker does not close the consumer.
                queue.permits.use(cleared)
            self._acks.forget()
            self._redelivery.forget()
            queue.last_taken = None
            self._start = target if isinstance(target, MessageId) else None
            self._since = None
            queue.start = StartPosition(self._start, self._inclusive)
        finally:
            self._seeking = None

    async def until_sought(self) -> None:
        """Waits for the answer to a seek in progress, if any."""
        if self._seeking is not None:
            await finished(self._loop, self._seeking)

    async def last_message(self) -> tuple[MessageId, tuple[int, int] | None]:
        """Returns the id of the topic's last message, and the subscription's mark-delete position (None if
        the broker does not send this position).

        :raises PulsarException: the broker refused, or the consumer is not connected
        """
        answered = await self._attachment.ask(self._attachment.connected_to(), self._commands.last_message_id)
        return last_message_of(answered.getLastMessageIdResponse)

    async def has_message_available(self) -> bool:
        """Like :meth:`Consumer.has_message_available`."""
        self._attachment.check_open()
        queue = self._queue
        if queue:
            return True
        last, mark = await self.last_message()
        if last.entry_id() < 0:
            return False
        if queue.last_taken is not None:
            return last > queue.last_taken
        behind = StartPosition(self._start, queue.start.inclusive).is_before(last)
        if behind is not None:
            return behind
        if self._compacted and self._start == MessageId.earliest:
            # The mark-delete position is behind messages that are left in the compacted topic only.
            return True
        return mark is None or last.position > mark

    def subscribing(self) -> MessageId | int | None:
        """Returns the start position for SUBSCRIBE, or the age of the first message in seconds. A non-durable
        subscription that was attached before continues after the last received message, which is then
        returned. None: the subscription is durable.
        """
        queue = self._queue
        if self._since is not None and queue.last_taken is None:
            return round(self._loop.time() - self._since)
        if not self._durable:
            inclusive = queue.start.inclusive and queue.last_taken is None
            self._start = queue.last_taken or self._start
            queue.start = StartPosition(self._start, inclusive)
        return self._start

    def migrated(self) -> None:
        """Continues at the beginning of the topic in the cluster it has migrated to: message ids of the
        former cluster are not valid in that cluster, and all messages of the former cluster were received.
        """
        if not self._durable and (self._attachment.opened or self._start != MessageId.latest):
            self._queue.last_taken, self._start, self._since = None, MessageId.earliest, None
