"""The receiver queue of a consumer: entries that have arrived, their messages, and the permits."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from magnetar.client.acknowledging import Acknowledgements
from magnetar.client.attachment import Attachment
from magnetar.client.consumer_commands import ConsumerCommands
from magnetar.client.entries import MessageOpening
from magnetar.client.exceptions import InvalidMessage, PulsarException
from magnetar.client.hot_messages import entries_of, plain_messages_of
from magnetar.client.memory_limit import MemoryLimit
from magnetar.client.message import Message, RawEntry, entry_of, id_of
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.receiving import Arrivals, Permits, StartPosition, Taken
from magnetar.client.scaled_permits import ScaledPermits
from magnetar.client.stats import ReceivedTotals
from magnetar.client.unpacking import Aside
from magnetar.client.value_messages import Values
from magnetar.client.wire import ConsumerEnd
from magnetar.io.interfaces import ClientIo
from magnetar.protocol.errors import EntryError
from magnetar.protocol.hot_client_decode import MessageRun, plain_payload
from magnetar.protocol.pulsar_api_pb2 import CommandAck, CommandMessage

log = logging.getLogger(__name__)
_RUN = 500
"""Maximum number of single messages that are converted together."""


class ReceiverQueue:
    """The entries and messages of one consumer that have arrived, but that the program has not received
    yet.
    """

    def __init__(
        self,
        io: ClientIo,
        attachment: Attachment[ConsumerEnd],
        options: ConsumerOptions,
        commands: ConsumerCommands,
        *,
        partition: int,
        taken: Taken,
        acks: Acknowledgements,
        memory: MemoryLimit | None = None,
    ) -> None:
        """:param partition: index of the topic's partition; -1: the topic is not partitioned

        :param taken: records the messages that the program receives, for the acknowledgement time-out and
            dead letters
        :param acks: acknowledges messages that are not delivered
        :param memory: the memory limit of the client; None: no limit
        """
        self._attachment = attachment
        self._commands = commands
        self._partition = partition
        self._taken = taken
        self._acks = acks
        self._entries: deque[RawEntry] = deque()
        self._ready: deque[Message] = deque()
        self.returned: deque[Message] = deque()
        """Messages that were taken from the queue, but did not reach the program; the program gets them
        before all others.
        """
        self._arrivals = Arrivals(io.loop)
        self.on_arrival: Callable[[], object] | None = None
        """Called when entries have arrived, or the consumer is closed or has failed; None: no callback."""
        self.intercept: Callable[[Message], Message] | None = None
        """Passes each message through the interceptors, and returns the message that the program receives;
        None: no interceptors.
        """
        self.values: Values | None = None
        """Decodes the values of messages; None: messages only have payloads."""
        self.epoch = 0
        """The consumer epoch: how often redelivery of all messages was requested; entries with a lower epoch
        are dropped.
        """
        self.start = StartPosition(None, options.start_message_id_inclusive)
        """The start position; earlier messages are dropped."""
        self.opened = ReceivedTotals()
        """Number of messages that were made ready for the program since the consumer was opened, size of
        their entries in bytes, and number of failed calls of ``receive``.
        """
        self.last_taken: MessageId | None = None
        """The id of the last message or entry that the program received; None: nothing received yet."""
        self.on_taken: Callable[[], object] | None = None
        """Called when the program has received a message or an entry; None: no callback."""
        scaled = options.auto_scaled_receiver_queue and options.receiver_queue_size > 0
        self._memory = memory if scaled else None
        self._counted = 0
        """Bytes of waiting entries that count against the memory limit."""
        self.permits = (
            ScaledPermits(options.receiver_queue_size, self._flow, memory)
            if scaled
            else Permits(options.receiver_queue_size, self._flow)
        )
        self._aside = Aside(io.loop, options.unpacking, self._opened_aside, self._not_opened)
        self._opening = MessageOpening(
            io,
            attachment.topic,
            options,
            used=self.permits.use,
            acknowledge=acks.entry,
            withheld=taken.withheld,
            open_waiting=self._open_all,
            aside=self._aside.takes,
        )
        self.chunks = self._opening.chunks

    def __bool__(self) -> bool:
        """Whether entries or messages have arrived that the program has not received."""
        return bool(self._entries or self._ready or self.returned) or self._aside.entry is not None

    def totals(self) -> ReceivedTotals:
        """Returns the totals of received messages; ``waiting`` is the number of messages in the queue."""
        waiting = sum(entry.num_messages for entry in tuple(self._entries)) + len(self._ready)
        opened = self.opened
        return ReceivedTotals(
            opened.messages - len(self._ready), opened.bytes, failed=opened.failed, waiting=waiting
        )

    @property
    def waiting_bytes(self) -> int:
        """Size of the arrived entries that were not converted to messages yet, in bytes."""
        return sum(len(entry.data) for entry in tuple(self._entries))

    # Arrivals

    def run_arrived(self, buffer: bytes, run: MessageRun) -> None:
        """Handles a run of entries that has arrived; see :meth:`ConsumerEnd.messages`."""
        self.permits.one_is_asked_for = False
        self.permits.arrived(run.total_messages)
        if run.epoch < self.epoch and self.epoch:
            self.permits.use(run.total_messages)
            return
        arrived = entries_of(RawEntry, buffer, run, self._partition)
        self._entries.extend(arrived)
        if self._memory is not None:
            self._count(sum(len(entry.data) for entry in arrived))
        self.wake()

    def _count(self, size: int) -> None:
        """Counts ``size`` bytes of arrived entries against the memory limit; a negative number stands for
        entries that left the queue.
        """
        if self._memory is not None:
            self._counted += size
            if size > 0:
                self._memory.add(size)
            else:
                self._memory.give(-size)

    def entry_arrived(self, command: CommandMessage, entry: bytes, intact: bool) -> None:
        """Handles one entry that has arrived; see :meth:`ConsumerEnd.message`."""
        message_id = id_of(command, self._partition)
        self.permits.one_is_asked_for = False
        if not intact:
            self.permits.arrived(1)
            self._discard(message_id, "its checksum is wrong", CommandAck.ChecksumMismatch)
            return
        try:
            arrived = entry_of(command, entry, self._partition)
        except EntryError as error:
            self.permits.arrived(1)
            self._discard(message_id, error, CommandAck.BatchDeSerializeError)
            return
        self.permits.arrived(arrived.num_messages)
        epoch = command.consumer_epoch if command.HasField("consumer_epoch") else -1
        if epoch < self.epoch and self.epoch:
            self.permits.use(arrived.num_messages)
            return
        if arrived.ack_set:
            self._acks.known(message_id.position, arrived.batch_size, arrived.ack_set)
        self._entries.append(arrived)
        if self._memory is not None:
            self._count(len(arrived.data))
        self.wake()

    def use_values(self, values: Values) -> None:
        """Makes the queue decode the values of messages."""
        self.values = values
        self.intercept = values.valued

    def wake(self) -> None:
        """Makes all waiting callers check the queue again."""
        self._arrivals.wake()
        if self.on_arrival is not None:
            self.on_arrival()

    async def arrival(self, end: float | None) -> None:
        """Waits until entries have arrived, or the consumer is closed or has failed.

        :param end: end of the wait in the loop's time; None: no limit
        :raises Timeout: no entry arrived in time
        """
        if not self._ready:
            self.permits.ask_for_one()
        await self._arrivals.wait(end, f"{self._attachment.topic}: no message arrived in time")

    # What the program receives

    def take_entry(self) -> RawEntry | None:
        """Returns the next entry; None: no entry has arrived.

        :raises PulsarException: the consumer is closed or has failed permanently
        """
        self._attachment.check_open()
        while self._entries:
            entry = self._leave()
            self.permits.use(entry.num_messages)
            if not self.start.skips(entry.message_id()):
                self.last_taken = entry.message_id()
                if self.on_taken is not None:
                    self.on_taken()
                self.opened.messages += entry.num_messages
                self.opened.bytes += len(entry.data)
                return entry
        self.permits.ran_dry()
        return None

    def _leave(self) -> RawEntry:
        entry = self._entries.popleft()
        if self._memory is not None:
            self._count(-len(entry.data))
        return entry

    def take(self) -> Message | None:
        """Returns the next message; None: no message has arrived.

        :raises PulsarException: the consumer is closed or has failed permanently
        """
        attachment = self._attachment
        # A call of check_open for each message would cost more than this.
        if attachment.closed or attachment.failure is not None:
            attachment.check_open()
        if self.returned:
            return self.returned.popleft()
        while True:
            while self._ready:
                if self.values is not None and not self.values.is_known(self._ready[0]):
                    return None
                message = self._ready.popleft()
                self.permits.use(1)
                message_id = message.message_id()
                if self.start.matters and self.start.skips(message_id):
                    continue
                self.last_taken = message_id
                if self.on_taken is not None:
                    self.on_taken()
                if self._taken.matters:
                    self._taken.add(message)
                return message if self.intercept is None else self.intercept(message)
            if self._aside.entry is not None:
                return None
            if not self._entries:
                self.permits.ran_dry()
                if self.on_arrival is not None:
                    self.permits.ask_for_one()
                return None
            self._open_next()

    def take_run(self, into: deque[Message]) -> int | None:
        """Takes the messages that have already arrived, and appends them to ``into``, from which other
        threads may take them.

        :returns: the number of messages; None: no message has arrived
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        message = self.take()
        if message is None:
            return None
        into.append(message)
        ready = self._ready
        if self.returned or self.intercept is not None or self._taken.matters or self.start.matters:
            return 1
        while len(ready) < _RUN and self._entries and self._aside.entry is None:
            if self._memory is not None or not self._open_plain():
                self._open_next()
        count = len(ready)
        if count:
            # Those of one entry, as a rule: one by one they would cost several times as much.
            self.last_taken = ready[-1].message_id()
            into.extend(ready)
            ready.clear()
            self.permits.use(count)
        return 1 + count

    def take_back(self, message: Message) -> None:
        """Undoes :meth:`take`: puts the message at the front of the queue."""
        self.returned.appendleft(message)
        self.wake()

    def _open_next(self) -> None:
        entry = self._leave()
        try:
            skipped = self.start.matters and self.start.skips(entry.message_id())
            self._made_ready(entry, self._opening.messages(entry, skipped=skipped))
        except InvalidMessage as error:
            self._discard(entry.message_id(), error, CommandAck.BatchDeSerializeError, entry.num_messages)

    def _open_plain(self) -> bool:
        """Converts the next entries to messages, as long as they are single messages without encryption or
        other special fields; returns whether any entry was converted.
        """
        found, size = plain_messages_of(Message, self._attachment.topic, self._entries, _RUN, plain_payload)
        self._ready.extend(found)
        self.opened.messages += len(found)
        self.opened.bytes += size
        return bool(found)

    def _made_ready(self, entry: RawEntry, messages: Iterable[Message]) -> None:
        before = len(self._ready)
        self._ready.extend(messages)
        self.opened.messages += len(self._ready) - before
        self.opened.bytes += len(entry.data)

    def _open_all(self) -> None:
        while self._entries and self._aside.entry is None:
            self._open_next()

    def _opened_aside(self, entry: RawEntry) -> None:
        try:
            self._made_ready(entry, entry.messages(self._attachment.topic))
        except InvalidMessage as error:
            self._not_opened(entry, error)
            return
        self.wake()

    def _not_opened(self, entry: RawEntry, error: PulsarException) -> None:
        if isinstance(error, InvalidMessage):
            self._discard(entry.message_id(), error, CommandAck.BatchDeSerializeError, entry.num_messages)
            self.wake()
        else:
            # The entry is intact, and another consumer may have memory for it.
            self._attachment.fail(error)

    def _discard(
        self, message_id: MessageId, reason: object, why: CommandAck.ValidationError, messages: int = 1
    ) -> None:
        log.warning("%s: discarding message %s: %s", self._attachment.topic, message_id, reason)
        self.permits.use(messages)
        connection = self._attachment.connection
        if connection is not None:
            connection.wire.send(self._commands.discard(message_id, why))

    # The broker's side

    def _flow(self, permits: int) -> None:
        connection = self._attachment.connection
        if connection is not None:
            connection.wire.send(self._commands.flow(permits))

    def attached(self) -> None:
        """Sends permits after the consumer was attached on a new connection."""
        self.permits.attached(listened=self.on_arrival is not None, waited=bool(self._arrivals))

    def resume(self) -> None:
        """Requests messages again after :attr:`permits` was paused."""
        self.permits.resume(waited=bool(self._arrivals) or self.on_arrival is not None)

    def forget(self) -> int:
        """Drops messages that were not received yet; returns the number of permits that they used."""
        cleared = sum(entry.num_messages for entry in self._entries) + len(self._ready)
        cleared += self._aside.forget()
        self.opened.messages -= len(self._ready)
        self._entries.clear()
        self._ready.clear()
        self._count(-self._counted)
        self.chunks.forget()
        return cleared

    def end(self) -> None:
        """Called when the consumer is closed or has failed: drops all messages; waiting callers get the
        consumer's error.
        """
        self.forget()
        self.returned.clear()
        self.permits.end()
        if self.values is not None:
            self.values.end()
        self.wake()
