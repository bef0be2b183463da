"""Figures of consumers, producers and subscriptions as they are now, for whoever shows them."""

from __future__ import annotations

from magnetar.broker.dispatch.contract import AnyConsumer
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.publishing.producer import Producer
from magnetar.broker.stats.figures import ConsumerMetrics, ProducerMetrics, SubscriptionMetrics
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription


def of_consumer(consumer: AnyConsumer) -> ConsumerMetrics:
    return ConsumerMetrics(
        name=consumer.name,
        consumer_id=consumer.consumer_id,
        rate_out=consumer.rate_out.per_second,
        throughput_out=consumer.rate_out.bytes_per_second,
        rate_redeliver=consumer.redelivered.per_second,
        ack_rate=consumer.acks.per_second,
        unacked_messages=consumer.unacked,
        blocked_on_unacked=consumer.blocked,
        available_permits=consumer.permits,
        bytes_out=consumer.rate_out.bytes,
        messages_out=consumer.rate_out.messages,
    )


def of_producer(producer: Producer) -> ProducerMetrics:
    return ProducerMetrics(
        name=producer.name,
        producer_id=producer.producer_id,
        rate_in=producer.rate_in.per_second,
        throughput_in=producer.rate_in.bytes_per_second,
        average_message_size=producer.rate_in.average_size(),
    )


def of_subscription(subscription: Subscription) -> SubscriptionMetrics:
    dispatcher = subscription.dispatcher
    shared = dispatcher if isinstance(dispatcher, ManyConsumersDispatcher) else None
    backlog = subscription.backlog()
    consumers = [of_consumer(c) for c in subscription.consumers]
    filters = subscription.filters
    return SubscriptionMetrics(
        name=subscription.name,
        filter_processed=filters.processed if filters is not None else 0,
        filter_accepted=filters.accepted if filters is not None else 0,
        filter_rejected=filters.rejected if filters is not None else 0,
        filter_rescheduled=filters.rescheduled if filters is not None else 0,
        backlog=backlog,
        backlog_no_delayed=backlog,
        in_replay=len(shared.replay) if shared is not None else 0,
        rate_redeliver=sum(c.rate_redeliver for c in consumers),
        ack_rate=subscription.acks.per_second,
        unacked_messages=subscription.unacked_messages(),
        blocked_on_unacked=shared.blocked if shared is not None else False,
        rate_out=subscription.rate_out.per_second,
        throughput_out=subscription.rate_out.bytes_per_second,
        bytes_out=subscription.rate_out.bytes,
        messages_out=subscription.rate_out.messages,
        last_acked_ms=subscription.last_acked_ms,
        last_consumed_flow_ms=subscription.last_consumed_flow_ms,
        last_consumed_ms=subscription.last_consumed_ms,
        last_mark_delete_advanced_ms=subscription.last_mark_delete_ms,
        last_expire_ms=subscription.last_expire_ms,
        rate_expired=subscription.expired.per_second,
        total_expired=subscription.expired.messages,
        consumer_count=len(consumers),
        consumers=consumers,
    )


def of_non_persistent_subscription(subscription: NonPersistentSubscription) -> SubscriptionMetrics:
    consumers = [of_consumer(c) for c in subscription.consumers]
    return SubscriptionMetrics(
        name=subscription.name,
        ack_rate=subscription.acks.per_second,
        rate_out=subscription.rate_out.per_second,
        throughput_out=subscription.rate_out.bytes_per_second,
        bytes_out=subscription.rate_out.bytes,
        messages_out=subscription.rate_out.messages,
        last_acked_ms=subscription.last_acked_ms,
        last_consumed_flow_ms=subscription.last_consumed_flow_ms,
        last_consumed_ms=subscription.last_consumed_ms,
        drop_rate=subscription.drops.per_second,
        consumer_count=len(consumers),
        consumers=consumers,
    )
