"""The official client's asyncio interface, ``pulsar.asyncio``, for any event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from functools import partial
from typing import TypeVar

import magnetar.pulsar.client as blocking
from magnetar.client.blocking_consumer import FetchedMessages
from magnetar.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    CryptoFailureAction,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from magnetar.client.exceptions import AlreadyClosed, CumulativeAcknowledgementNotAllowedError, Result
from magnetar.client.exceptions import PulsarException as ClientError
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.message import Acknowledged, Message
from magnetar.client.message_id import MessageId
from magnetar.client.options import PatternOptions
from magnetar.client.partitioned import PartitionedProducer
from magnetar.client.producer import Producer as AsyncProducer
from magnetar.client.reader import Reader as AsyncReader
from magnetar.pulsar.boundary import Answers, Calls, check_type, checked
from magnetar.pulsar.client import Subscribing, consumer_options, producer_options
from magnetar.pulsar.faces import AnyConsumer, encoded, message_options
from magnetar.pulsar.message import MessageRouter, PulsarMessage, TopicMessageId, acknowledged, known
from magnetar.pulsar.policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    PemKeyReader,
)
from magnetar.pulsar.schema.schema import BytesSchema, Schema

T = TypeVar("T")
ConsumerCryptoFailureAction = CryptoFailureAction


class AsyncPulsarException(Exception):
    """An error of the asyncio interface; :meth:`error` returns its result code."""

    def __init__(self, result: Result, msg: str | None = None) -> None:
        self._result = result
        self._msg = msg

    def error(self) -> Result:
        return self._result

    def __str__(self) -> str:
        text = f"{self._result.value} {self._result.name}"
        return f"{text}: {self._msg}" if self._msg else text


PulsarException = AsyncPulsarException
AsyncPulsarException.__name__ = AsyncPulsarException.__qualname__ = "PulsarException"


async def _run(calls: Calls, work: Coroutine[object, object, T]) -> T:
    """Runs ``work`` in the client's loop, and returns its result.

    :raises AsyncPulsarException: ``work`` raised an error of the client, whose result code this exception has
    """
    try:
        return await calls.run_beside(work)
    except ClientError as error:
        raise AsyncPulsarException(error.result, str(error)) from error


class Producer:
    """A producer; see :meth:`Client.create_producer`."""

    def __init__(
        self, calls: Calls, producer: AsyncProducer | PartitionedProducer, schema: Schema, *, waits: bool
    ) -> None:
        """:param waits: whether senders wait while too many messages are pending; otherwise they get
        ProducerQueueIsFull
        """
        self._calls = calls
        self._producer = producer
        self._schema = schema
        self._waits = waits
        self._answers: Answers | None = None

    async def send(
        self,
        content: object,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> TopicMessageId:
        """Publishes one message and waits for the receipt.

        :raises PulsarException: the message was not published, or no receipt came in time
        """
        options = message_options(
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            bool(disable_replication),
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        if sequence_id is not None:
            options["sequence_id"] = sequence_id
        data = encoded(self._schema, content, options)
        try:
            if self._waits:
                message_id = await self._calls.run_beside(self._send(data, options))
            else:
                message_id = await self._sent(data, options)
        except ClientError as error:
            raise AsyncPulsarException(error.result, str(error)) from error
        return known(message_id, self.topic())

    async def _send(self, data: bytes, options: dict[str, object]) -> MessageId:
        number = options.pop("sequence_id", None)
        return await self._producer.send(
            data, sequence_id=number if isinstance(number, int) else None, **options
        )

    async def _sent(self, data: bytes, options: dict[str, object]) -> MessageId:
        """Like :meth:`_send`, but creates no task for each message: several messages that are sent together
        wake up the client's event loop only once, and receipts that arrive together wake up the program's
        event loop only once.
        """
        loop = asyncio.get_running_loop()
        answers = self._answers
        if answers is None or answers.loop is not loop:
            answers = self._answers = Answers(loop)
        published: asyncio.Future[MessageId] = loop.create_future()
        self._calls.post(self._enqueue, data, options, answers, published)
        return await published

    def _enqueue(
        self,
        data: bytes,
        options: dict[str, object],
        answers: Answers,
        published: asyncio.Future[MessageId],
    ) -> None:
        """Sends a message; called in the client's thread.

        :param answers: completes ``published`` with the id of the message, or with an error
        """
        number = options.pop("sequence_id", None)
        producer = self._producer
        try:
            producer.enqueue(
                data,
                partial(answers.post, published),
                number if isinstance(number, int) else None,
                producer.message_options(options),
            )
        except Exception as error:  # noqa: BLE001 - raised by the sender, who would wait for ever otherwise
            answers.post(published, None, error)

    async def flush(self) -> None:
        """Sends the open batches, and waits until no message is pending."""
        await _run(self._calls, self._flush())

    async def _flush(self) -> None:
        await self._producer.flush()

    async def close(self) -> None:
        """Publishes pending messages, then closes the producer."""
        await _run(self._calls, self._producer.close())

    def topic(self) -> str:
        return self._producer.topic()

    def producer_name(self) -> str:
        return self._producer.producer_name()

    def last_sequence_id(self) -> int:
        """Returns the sequence id of the last published message; -1: no message was published yet."""
        return self._producer.last_sequence_id()

    def is_connected(self) -> bool:
        return not self._calls.closed and self._producer.is_connected()


class Consumer:
    """A consumer; see :meth:`Client.subscribe`."""

    def __init__(self, calls: Calls, consumer: AnyConsumer, schema: Schema, kind: ConsumerType) -> None:
        self._calls = calls
        self._consumer = consumer
        self._schema = schema
        self._kind = kind
        self._fetched = FetchedMessages(consumer, calls.thread)
        self._by_topic = isinstance(consumer, TopicsConsumer)

    async def receive(self) -> PulsarMessage:
        """Waits for the next message, and returns it.

        :raises PulsarException: the consumer is closed or has failed permanently
        """
        fetched = self._fetched
        while (message := fetched.next()) is None:
            # Another task may receive the message that this one fetches: then it fetches again.
            await _run(self._calls, fetched.fetch(None))
        return PulsarMessage._wrap(message, self._schema)

    def _meant(self, message: object) -> Acknowledged:
        return acknowledged(message, by_topic=self._by_topic)

    async def acknowledge(self, message: PulsarMessage | MessageId | Message) -> None:
        """Acknowledges one message.

        :raises PulsarException: the consumer is closed
        """
        meant = self._meant(message)
        if self._by_topic or self._consumer.has_receipts:
            await _run(self._calls, self._consumer.acknowledge(meant))
            return
        try:
            if self._calls.closed:
                raise AlreadyClosed("the client is closed")
            self._consumer.check_open()
            self._fetched.acknowledge(meant)
        except ClientError as error:
            raise AsyncPulsarException(error.result, str(error)) from error

    async def acknowledge_cumulative(self, message: PulsarMessage | MessageId | Message) -> None:
        """Acknowledges all messages up to and including the given message.

        :raises PulsarException: the subscription is Shared or KeyShared, or the consumer is closed
        """
        await _run(self._calls, self._acknowledge_until(self._meant(message)))

    async def _acknowledge_until(self, meant: Acknowledged) -> None:
        if self._kind in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise CumulativeAcknowledgementNotAllowedError(
                f"a {self._kind.name} subscription allows no cumulative acknowledgement"
            )
        await self._consumer.acknowledge_cumulative(meant)

    async def negative_acknowledge(self, message: PulsarMessage | MessageId | Message) -> None:
        """Requests redelivery of a message after ``negative_ack_redelivery_delay_ms``."""
        await _run(self._calls, self._negative_acknowledge(self._meant(message)))

    async def _negative_acknowledge(self, meant: Acknowledged) -> None:
        self._consumer.negative_acknowledge(meant)

    async def unsubscribe(self) -> None:
        """Deletes the subscription, and closes the consumer."""
        await _run(self._calls, self._consumer.unsubscribe())

    async def seek(self, messageid: MessageId | int) -> None:
        """Seeks: resets the subscription to a message id, or to a publish time in milliseconds since 1970."""
        await _run(self._calls, self._fetched.seek(_target(messageid)))

    async def close(self) -> None:
        """Sends collected acknowledgements, and closes the consumer."""
        await _run(self._calls, self._fetched.close())

    async def get_last_message_id(self) -> TopicMessageId:
        """Returns the id of the topic's last message."""
        return known(await _run(self._calls, self._consumer.get_last_message_id()), self.topic())

    def redeliver_unacknowledged_messages(self) -> None:
        """Requests redelivery of all unacknowledged messages of this consumer."""
        self._calls.thread.post(self._fetched.redeliver)

    def topic(self) -> str:
        return self._consumer.topic()

    def subscription_name(self) -> str:
        return self._consumer.subscription_name()

    def consumer_name(self) -> str:
        return self._consumer.consumer_name()


class Reader:
    """A reader; see :meth:`Client.create_reader`."""

    def __init__(self, calls: Calls, reader: AsyncReader, schema: Schema) -> None:
        self._calls = calls
        self._reader = reader
        self._schema = schema

    async def read_next(self) -> PulsarMessage:
        """Waits for the next message, and returns it.

        :raises PulsarException: the reader is closed or has failed permanently
        """
        return PulsarMessage._wrap(await _run(self._calls, self._reader.read_next()), self._schema)

    async def has_message_available(self) -> bool:
        """Whether the topic has a message after the message that was read last."""
        return await _run(self._calls, self._reader.has_message_available())

    async def seek(self, messageid: MessageId | int) -> None:
        """Seeks: continues reading at a message id, or at a publish time in milliseconds since 1970."""
        await _run(self._calls, self._reader.seek(_target(messageid)))

    async def close(self) -> None:
        """Closes the reader."""
        await _run(self._calls, self._reader.close())

    def topic(self) -> str:
        return self._reader.topic()

    def is_connected(self) -> bool:
        return not self._calls.closed and self._reader.is_connected()


def _target(messageid: object) -> MessageId | int:
    """Checks the target of a seek, and returns it in the form of ``magnetar.client``.

    :raises ValueError: the argument is neither a message id nor a time
    """
    if isinstance(messageid, MessageId | int):
        return messageid
    raise ValueError(f"invalid messageid type {type(messageid)}")


class Client:
    """Producers, consumers and readers of one cluster."""

    def __init__(self, service_url: str, **kwargs: object) -> None:
        """Accepts the options of ``magnetar.pulsar.Client``.

        :raises ValueError: an option has the wrong type, or the URL is malformed
        """
        self._client = blocking.Client.of_options(service_url, kwargs)
        self._calls = self._client.calls
        self._core = self._client.core

    async def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = True,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: PemKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: MessageRouter | None = None,
    ) -> Producer:
        """Creates a producer.

        :param schema: the schema; None: payloads are bytes
        :raises PulsarException: the broker refused the request, or did not answer in time
        """
        used = schema if schema is not None else BytesSchema()
        options = producer_options(
            used,
            {
                "producer_name": producer_name,
                "initial_sequence_id": initial_sequence_id,
                "send_timeout_millis": send_timeout_millis,
                "compression_type": compression_type,
                "max_pending_messages": max_pending_messages,
                "max_pending_messages_across_partitions": max_pending_messages_across_partitions,
                "block_if_queue_full": block_if_queue_full,
                "batching_enabled": batching_enabled,
                "batching_max_messages": batching_max_messages,
                "batching_max_allowed_size_in_bytes": batching_max_allowed_size_in_bytes,
                "batching_max_publish_delay_ms": batching_max_publish_delay_ms,
                "chunking_enabled": chunking_enabled,
                "message_routing_mode": message_routing_mode,
                "lazy_start_partitioned_producers": lazy_start_partitioned_producers,
                "properties": properties,
                "batching_type": batching_type,
                "encryption_key": encryption_key,
                "crypto_key_reader": crypto_key_reader,
                "access_mode": access_mode,
                "message_router": message_router,
            },
        )
        if initial_sequence_id is not None:
            options["initial_sequence_id"] = initial_sequence_id
        used.attach_client(self._client.versions)
        made = await _run(self._calls, checked(self._core.create_producer)(topic, **options))
        return Producer(self._calls, made, used, waits=block_if_queue_full)

    async def subscribe(
        self,
        topic: str | list[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: PemKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = False,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
        is_pattern_topic: bool = False,
    ) -> Consumer:
        """Subscribes to a topic, a list of topics, or all topics that match a pattern.

        :param batch_receive_policy: no effect, as in the official client, whose asyncio consumers have no
            ``batch_receive``
        :param is_pattern_topic: whether ``topic`` is a regular expression
        :raises ValueError: ``topic`` has the wrong type
        :raises PulsarException: the broker refused the request, or did not answer in time
        """
        used = schema if schema is not None else BytesSchema()
        options = consumer_options(
            used,
            {
                "consumer_type": consumer_type,
                "receiver_queue_size": receiver_queue_size,
                "max_total_receiver_queue_size_across_partitions": (
                    max_total_receiver_queue_size_across_partitions
                ),
                "consumer_name": consumer_name,
                "unacked_messages_timeout_ms": unacked_messages_timeout_ms,
                "broker_consumer_stats_cache_time_ms": broker_consumer_stats_cache_time_ms,
                "negative_ack_redelivery_delay_ms": negative_ack_redelivery_delay_ms,
                "is_read_compacted": is_read_compacted,
                "properties": properties,
                "initial_position": initial_position,
                "crypto_key_reader": crypto_key_reader,
                "replicate_subscription_state_enabled": replicate_subscription_state_enabled,
                "max_pending_chunked_message": max_pending_chunked_message,
                "auto_ack_oldest_chunked_message_on_queue_full": (
                    auto_ack_oldest_chunked_message_on_queue_full
                ),
                "start_message_id_inclusive": start_message_id_inclusive,
                "key_shared_policy": key_shared_policy,
                "batch_index_ack_enabled": batch_index_ack_enabled,
                "dead_letter_policy": dead_letter_policy,
                "crypto_failure_action": crypto_failure_action,
            },
        )
        work = Subscribing(self._core, subscription_name, options)
        if isinstance(topic, str):
            subscribed = (
                work.to_pattern(topic, regex_subscription_mode, PatternOptions.discovery_seconds)
                if is_pattern_topic
                else work.to_topic(topic)
            )
        elif isinstance(topic, list):
            if is_pattern_topic:
                raise ValueError(
                    "Argument 'topic' must be a string when 'is_pattern_topic' is True; lists of topics do "
                    "not support pattern subscriptions"
                )
            subscribed = work.to_topics(topic)
        else:
            raise ValueError("Argument 'topic' is expected to be of type 'str' or 'list'")
        used.attach_client(self._client.versions)
        return Consumer(self._calls, await _run(self._calls, subscribed), used, consumer_type)

    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: PemKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
    ) -> Reader:
        """Creates a reader.

        :raises PulsarException: the broker refused the request, or did not answer in time
        """
        used = schema if schema is not None else BytesSchema()
        options: dict[str, object] = {
            "receiver_queue_size": receiver_queue_size,
            "reader_name": reader_name,
            "subscription_role_prefix": subscription_role_prefix,
            "is_read_compacted": is_read_compacted,
            "crypto_key_reader": crypto_key_reader,
            "start_message_id_inclusive": start_message_id_inclusive,
            "crypto_failure_action": crypto_failure_action,
            "schema": used.schema_info().declared(),
        }
        start = check_type(MessageId, start_message_id, "start_message_id")
        used.attach_client(self._client.versions)
        made = await _run(self._calls, checked(self._core.create_reader)(topic, start, **options))
        return Reader(self._calls, made, used)

    def shutdown(self) -> None:
        """Drops all producers, consumers and readers immediately, without closing them at the broker."""
        self._client.shutdown()

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Returns the full names of a topic's partitions; for a topic without partitions, the name of the
        topic.
        """
        return await _run(self._calls, self._core.get_topic_partitions(check_type(str, topic, "topic")))

    async def close(self) -> None:
        """Closes all producers, consumers and readers of the client."""
        try:
            await _run(self._calls, self._core.close())
        finally:
            if not self._calls.closed:
                self._client.shutdown()
