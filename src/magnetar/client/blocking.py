"""The blocking interface, with the names of the official Python client, on a loop in a background thread.

All methods can be called from any thread except the loop's thread. Callbacks run on the loop's thread and
must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from magnetar.client import client as core
from magnetar.client.blocking_consumer import Consumer, ListenerOnThreads, Reader
from magnetar.client.blocking_opening import BlockingOpening
from magnetar.client.exceptions import AlreadyClosed, InvalidConfiguration, PulsarException, Result
from magnetar.client.failover import ClusterAddress, ClusterFailover
from magnetar.client.message import Value
from magnetar.client.message_id import MessageId
from magnetar.client.partitioned import PartitionedProducer
from magnetar.client.producer import Producer as AsyncProducer
from magnetar.client.schema import ProducerSchema, TopicSchema, ValueSchema, content_of
from magnetar.client.statements import ClosedByWith
from magnetar.client.stats import ProducerStats
from magnetar.client.table_view import Listener
from magnetar.client.table_view import TableView as AsyncTableView
from magnetar.client.transactional_sends import note_failure
from magnetar.io.real.loop_thread import ByteSlots, LoopThread, Outcome, Slots
from magnetar.io.waiting import report

if TYPE_CHECKING:
    from magnetar.client.blocking_transactions import Transaction
    from magnetar.client.controlled_failover import ControlledClusterFailover
    from magnetar.client.opening import (
        ClientArguments,
        ConsumerArguments,
        PatternArguments,
        ProducerArguments,
        ReaderArguments,
        TableViewArguments,
        TopicsArguments,
        TopicsReaderArguments,
    )
    from magnetar.client.transactions import Transaction as AsyncTransaction

__all__ = ["Client", "Consumer", "Producer", "Reader", "TableView"]
T = TypeVar("T")
_OK = Result.Ok


_CLOSED = "the client is closed"


class _ClientThread(LoopThread):
    """The event loop of a client in its thread; methods raise AlreadyClosed after the client is closed."""

    def run(self, work: Coroutine[object, object, T]) -> T:
        try:
            return super().run(work)
        except RuntimeError as error:
            self._say_closed(error)
            raise

    def outcome(self, outcome: Outcome[T], call: Callable[..., object], *arguments: object) -> T | None:
        try:
            return super().outcome(outcome, call, *arguments)
        except RuntimeError as error:
            self._say_closed(error)
            raise

    def post(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            super().post(call, *arguments)
        except RuntimeError as error:
            raise AlreadyClosed(_CLOSED) from error

    def check_process(self) -> None:
        if self.is_forked:
            raise AlreadyClosed(core.FORKED)

    def _say_closed(self, error: RuntimeError) -> None:
        if self.loop.is_closed():
            raise AlreadyClosed(_CLOSED) from error


class Client(BlockingOpening):
    """Producers, consumers and readers of one cluster, with blocking methods."""

    def _start(
        self,
        service_url: str | ClusterFailover | ControlledClusterFailover,
        **options: Unpack[ClientArguments],
    ) -> None:
        self._thread = _ClientThread("client")
        try:
            self._core = self._thread.run(_made(service_url, self._thread, options))
        except BaseException:
            self._thread.close()
            raise
        limit = options.get("memory_limit_bytes", 0)
        self._is_traced = options.get("open_telemetry") is not None
        self._room = self._thread.new_byte_slots(limit) if limit else None
        self._closed = False

    def _create_producer(self, topic: str, **options: Unpack[ProducerArguments]) -> Producer:
        waits = options["block_if_queue_full"]
        pending = min(options["max_pending_messages"], options["max_pending_messages_across_partitions"])
        slots = self._thread.new_slots(pending) if waits else None
        producer = self._run(self._core.create_producer(topic, **options))
        return Producer(
            producer,
            self._thread,
            slots,
            self._room if waits else None,
            schema=options.get("schema"),
            keeps_context=self._is_traced,
        )

    def _subscribe(
        self, topic: str, subscription_name: str, **options: Unpack[ConsumerArguments]
    ) -> Consumer:
        self._call_on_threads(options)
        return Consumer(self._run(self._core.subscribe(topic, subscription_name, **options)), self._thread)

    def _subscribe_to_topics(
        self, topics: Sequence[str], subscription_name: str, **options: Unpack[TopicsArguments]
    ) -> Consumer:
        self._call_on_threads(options)
        return Consumer(
            self._run(self._core.subscribe_to_topics(topics, subscription_name, **options)), self._thread
        )

    def _subscribe_to_pattern(
        self, pattern: str, subscription_name: str, **options: Unpack[PatternArguments]
    ) -> Consumer:
        self._call_on_threads(options)
        return Consumer(
            self._run(self._core.subscribe_to_pattern(pattern, subscription_name, **options)), self._thread
        )

    def _call_on_threads(
        self, options: ConsumerArguments | TopicsArguments | PatternArguments | ReaderArguments
    ) -> None:
        """Replaces the message listener in ``options``, if any, with a listener that is called on threads.

        :raises InvalidConfiguration: the listener is a coroutine function
        """
        listener = options["message_listener"]
        if listener is not None:
            if iscoroutinefunction(listener):
                raise InvalidConfiguration(
                    "an async message_listener requires a client of magnetar.client.aio"
                )
            options["message_listener"] = ListenerOnThreads(listener, self._thread)

    def _create_reader(
        self, topic: str, start_message_id: MessageId | timedelta, **options: Unpack[ReaderArguments]
    ) -> Reader:
        self._call_on_threads(options)
        return Reader(self._run(self._core.create_reader(topic, start_message_id, **options)), self._thread)

    def _create_reader_of_topics(
        self,
        topics: Sequence[str],
        start_message_id: MessageId | timedelta,
        **options: Unpack[TopicsReaderArguments],
    ) -> Reader:
        self._call_on_threads(options)
        return Reader(
            self._run(self._core.create_reader_of_topics(topics, start_message_id, **options)), self._thread
        )

    def _create_table_view(self, topic: str, **options: Unpack[TableViewArguments]) -> TableView:
        return TableView(self._run(self._core.create_table_view(topic, **options)), self._thread)

    def transaction(self, timeout: float = core.TRANSACTION_SECONDS) -> Transaction:
        """Returns a transaction, which begins with ``with`` or ``begin()``.

        The end of the block commits the transaction; an exception in the block aborts it. The brokers require
        ``transactionCoordinatorEnabled=true``.

        :param timeout: time after which an open transaction is aborted, in seconds; at least 0.001
        :raises InvalidConfiguration: the time-out is out of range
        """
        # Imported late: most clients use no transactions.
        from magnetar.client.blocking_transactions import Transaction

        return Transaction(self._run(self._transaction(timeout)), self._thread)

    async def _transaction(self, seconds: float) -> AsyncTransaction:
        return self._core.transaction(seconds)

    def schema(self, topic: str, version: bytes = b"") -> TopicSchema:
        """Returns the newest schema of a topic, or the schema with a given version.

        :param topic: the name of the topic
        :param version: the version of the schema, such as ``schema_version`` of a message; empty: the newest
            version
        :raises TopicNotFound: the topic has no schema
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._run(self._core.schema(topic, version))

    def get_topic_partitions(self, topic: str, *, create: bool = True) -> list[str]:
        """Returns the full names of a topic's partitions; for a topic without partitions, the name of the
        topic.

        :param topic: the name of the topic
        :param create: whether to create the topic if it does not exist, and if the broker permits this
        :raises TopicNotFound: the topic does not exist, and ``create`` is False
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._run(self._core.get_topic_partitions(topic, create=create))

    @property
    def service(self) -> ClusterAddress:
        """The cluster that the client currently uses."""
        return self._core.service

    def use_service(self, service: ClusterAddress) -> None:
        """Uses another cluster, or other credentials, from now on.

        All connections are closed. Producers and consumers reconnect to the new cluster, and producers send
        all messages again for which they have no receipt.

        :param service: the address of the cluster, with its credentials
        :raises InvalidUrl: the service URL is malformed
        :raises InvalidConfiguration: the credentials cannot be used with the service URL
        """
        self._run(self._use_service(service))

    async def _use_service(self, service: ClusterAddress) -> None:
        self._core.use_service(service)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed and not self._thread.is_forked:
            work.close()
            raise AlreadyClosed(_CLOSED)
        return self._thread.run(work)

    def close(self) -> None:
        """Closes all producers, consumers and readers of the client, then its connections. Idempotent.

        :raises PulsarException: one of them could not be closed; all others are closed
        """
        if self._closed:
            return
        self._closed = True
        if self._thread.is_forked:
            # In a forked child process: the connections belong to the parent process.
            return
        try:
            self._thread.run(self._core.close())
        finally:
            self._thread.close()

    def __repr__(self) -> str:
        return repr(self._core)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _made(
    service_url: str | ClusterFailover | ControlledClusterFailover,
    thread: LoopThread,
    options: ClientArguments,
) -> core.Client:
    return core.Client(service_url, io=thread.io, **options)


class Producer(ClosedByWith):
    """A producer; see :meth:`Client.create_producer`."""

    def __init__(
        self,
        producer: AsyncProducer | PartitionedProducer,
        thread: LoopThread,
        slots: Slots | None,
        room: ByteSlots | None = None,
        *,
        schema: ProducerSchema | ValueSchema | None = None,
        keeps_context: bool = False,
    ) -> None:
        """:param slots: a semaphore with one slot per pending message, on which senders wait while the queue
            is full; None: senders get ProducerQueueIsFull instead

        :param room: a semaphore over the bytes of the memory limit, on which senders wait; None: senders do
            not wait for memory
        :param schema: the schema of the producer; None: payloads are bytes
        :param keeps_context: whether the loop runs each send in the context (``contextvars``) of the caller,
            as tracing requires
        """
        self._producer = producer
        self._thread = thread
        self._slots = slots
        self._room = room
        self._schema = schema
        self._keeps_context = keeps_context

    def __repr__(self) -> str:
        return repr(self._producer)

    def topic(self) -> str:
        """The full name of the topic."""
        return self._producer.topic()

    def producer_name(self) -> str:
        """The name given by the program, or the name that the broker chose."""
        return self._producer.producer_name()

    def last_sequence_id(self) -> int:
        """The sequence id of the last published message; -1: no message was published yet."""
        return self._producer.last_sequence_id()

    def is_connected(self) -> bool:
        """Whether a connection to the broker exists now; a lost connection is replaced automatically."""
        return self._producer.is_connected()

    @property
    def stats(self) -> ProducerStats:
        """The present statistics of this producer."""
        return self._thread.run(self._stats())

    async def _stats(self) -> ProducerStats:
        return self._producer.stats

    def send(self, content: object, **options: Any) -> MessageId:
        """Publishes one message and waits for the receipt.

        :param content: the payload as bytes; for a producer with a schema of ``magnetar.client.schemas``, a
            value, or None together with ``null_value``
        :param options: the fields of :class:`MessageOptions`, and ``sequence_id``, by which the broker
            recognizes duplicates
        :returns: the id of the message; its entry id is -1 if the broker recognized the message as a
            duplicate
        :raises ProducerQueueIsFull: too many messages are pending, and ``block_if_queue_full`` is off
        :raises MessageTooBig: the message is larger than the broker accepts
        :raises InvalidMessage: an option is out of range, or contradicts others
        :raises Timeout: no receipt within the send time-out; the message may still have been published
        :raises PulsarException: the producer is closed or has failed permanently
        """
        if self._slots is not None or self._keeps_context:
            return self._thread.run(self._producer.send(content, **options))
        data = content_of(content, self._schema, options)
        outcome: Outcome[MessageId] = Outcome()
        number = options.pop("sequence_id", None)
        message_id = self._thread.outcome(outcome, self._enqueue_now, data, outcome.told, number, options)
        return message_id if message_id is not None else MessageId()

    def _enqueue_now(
        self,
        content: bytes,
        told: Callable[[MessageId | None, BaseException | None], object],
        sequence_id: int | None,
        options: Mapping[str, object],
    ) -> None:
        producer = self._producer
        said = None
        try:
            said = producer.message_options(options)
            producer.enqueue(content, told, sequence_id, said)
        except Exception as error:  # noqa: BLE001 - raised in the waiting thread
            if isinstance(error, PulsarException):
                note_failure(said, error)
            told(None, error)
        else:
            producer.send_batches()

    def send_async(
        self, content: object, callback: Callable[[Result, MessageId | None], object], **options: object
    ) -> None:
        """Publishes one message without waiting for the receipt.

        If too many messages are pending, the call waits if ``block_if_queue_full`` is on; otherwise the
        callback gets ProducerQueueIsFull.

        :param content: as for :meth:`send`
        :param callback: called with the result and the id of the message (None after an error), in the
            client's thread, which it must not block
        :param options: as for :meth:`send`
        :raises InvalidMessage: the value does not match the schema
        :raises AlreadyClosed: the client is closed
        """
        data = content_of(content, self._schema, options)
        slots, room = self._slots, self._room
        try:
            if slots is not None:
                self._thread.check_process()
                slots.take()
            if room is not None:
                room.take(len(data))
        except RuntimeError as error:
            raise AlreadyClosed(_CLOSED) from error
        try:
            if self._keeps_context:
                self._thread.post(copy_context().run, self._enqueue, data, callback, options)
            else:
                self._thread.post(self._enqueue, data, callback, options)
        except AlreadyClosed:
            if slots is not None:
                slots.put_back()
            if room is not None:
                room.give(len(data))
            raise

    def _enqueue(
        self,
        content: bytes,
        callback: Callable[[Result, MessageId | None], object],
        options: dict[str, Any],
    ) -> None:
        slots, room = self._slots, self._room
        loop = self._thread.loop

        def done(message_id: MessageId | None, error: PulsarException | None) -> None:
            if slots is not None:
                slots.give()
            if room is not None:
                room.give(len(content))
            try:
                callback(_OK if error is None else error.result, message_id)
            except Exception as failure:  # noqa: BLE001 - reported
                report(loop, callback, failure)

        producer = self._producer
        said = None
        try:
            if options:
                sequence_id = options.pop("sequence_id", None)
                said = producer.message_options(options)
                producer.enqueue_or_wait(content, done, sequence_id, said)
            else:
                producer.enqueue_or_wait(content, done, None, None)
        except PulsarException as error:
            note_failure(said, error)
            done(None, error)

    def flush(self) -> None:
        """Sends the open batches, and waits until no message is pending. Errors of messages are passed to
        their callbacks.

        :raises AlreadyClosed: the client is closed
        """
        self._thread.run(self._flush())

    async def _flush(self) -> None:
        await self._producer.flush()

    def close(self) -> None:
        """Publishes pending messages, within the operation time-out, then closes the producer. Idempotent.

        :raises PulsarException: the broker refused
        """
        self._thread.run(self._producer.close())


class TableView(ClosedByWith):
    """A mapping from each key of a topic to its newest payload or decoded value; see
    :meth:`Client.create_table_view`.
    """

    def __init__(self, view: AsyncTableView, thread: LoopThread) -> None:
        self._view = view
        self._thread = thread

    def __len__(self) -> int:
        return len(self._view)

    def __contains__(self, key: object) -> bool:
        return key in self._view

    def get(self, key: str) -> Value:
        """Returns the newest payload of a key, or the decoded value if the view has a schema of
        ``magnetar.client.schemas``; None if the topic has no message with this key.

        :param key: the ``partition_key`` of messages
        :raises InvalidMessage: the payload does not match the schema
        :raises PulsarException: the schema with which the message was written could not be looked up
        """
        return self._view.get(key)

    def contents(self) -> dict[str, Value]:
        """Returns a copy of the mapping: the newest payload or decoded value of each key.

        :raises PulsarException: as for :meth:`get`, for any of the keys
        """
        return self._view.contents()

    def listen(self, listener: Listener) -> dict[str, Value]:
        """Calls ``listener`` for each later change; returns a copy of the mapping before these changes.

        :param listener: called with a key and its new payload (empty after a deletion) or, with a schema, its
            new value (None after a deletion). The listener runs in the client's loop, which it must not block
        :raises AlreadyClosed: the client is closed
        :raises PulsarException: as for :meth:`contents`; the listener is then not registered
        """
        return self._thread.run(self._listen(listener))

    async def _listen(self, listener: Listener) -> dict[str, Value]:
        return self._view.listen(listener)

    def close(self) -> None:
        """Closes the view. Idempotent.

        :raises PulsarException: the broker refused
        """
        self._thread.run(self._view.close())
