"""A producer on one topic or partition: pipelining, batching, and keeping the order across reconnects."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from magnetar.client.attachment import Attached, Attachment, Services
from magnetar.client.batches import Batch, Batches
from magnetar.client.chunks import SharedOutcome
from magnetar.client.connection import Connection
from magnetar.client.entries import Closing
from magnetar.client.enums import BatchingType, CompressionType, ProducerAccessMode
from magnetar.client.exceptions import (
    AlreadyClosed,
    CryptoError,
    InvalidConfiguration,
    InvalidMessage,
    InvalidTxnStatusError,
    MessageTooBig,
    NotAllowedError,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
)
from magnetar.client.message_id import MessageId
from magnetar.client.options import ProducerOptions
from magnetar.client.outgoing_message import (
    Done,
    MessageOptions,
    Pending,
    PreparedEntry,
    compressed,
)
from magnetar.client.producer_commands import announcement
from magnetar.client.sending import AcceptsMessages
from magnetar.client.stats import Intervals, ProducerStats, SentTotals, log_sent, producer_stats
from magnetar.client.timing import within
from magnetar.client.transactional_sends import Gate, Tracked, is_of, out_of_turn, taken_back, tracked
from magnetar.client.wire import ProducerEnd, Wire
from magnetar.io.interfaces import Cancellable, Future
from magnetar.io.waiting import settle
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.errors import CompressionError
from magnetar.protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, signed
from magnetar.protocol.hot_client_decode import ReceiptRun
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

if TYPE_CHECKING:
    from magnetar.client.transactions import OpenTransaction

log = logging.getLogger(__name__)

_SEQUENCE_IDS = 2**63 - 1


class Producer(Attached, AcceptsMessages):
    """A producer; see ``Client.create_producer``."""

    def __init__(self, services: Services, topic: str, options: ProducerOptions) -> None:
        """:raises InvalidConfiguration: an option is out of range

        :raises CryptoError: the encryption key cannot be read, or is not a valid key
        """
        attachment = Attachment[ProducerEnd](
            services,
            topic,
            self,
            _producers,
            announce=self._announce,
            close_command=self._close_command,
            attached=self._send_again,
            ended=self._fail_pending,
        )
        super().__init__(services, attachment)
        options.check()
        self._loop = services.io.loop
        self._options = options
        self._closing = Closing(attachment.id, services, options)
        self._name = options.producer_name or ""
        self._partition = TopicName.parse(topic).partition_index
        self._epoch = 0
        self._topic_epoch: int | None = None
        self._next_sequence_id: int | None = None
        if options.initial_sequence_id is not None:
            self._next_sequence_id = options.initial_sequence_id + 1
        self._last_sequence_id = -1
        self._pending: deque[Pending] = deque()
        self._pending_messages = 0
        self._batches = Batches()
        self._numbered = options.initial_sequence_id is not None
        self._batch_timer: Cancellable | None = None
        self._send_timer: Cancellable | None = None
        self._queued: deque[tuple[bytes, Done, int | None, MessageOptions | None, Context]] = deque()
        """Messages that wait for room in the queue, with their senders' contexts (``contextvars``)."""
        self._gate = Gate(
            self._loop, topic, self._place, self._refuse_one, self.send_batches, attachment.elsewhere
        )
        self._drained: list[Future[None]] = []
        self._sent = SentTotals()
        """The producer's totals without the counts that :meth:`_totals` derives from the pending messages."""
        self._given_up = 0
        """Number of messages that were sent to the broker, and then failed."""
        self.intervals = Intervals(self._loop, self._totals, SentTotals())

    def __repr__(self) -> str:
        return f"Producer({self.topic()!r}, name={self._name!r})"

    def producer_name(self) -> str:
        """The name given by the program, or the name that the broker chose."""
        return self._name

    def last_sequence_id(self) -> int:
        """The sequence id of the last published message; -1: no message was published yet."""
        return self._last_sequence_id

    @property
    def pending_messages(self) -> int:
        """Number of messages without a receipt; each chunk of a message counts as one."""
        return self._pending_messages

    @property
    def stats(self) -> ProducerStats:
        """The present statistics of this producer."""
        return producer_stats({self.topic(): self.intervals})

    def _totals(self) -> SentTotals:
        sent = self._sent
        underway = sum(len(each.done) for each in tuple(self._pending))
        acks = sent.messages - self._given_up - underway
        return SentTotals(sent.messages, sent.bytes, sent.failed, acks, self._pending_messages)

    def end_interval(self) -> None:
        log_sent(self._attachment.topic, self._name, self.intervals)

    @property
    def pending_bytes(self) -> int:
        """Total size of the sent entries without a receipt, in bytes, including their metadata."""
        return sum(len(each.frame) for each in tuple(self._pending))

    # Sending

    async def send_content(
        self, content: bytes, sequence_id: int | None, options: MessageOptions | None
    ) -> MessageId:
        future = self._loop.create_future()

        def done(message_id: MessageId | None, error: PulsarException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(message_id)

        self.enqueue_or_wait(content, done, sequence_id, options)
        try:
            published: MessageId = await future
        finally:
            if future.cancelled():
                self._take_back(done)
        return published

    def _take_back(self, done: Done) -> None:
        """Cancels a message that still waits in the queue, so that it is not sent."""
        for index, waiting in enumerate(self._queued):
            if is_of(waiting[1], done):
                del self._queued[index]
                taken_back(waiting[1], self._attachment.topic)
                return

    def enqueue_or_wait(
        self, content: bytes, done: Done, sequence_id: int | None, options: MessageOptions | None
    ) -> None:
        """Like :meth:`enqueue`, but waits while the queue is full if ``block_if_queue_full`` is set."""
        if self._options.block_if_queue_full and (self._queued or self._is_full):
            self._attachment.check_open()
            self._queued.append((content, tracked(done, options), sequence_id, options, copy_context()))
        else:
            self.enqueue(content, done, sequence_id, options)

    def message_options(self, options: Mapping[str, Any]) -> MessageOptions | None:
        """Returns the options of a message; None: the message has no options.

        :raises InvalidMessage: options contradict each other
        """
        if not options:
            return None
        return MessageOptions(**options, now_ms=self._services.io.clock.wall_ms())

    def enqueue(
        self, content: bytes, done: Done, sequence_id: int | None, options: MessageOptions | None
    ) -> None:
        """Publishes one message; ``done`` is called exactly once, with the receipt or the failure.

        :raises PulsarException: the message is refused at once; ``done`` is not called
        """
        self._attachment.check_open()
        settings = self._options
        if self._pending_messages >= settings.max_pending_messages:
            self._sent.failed += 1
            raise ProducerQueueIsFull(
                f"{self._attachment.topic}: {self._pending_messages} messages are "
                "pending, as many as permitted; wait for receipts, or use block_if_queue_full"
            )
        limit = self.max_message_size
        may_be_smaller = settings.compression_type != CompressionType.NONE
        if len(content) > limit and not (may_be_smaller or settings.chunking_enabled):
            raise MessageTooBig(f"the content has {len(content)} bytes, more than {limit}; enable chunking")
        if sequence_id is None:
            sequence_id = self._next_sequence_id or 0
            self._next_sequence_id = sequence_id + 1
        elif not 0 <= sequence_id < _SEQUENCE_IDS:
            raise InvalidMessage(
                f"{self._attachment.topic}: the sequence id must be from 0 to 2^63-2, not {sequence_id}"
            )
        else:
            self._numbered = True
            if sequence_id >= (self._next_sequence_id or 0):
                self._next_sequence_id = sequence_id + 1
        self._pending_messages += 1
        if self._gate.holds or (options is not None and options.transaction is not None):
            self._gate.add(sequence_id, content, options, tracked(done, options))
        else:
            self._place(sequence_id, content, options, done)

    def _place(self, sequence_id: int, content: bytes, options: MessageOptions | None, done: Done) -> None:
        """Sends a message that is already counted as pending, or adds it to a batch.

        :raises PulsarException: the message cannot be sent; it is then no longer counted as pending
        """
        try:
            if self._options.batching_enabled and (options is None or not options.must_be_alone):
                self._add_to_batch(sequence_id, content, options, done)
            else:
                self.send_batches()
                self._send_single(sequence_id, content, options, done)
        except (TypeError, ValueError) as error:
            # A value has the wrong type, or is out of range: the message is not pending.
            self._pending_messages -= 1
            raise InvalidMessage(f"{self._attachment.topic}: {error}") from error

    def enqueue_prepared(self, entry: PreparedEntry, done: Done) -> None:
        """Publishes an entry that the caller has built, after all messages that were enqueued before.

        The entry counts as one pending message, and ``done`` is called once. Sequence ids must increase from
        entry to entry; with deduplication, the receipt of an entry that is already stored has no message id.

        :raises PulsarException: the producer is closed or has failed, or too many messages are pending
        """
        self._attachment.check_open()
        if self._is_full:
            raise ProducerQueueIsFull(
                f"{self._attachment.topic}: {self._pending_messages} messages are "
                "pending, as many as permitted; wait for receipts, or use block_if_queue_full"
            )
        self.send_batches()
        self._pending_messages += 1
        self._next_sequence_id = max(self._next_sequence_id or 0, entry.highest_sequence_id + 1)
        highest = entry.highest_sequence_id if entry.count > 1 else -1
        self._sent.bytes += len(entry.payload)
        of = entry.transaction
        told = done if of is None else Tracked(done, of)
        ids, tail = (entry.sequence_id, highest), entry.metadata
        self._send(*ids, tail, entry.payload, [told], False, entry.count, transaction=of)

    @property
    def _is_full(self) -> bool:
        return self._pending_messages >= self._options.max_pending_messages

    @property
    def max_message_size(self) -> int:
        """Maximum payload of an entry, in bytes; without a connection, the protocol's default."""
        connection = self._attachment.connection
        return connection.wire.max_message_size if connection is not None else DEFAULT_MAX_MESSAGE_SIZE

    def _send_single(
        self, sequence_id: int, content: bytes, options: MessageOptions | None, done: Done
    ) -> None:
        self._sent.bytes += len(content)
        tail = b""
        payload = content
        transaction = options.transaction if options is not None else None
        codec = self._options.compression_type
        try:
            if options is not None or codec != CompressionType.NONE:
                metadata = MessageMetadata()
                if options is not None:
                    options.fill(metadata)
                payload = compressed(metadata, content, codec)
                tail = metadata.SerializePartialToString()
        except CompressionError as error:
            self._pending_messages -= 1
            raise InvalidConfiguration(str(error)) from error
        chunks: list[tuple[bytes, bytes]] = []
        if self._options.chunking_enabled:
            try:
                chunks = self._closing.chunks(sequence_id, tail, payload, self.max_message_size)
            except MessageTooBig:
                self._pending_messages -= 1
                raise
        if not chunks:
            self._send(sequence_id, -1, tail, payload, [done], False, transaction=transaction)
            return
        # Each chunk waits for a receipt, and counts as pending.
        self._pending_messages += len(chunks) - 1
        outcome = SharedOutcome(done, len(chunks))
        for said, part in chunks:
            one: list[Done] = [outcome.one]
            self._send(sequence_id, -1, said, part, one, False, is_chunk=True, transaction=transaction)

    def _add_to_batch(
        self, sequence_id: int, content: bytes, options: MessageOptions | None, done: Done
    ) -> None:
        batches = self._batches
        settings = self._options
        bound = min(settings.batching_max_allowed_size_in_bytes, self.max_message_size)
        kind = settings.batching_type
        key = options.dispatch_key if options is not None and kind is not BatchingType.Default else None
        if batches.count and (
            batches.size + len(content) > bound
            or (self._numbered and kind is None and batches.has_other_key_than(key))
            or batches.transaction is not (options.transaction if options is not None else None)
        ):
            self.send_batches()
        batches.add(key, sequence_id, content, options, done, self._loop.time())
        if batches.count >= settings.batching_max_messages or batches.size >= bound:
            self.send_batches()
        elif self._batch_timer is None:
            delay = settings.batching_max_publish_delay_ms / 1000
            self._batch_timer = self._loop.call_later(delay, self._batch_due)

    def _batch_due(self) -> None:
        self._batch_timer = None
        if not self._batches.count:
            return
        left = self._batches.born + self._options.batching_max_publish_delay_ms / 1000 - self._loop.time()
        if left > 0.0002:
            # The timer was set for earlier batches; these are younger.
            self._batch_timer = self._loop.call_later(left, self._batch_due)
        else:
            self.send_batches()

    def send_batches(self) -> None:
        """Sends the open batches."""
        batches = self._batches.take()
        # The ids of several batches interleave. With the last id alone they rise from entry to entry, so that
        # a broker that deduplicates accepts each.
        by_last = len(batches) > 1
        for batch in batches:
            self._send_batch(batch, numbered_by_last=by_last)
            self._batches.reuse(batch)

    def _send_batch(self, batch: Batch, *, numbered_by_last: bool) -> None:
        done = batch.done
        self._sent.bytes += batch.buffer.size
        try:
            tail, payload = batch.take(self._options.compression_type, numbered_by_last=numbered_by_last)
        except CompressionError as error:
            self._refuse(done, InvalidConfiguration(str(error)))
            return
        first, highest = batch.first_sequence_id, batch.last_sequence_id
        if numbered_by_last or len(done) == 1:
            first, highest = highest, -1
        self._send(first, highest, tail, payload, done, True, transaction=batch.transaction)

    def _send(
        self,
        sequence_id: int,
        highest: int,
        tail: bytes,
        payload: bytes,
        done: list[Done],
        batched: bool,
        count: int = 0,
        *,
        is_chunk: bool = False,
        transaction: OpenTransaction | None = None,
    ) -> None:
        """Sends an entry; ``count`` is its number of messages, or 0 for the number of callbacks in
        ``done``.
        """
        now = self._loop.time()
        ids = (sequence_id, highest, count or len(done))
        try:
            if transaction is not None:
                self._gate.check(transaction)
            frame = self._closing.frame(
                ids, tail, payload, self.max_message_size, is_chunk=is_chunk, transaction=transaction
            )
        except (CryptoError, MessageTooBig, InvalidTxnStatusError) as error:
            self._refuse(done, error)
            return
        self._sent.messages += len(done)
        last = max(highest, sequence_id)
        self._pending.append(Pending(sequence_id, last, frame, done, batched, now, transaction))
        if self._attachment.connection is not None:
            self._attachment.connection.send(frame)
        if self._send_timer is None and self._options.send_timeout_millis > 0:
            delay = self._options.send_timeout_millis / 1000
            self._send_timer = self._loop.call_later(delay, self._send_due)

    def _refuse(self, done: list[Done], error: PulsarException) -> None:
        """Fails messages that are counted as pending but were not sent."""
        self._pending_messages -= len(done)
        self._sent.failed += len(done)
        for each in done:
            each(None, error)

    def _refuse_one(self, done: Done, error: PulsarException) -> None:
        self._refuse([done], error)
        self._moved_on()

    def _send_due(self) -> None:
        """Fails all pending messages, to keep their order, once the oldest has reached the send time-out."""
        self._send_timer = None
        if not self._pending:
            return
        seconds = self._options.send_timeout_millis / 1000
        left = self._pending[0].born + seconds - self._loop.time()
        if left > 0.0002:
            self._send_timer = self._loop.call_later(left, self._send_due)
        else:
            self._fail_pending(Timeout(f"{self._attachment.topic}: no receipt within {seconds:g} s"))

    async def flush(self) -> None:
        """Sends open batches and waits until no message is pending; errors go to the messages' callbacks."""
        self.send_batches()
        if self._pending_messages:
            drained = self._loop.create_future()
            self._drained.append(drained)
            await drained

    # Events of the connection

    def receipts(self, run: ReceiptRun) -> None:
        pending = self._pending
        sequence_ids, ledger_ids, entry_ids = run.sequence_ids, run.ledger_ids, run.entry_ids
        if pending:
            # The latency of the oldest message of a run stands for all: they were sent together as a rule.
            milliseconds = (self._loop.time() - pending[0].born) * 1000
            self.intervals.latencies.note(milliseconds, run.count)
        for index in range(run.count):
            sequence_id = sequence_ids[index]
            if not pending or sequence_id < pending[0].sequence_id:
                # The message was given up, or was sent twice because of a reconnect.
                continue
            head = pending[0]
            if sequence_id > head.sequence_id:
                found = out_of_turn(pending, sequence_id)
                if found is None:
                    continue
                head = found
            else:
                pending.popleft()
            self._pending_messages -= len(head.done)
            self._last_sequence_id = max(self._last_sequence_id, head.highest)
            head.succeed(self._partition, ledger_ids[index], entry_ids[index])
        self._moved_on()

    def send_failed(self, sequence_id: int, error: PulsarException) -> None:
        if isinstance(error, NotAllowedError):
            # Brokers send this error immediately, while earlier messages may still wait to be stored.
            for refused in self._pending:
                if refused.sequence_id == sequence_id:
                    self._fail_one(refused, error)
                    break
            return
        connection = self._attachment.connection
        if connection is not None:
            # Pending messages are sent again, in order, on a new connection.
            connection.abort(error)

    def _fail_one(self, refused: Pending, error: PulsarException) -> None:
        self._pending.remove(refused)
        self._pending_messages -= len(refused.done)
        self._gave_up(len(refused.done))
        refused.fail(error)
        self._moved_on()

    def _fail_ended(self) -> None:
        """Fails the messages of transactions that have already ended, so that no broker stores them."""
        for each in tuple(self._pending):
            if each.transaction is not None and (error := self._gate.refusal(each.transaction)) is not None:
                self._fail_one(each, error)

    def cluster_changed(self) -> None:
        super().cluster_changed()
        self._fail_ended()

    def _gave_up(self, messages: int) -> None:
        self._given_up += messages
        self._sent.failed += messages

    def _moved_on(self) -> None:
        """Called when a message is no longer pending."""
        while self._queued and not self._is_full:
            self._send_queued()
        if not self._pending_messages and self._drained:
            drained, self._drained = self._drained, []
            for future in drained:
                settle(future)

    def _send_queued(self) -> None:
        """Sends the first message of the queue."""
        content, done, sequence_id, options, context = self._queued.popleft()
        try:
            context.run(self.enqueue, content, done, sequence_id, options)
        except PulsarException as error:
            done(None, error)

    def _fail_pending(self, error: PulsarException) -> None:
        pending = list(self._pending)
        waiting = self._batches.take()
        held = self._gate.take()
        self._pending.clear()
        self._pending_messages = 0
        self._gave_up(sum(len(each.done) for each in pending))
        self._sent.failed += sum(len(batch.done) for batch in waiting) + len(held)
        for each in pending:
            each.fail(error)
        for batch in waiting:
            for done in batch.done:
                done(None, error)
        for message in held:
            message.done(None, error)
        self._moved_on()

    # Life

    async def _announce(self, connection: Connection) -> None:
        waits = self._options.access_mode == ProducerAccessMode.WaitForExclusive
        answered = await self._attachment.introduce(connection, self._open_command, or_forever=waits)
        success = answered.producer_success
        if not self._name or success.producer_name != self._name:
            self._name = success.producer_name
        declared = self._options.schema is not None
        self._closing.announced(self._name, success.schema_version if declared else b"")
        if self._next_sequence_id is None:
            self._last_sequence_id = signed(success.last_sequence_id % 2**64)
            self._next_sequence_id = self._last_sequence_id + 1
        if success.HasField("topic_epoch"):
            self._topic_epoch = success.topic_epoch

    def _open_command(self, request_id: int) -> BaseCommand:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return announcement(
            self._attachment.topic,
            self._attachment.id,
            self._name,
            self._options,
            request_id=request_id,
            epoch=epoch,
            topic_epoch=self._topic_epoch,
            encrypts=self._closing.encrypts,
            in_transactions=self._services.coordinators is not None,
        )

    def _close_command(self, request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        command.close_producer.producer_id = self._attachment.id
        command.close_producer.request_id = request_id
        return command

    def _send_again(self, connection: Connection) -> None:
        self._fail_ended()
        for each in self._pending:
            connection.send(each.frame)

    async def close(self) -> None:
        """Publishes pending messages, within the operation time-out, then closes the producer. Idempotent.

        :raises PulsarException: the broker refused
        """
        attachment = self._attachment
        if attachment.closed:
            return
        if attachment.failure is None and attachment.connection is not None:
            seconds = self._services.operation_timeout
            try:
                await within(self._loop, seconds, self.flush(), f"{self._attachment.topic}: flush")
            except Timeout as error:
                log.warning("%s; discarding pending messages", error)
        connection = attachment.connection
        attachment.stop()
        for timer in (self._batch_timer, self._send_timer):
            if timer is not None:
                timer.cancel()
        try:
            await attachment.say_goodbye(connection)
        finally:
            # Nothing else ends the wait of their senders, whatever the broker answers.
            self._fail_pending(AlreadyClosed(f"{self._attachment.topic}: the producer is closed"))


def _producers(wire: Wire) -> dict[int, ProducerEnd]:
    return wire.producers
