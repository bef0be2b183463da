"""Opening and closing consumers, acknowledgement, redelivery, seek, and queries about consumers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.broker.connections import answers, permissions
from magnetar.broker.connections.connection import Connection
from magnetar.broker.consumers.consumer import MAX_BATCH, Consumer, ConsumerFacts, RangedConsumer
from magnetar.broker.dispatch.key_shared import KeySharedMode, KeySharedPolicy
from magnetar.broker.dispatch.key_shared.consumer import KeyedConsumer
from magnetar.broker.schemas.data import SchemaType, from_wire
from magnetar.broker.subscriptions.base import BaseSubscription, BatchAck, SubscriptionType
from magnetar.broker.subscriptions.cursor_kinds import COMPACTION
from magnetar.broker.subscriptions.persistent import Subscription, acknowledge_in, seek_to
from magnetar.broker.topics.any_topic import AnyTopic, for_consumer
from magnetar.broker.topics.entries import first_published_at, iso_time, last_message
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.errors import (
    BrokerError,
    ConsumerBusy,
    ConsumerNotFound,
    InvalidRequest,
    MetadataFailure,
    NotAllowed,
    ServiceNotReady,
    SubscriptionNotFound,
)
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import EARLIEST, LATEST, LATEST_ID, Position
from magnetar.managed_ledger.records import bits_from_words
from magnetar.metadata.interface import MetadataError
from magnetar.protocol.frames import signed, unsigned
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandGetLastMessageId,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    KeySharedMeta,
    MessageIdData,
)

if TYPE_CHECKING:
    from magnetar.broker.transactions.pending_acks import Acked

log = logging.getLogger(__name__)

_NO_EPOCH = -1


def position_of(message_id: MessageIdData) -> Position:
    return signed(message_id.ledgerId), signed(message_id.entryId)


def start_of(message_id: MessageIdData) -> Position:
    """Returns the first position to deliver for a message id of SUBSCRIBE or SEEK; the message with this id
    is delivered, too.
    """
    ledger_id, entry_id = position_of(message_id)
    if ledger_id < 0:
        return EARLIEST
    if ledger_id == LATEST_ID:
        return LATEST
    return ledger_id, entry_id


def _consumer(connection: Connection, consumer_id: int) -> Consumer[BaseSubscription]:
    consumer = connection.session.consumers.get(signed(consumer_id))
    if consumer is None:
        raise ConsumerNotFound(f"Consumer {consumer_id} not found on this connection")
    return consumer


async def subscribe(connection: Connection, request: CommandSubscribe) -> None:
    """Handles SUBSCRIBE → SUCCESS; then the client grants permits."""
    consumer_id = signed(request.consumer_id)
    known = connection.session.consumers.get(consumer_id)
    if known is not None and not known.closed:
        connection.send_success(request.request_id)
        return
    if consumer_id in connection.session.opening_consumers:
        raise ServiceNotReady("Consumer[Subscription] is already present on the connection")
    most = connection.broker.settings.max_consumers_per_connection
    if most and len(connection.session.consumers) + len(connection.session.opening_consumers) >= most:
        raise NotAllowed(
            f"The connection already has {most} consumers, the maximum (magnetarMaxConsumersPerConnection); "
            "close some of them first"
        )
    opening = connection.session.opening_consumers[consumer_id] = object()
    try:
        await _subscribe(connection, request, opening)
    finally:
        if connection.session.opening_consumers.get(consumer_id) is opening:
            del connection.session.opening_consumers[consumer_id]


async def _subscribe(connection: Connection, request: CommandSubscribe, opening: object) -> None:
    broker, principal = connection.broker, connection.session.principal
    name = broker.parse_topic(request.topic)
    standing = permissions.Standing(connection, permissions.SUBSCRIBE, request)
    await standing.check()
    kind = _kind(request)
    if request.read_compacted and kind not in (SubscriptionType.Exclusive, SubscriptionType.Failover):
        raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
    if request.read_compacted and not name.persistent:
        raise NotAllowed("readCompacted only valid on persistent topics")
    if request.subscription == COMPACTION:
        raise NotAllowed(f"Subscription {COMPACTION} is reserved for compaction: it accepts no consumers")
    schema = from_wire(request.schema) if request.HasField("schema") else None
    async with connection.requests.opening():
        topic = await broker.topics.load(name, create=request.force_topic_creation, principal=principal)
    topic.check_open()
    known = topic.subscriptions.get(request.subscription)
    if known is not None:
        _drop_gone(known)
    cap = topic.policies.max_consumers
    if cap and topic.subscriptions.consumer_count() >= cap:
        raise ConsumerBusy("Topic reached max consumers limit")
    topic.subscriptions.check_consumers_of(connection.address)
    known = topic.subscriptions.get(request.subscription)
    if known is not None:
        known.check_type(kind)
        await _check_taken(known, kind)
    _check_rate(connection, topic, request)
    _check_allowed(kind, topic.policies.subscription_types, key_shared=broker.settings.key_shared_enabled)
    await for_consumer(broker.schemas, topic, schema)
    start = await _start(topic, request)
    properties = {pair.key: pair.value for pair in request.subscription_properties}
    # A reader that comes back after a seek gets the cursor that was kept for it, with its position.
    async with connection.requests.opening():
        subscription = await topic.subscriptions.subscribe(
            request.subscription,
            start,
            properties,
            durable=request.durable,
            create=_may_create(topic, request),
            principal=principal,
        )
    topic.check_open()
    try:
        if request.replicate_subscription_state and isinstance(subscription, Subscription):
            await _replicate(subscription, enabled=broker.settings.replication.subscriptions.enabled)
        if isinstance(subscription, Subscription) and not subscription.knows_pending:
            await subscription.topic.pending_acks.of(subscription, create=False)
        await standing.check()
        topic.check_open()
    except BaseException:
        subscription.drop_if_unused()
        raise
    consumer = _make_consumer(connection, request, kind, subscription, topic.name.partition_index)
    consumer.shows_broker_entry_metadata = (
        broker.settings.show_broker_entry_metadata and connection.session.supports_entry_metadata
    )
    consumer.read_compacted = request.read_compacted
    consumer.takes_any_schema = schema is not None and schema.type is SchemaType.AUTO_CONSUME
    if (
        connection.closed
        or connection.session.opening_consumers.get(signed(request.consumer_id)) is not opening
    ):
        # The client has disconnected or sent CLOSE_CONSUMER meanwhile.
        subscription.drop_if_unused()
        return
    there = subscription.moved_to()
    if there is not None and connection.send_migrated(consumer, there):
        # TOPIC_MIGRATED replaces the response; the request itself gets none (PIP-188).
        connection.close_consumer(consumer)
        subscription.drop_if_unused()
        return
    subscription.add(consumer, kind, topic.policies.max_consumers_per_subscription)
    connection.session.consumers[consumer.consumer_id] = consumer
    connection.send_success(request.request_id)
    if topic.terminated:
        subscription.check_end_of_topic()


def _epoch(
    request: CommandSubscribe | CommandRedeliverUnacknowledgedMessages, kind: SubscriptionType | None
) -> int | None:
    """Returns the consumer epoch to send with messages; None if the request has no epoch, or if the
    subscription type does not deliver in order and so has no epochs.
    """
    if kind not in (SubscriptionType.Exclusive, SubscriptionType.Failover):
        return None
    epoch = signed(request.consumer_epoch) if request.HasField("consumer_epoch") else _NO_EPOCH
    return None if epoch == _NO_EPOCH else epoch


async def _replicate(subscription: Subscription, *, enabled: bool) -> None:
    if not enabled:
        log.warning(
            "subscription not replicated although requested: enableReplicatedSubscriptions is false",
            extra={"topic": subscription.topic.full_name, "subscription": subscription.name},
        )
    elif subscription.durable and not subscription.replicated:
        subscription.replicate(True)
        await subscription.cursor.flush()


def _make_consumer(
    connection: Connection,
    request: CommandSubscribe,
    kind: SubscriptionType,
    subscription: BaseSubscription,
    partition: int,
) -> Consumer[BaseSubscription]:
    of_all: ConsumerFacts = {
        "principal": connection.session.principal,
        "priority": request.priority_level,
        "epoch": _epoch(request, kind),
        "metadata": {pair.key: pair.value for pair in request.metadata},
        "connected_ms": connection.broker.io.clock.wall_ms(),
        "partition": partition,
    }
    consumer_id, name = signed(request.consumer_id), request.consumer_name
    if kind is SubscriptionType.Key_Shared:
        policy = _key_shared_policy(request.keySharedMeta)
        return KeyedConsumer(policy, subscription, connection, consumer_id, name, **of_all)
    ranges = [(each.start, each.end) for each in request.keySharedMeta.hashRanges]
    if ranges and kind is SubscriptionType.Exclusive:
        return RangedConsumer(ranges, subscription, connection, consumer_id, name, **of_all)
    return Consumer(subscription, connection, consumer_id, name, **of_all)


def _key_shared_policy(asked: KeySharedMeta) -> KeySharedPolicy:
    """Returns the Key_Shared policy of a consumer. If the request has no policy, the slots are divided among
    all consumers automatically.
    """
    return KeySharedPolicy(
        KeySharedMode(asked.keySharedMode),
        tuple((each.start, each.end) for each in asked.hashRanges),
        asked.allowOutOfOrderDelivery,
    )


def _may_create(topic: AnyTopic, request: CommandSubscribe) -> bool:
    return not request.durable or topic.policies.auto_subscriptions or not topic.name.persistent


def _check_allowed(kind: SubscriptionType, enabled: Sequence[str], *, key_shared: bool) -> None:
    if kind is SubscriptionType.Key_Shared and not key_shared:
        raise NotAllowed("Key_Shared subscription is disabled by subscriptionKeySharedEnable")
    if kind.name not in enabled:
        raise NotAllowed(f"Subscription type {kind.name} is not allowed by subscriptionTypesEnabled")


def _check_rate(connection: Connection, topic: AnyTopic, request: CommandSubscribe) -> None:
    """Checks the subscribe rate of a consumer.

    :raises NotAllowed: this consumer exceeds the subscribe rate
    """
    limiter = topic.subscribe_limiter
    if limiter is not None:
        consumer = (connection.host, request.consumer_name, request.consumer_id)
        if not limiter.admits(consumer, topic.clock.monotonic()):
            raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")


def _kind(request: CommandSubscribe) -> SubscriptionType:
    try:
        kind = SubscriptionType(request.subType)
    except ValueError as error:
        raise InvalidRequest(f"unknown subscription type {request.subType}") from error
    if not request.subscription:
        raise InvalidRequest("Subscription name is empty")
    if request.priority_level < 0:
        raise InvalidRequest(f"Priority level {request.priority_level} is below 0")
    return kind


def _drop_gone(subscription: BaseSubscription) -> None:
    """Removes the remaining consumers whose connection is closed. Otherwise the consumers of a closed
    connection are removed one after another, and the removal of many consumers takes a while.
    """
    for consumer in [one for one in subscription.consumers if one.connection.closed]:
        subscription.remove(consumer)


async def _check_taken(subscription: BaseSubscription, kind: SubscriptionType) -> None:
    """Pings the exclusive consumer, whose connection may be dead, before another consumer is refused."""
    if kind is SubscriptionType.Exclusive and subscription.consumers:
        await subscription.consumers[0].connection.is_alive()
        _drop_gone(subscription)


async def _start(topic: AnyTopic, request: CommandSubscribe) -> Position:
    if isinstance(topic, NonPersistentTopic):
        return LATEST
    if request.start_message_rollback_duration_sec:
        since = topic.clock.wall_ms() - request.start_message_rollback_duration_sec * 1000
        return await first_published_at(topic.managed_ledger, since)
    if request.HasField("start_message_id"):
        return start_of(request.start_message_id)
    if request.initialPosition == CommandSubscribe.Earliest:
        return EARLIEST
    return LATEST


def flow(connection: Connection, command: BaseCommand) -> None:
    consumer = connection.session.consumers.get(signed(command.flow.consumer_id))
    if consumer is not None:
        consumer.subscription.flow(consumer, command.flow.messagePermits)


def acknowledge(connection: Connection, command: BaseCommand) -> None:
    """Handles an ACK that is not in the plain form: cumulative, inside batches, or with a receipt."""
    request = command.ack
    error: BrokerError | None = None
    if request.HasField("txnid_most_bits") or request.HasField("txnid_least_bits"):
        connection.start(_acknowledge_in_transaction(connection, request), "acknowledging in a transaction")
        return
    try:
        _acknowledge(_consumer(connection, request.consumer_id), request)
    except BrokerError as refused:
        # The consumer may just have been closed, by a seek or an unload: a receipt must not confirm the
        # acknowledgement.
        error = refused
    _send_receipt(connection, request, error)


async def _acknowledge_in_transaction(connection: Connection, request: CommandAck) -> None:
    error: BrokerError | None = None
    try:
        consumer = _consumer(connection, request.consumer_id)
        subscription = consumer.subscription
        if not isinstance(subscription, Subscription):
            raise NotAllowed("A subscription of a non-persistent topic has no transactions")
        txn = (signed(request.txnid_most_bits), signed(request.txnid_least_bits))
        acked = [_acked(each) for each in request.message_id]
        cumulative = request.ack_type == CommandAck.Cumulative
        await acknowledge_in(subscription, txn, consumer, acked, cumulative=cumulative)
    except BrokerError as refused:
        error = refused
    _send_receipt(connection, request, error)


def _acked(message_id: MessageIdData) -> Acked:
    from magnetar.broker.transactions.pending_acks import Acked

    if not message_id.ack_set:
        return Acked(position_of(message_id))
    batch = _batch(message_id)
    return Acked(batch.position, batch.remaining, batch.batch_size, len(message_id.ack_set))


def _send_receipt(connection: Connection, request: CommandAck, error: BrokerError | None) -> None:
    if request.HasField("request_id"):
        answer = BaseCommand(type=BaseCommand.ACK_RESPONSE)
        answer.ackResponse.consumer_id = request.consumer_id
        answer.ackResponse.request_id = request.request_id
        if error is not None:
            answers.put_error(answer.ackResponse, error)
        connection.send(answer)


def _acknowledge(consumer: Consumer[BaseSubscription], request: CommandAck) -> None:
    subscription = consumer.subscription
    if request.ack_type == CommandAck.Cumulative:
        if len(request.message_id) != 1:
            raise InvalidRequest(
                f"A cumulative acknowledgement must have one message id, not {len(request.message_id)}"
            )
        message_id = request.message_id[0]
        batch = _batch(message_id) if message_id.ack_set else None
        subscription.acknowledge_cumulative(consumer, position_of(message_id), batch)
        return
    positions = [position_of(m) for m in request.message_id if not m.ack_set]
    batches = [_batch(m) for m in request.message_id if m.ack_set]
    subscription.acknowledge(consumer, positions, batches)


def _batch(message_id: MessageIdData) -> BatchAck:
    size = max(0, message_id.batch_size)
    if size > MAX_BATCH or len(message_id.ack_set) * 64 > MAX_BATCH:
        raise InvalidRequest(
            f"The batch size of an acknowledgement exceeds the maximum of {MAX_BATCH} messages"
        )
    return BatchAck(position_of(message_id), bits_from_words(message_id.ack_set), size)


def redeliver(connection: Connection, command: BaseCommand) -> None:
    request = command.redeliverUnacknowledgedMessages
    consumer = connection.session.consumers.get(signed(request.consumer_id))
    if consumer is None:
        return
    epoch = _epoch(request, consumer.subscription.type)
    if epoch is not None:
        consumer.epoch = epoch
    positions = [position_of(m) for m in request.message_ids] or None
    consumer.subscription.redeliver(consumer, positions)


def _check_unsubscribe(
    subscription: BaseSubscription, consumer: Consumer[BaseSubscription], *, force: bool
) -> None:
    """Checks that a consumer may unsubscribe.

    :raises SubscriptionNotFound: the consumer has left the subscription
    :raises MetadataFailure: other consumers are connected and ``force`` is false (Pulsar uses this error)
    """
    if consumer not in subscription.consumers:
        raise SubscriptionNotFound("The consumer is no longer connected to the subscription")
    if len(subscription.consumers) > 1 and not force:
        raise MetadataFailure(
            "Unconnected or shared consumer attempting to unsubscribe: other consumers are connected"
        )


async def unsubscribe(connection: Connection, request: CommandUnsubscribe) -> None:
    consumer = _consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    _check_unsubscribe(subscription, consumer, force=request.force)
    subscription.fence()
    subscription.stop_sending()
    for other in list(subscription.consumers):
        if other is not consumer:
            other.connection.close_consumer(other)
        subscription.remove(other)
    try:
        await subscription.topic.subscriptions.unsubscribe(subscription.name)
    except (LedgerError, ManagedLedgerError, MetadataError):
        # The consumer gets nothing any more, but its client takes it for open: closing it makes the client
        # open it again. It is closed after the answer: while waiting for that the client would not.
        if connection.session.consumers.get(consumer.consumer_id) is consumer:
            connection.broker.io.loop.call_soon(connection.close_consumer, consumer)
        raise
    # The client may have reused the id for another consumer meanwhile.
    connection.session.forget_consumer(consumer)
    connection.send_success(request.request_id)


async def close_consumer(connection: Connection, request: CommandCloseConsumer) -> None:
    connection.session.opening_consumers.pop(signed(request.consumer_id), None)
    consumer = connection.session.consumers.pop(signed(request.consumer_id), None)
    if consumer is not None:
        consumer.subscription.remove(consumer)
    connection.send_success(request.request_id)


async def seek(connection: Connection, request: CommandSeek) -> None:
    """Handles SEEK → CLOSE_CONSUMER for all consumers, then SUCCESS: the consumers reconnect and read from
    the new position.
    """
    consumer = _consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    if not isinstance(subscription, Subscription):
        # Non-persistent messages cannot be read again: consumers stay connected and get new messages.
        connection.send_success(request.request_id)
        return
    if request.HasField("message_id"):
        target = start_of(request.message_id)
        bits = _batch(request.message_id).remaining
    elif request.HasField("message_publish_time"):
        target = await _position_at(consumer, subscription, request.message_publish_time)
        bits = 0
    else:
        raise InvalidRequest("SEEK has neither a message id nor a time")
    await seek_to(subscription, target, bits)
    connection.send_success(request.request_id)


async def _position_at(
    consumer: Consumer[BaseSubscription], subscription: Subscription, time_ms: int
) -> Position:
    """Returns the position for a seek to a publish time. For a consumer that reads the compacted topic, the
    result may be the position of a trimmed message that the compacted ledger has kept."""
    topic = subscription.topic
    position = await first_published_at(topic.managed_ledger, time_ms)
    compacted = topic.compaction.current
    ledgers = topic.managed_ledger.ledgers
    if not consumer.read_compacted or compacted is None or position > ledgers.first_at_or_after((0, 0)):
        return position
    found = await compacted.first_published_at(time_ms)
    return position if found is None else min(position, found)


async def last_message_id(connection: Connection, request: CommandGetLastMessageId) -> None:
    consumer = _consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    if not isinstance(subscription, Subscription):
        raise NotAllowed("A non-persistent topic stores no messages: it has no last message id")
    topic = subscription.topic
    position, batch_index = await _last_of(consumer, subscription)
    answer = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
    response = answer.getLastMessageIdResponse
    response.request_id = request.request_id
    _fill(response.last_message_id, position)
    response.last_message_id.partition = topic.name.partition_index
    response.last_message_id.batch_index = batch_index
    _fill(response.consumer_mark_delete_position, subscription.cursor.mark_delete)
    connection.send(answer)


async def _last_of(consumer: Consumer[BaseSubscription], subscription: Subscription) -> tuple[Position, int]:
    """Returns the position of the last message that a consumer will get, and the message's index in its batch
    (-1: not in a batch)."""
    topic = subscription.topic
    position, batch_size = await last_message(topic.managed_ledger, topic.transactions)
    compacted = topic.compaction.current
    nothing_since = compacted is not None and (position[1] < 0 or position <= compacted.horizon)
    if consumer.read_compacted and compacted is not None and nothing_since:
        # Messages that compaction left out are never sent.
        last = await compacted.last()
        return ((-1, -1), -1) if last is None else last
    return position, batch_size - 1 if batch_size else -1


def _fill(message_id: MessageIdData, position: Position) -> None:
    message_id.ledgerId = unsigned(position[0])
    message_id.entryId = unsigned(position[1])


def consumer_stats(connection: Connection, command: BaseCommand) -> None:
    request = command.consumerStats
    answer = BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE)
    response = answer.consumerStatsResponse
    response.request_id = request.request_id
    consumer = connection.session.consumers.get(signed(request.consumer_id))
    if consumer is None:
        error = ConsumerNotFound(f"Consumer {request.consumer_id} not found")
        response.error_code = int(error.code)  # type: ignore[assignment]
        response.error_message = str(error)
    else:
        subscription = consumer.subscription
        response.msgRateOut = consumer.rate_out.per_second
        response.msgThroughputOut = consumer.rate_out.bytes_per_second
        response.msgRateRedeliver = consumer.redelivered.per_second
        response.consumerName = consumer.name
        response.availablePermits = max(0, consumer.permits)
        response.unackedMessages = consumer.unacked
        response.blockedConsumerOnUnackedMsgs = consumer.blocked
        response.address = f"/{consumer.address}"
        response.connectedSince = iso_time(consumer.connected_ms)
        response.type = subscription.type.name if subscription.type is not None else "None"
        response.msgRateExpired = 0.0
        response.msgBacklog = subscription.backlog()
        response.messageAckRate = consumer.acks.per_second
    connection.send(answer)
