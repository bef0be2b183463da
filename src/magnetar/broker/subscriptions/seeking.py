"""Seeks: a subscription's cursor moves to any position while its consumers are disconnected."""

from __future__ import annotations

from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.errors import ServiceNotReady
from magnetar.managed_ledger.position import EARLIEST, LATEST, Position


def begin_seek(subscription: Subscription) -> None:
    """From here to :func:`end_seek`, consumers cannot join, and a reader's cursor is not dropped.

    :raises ServiceNotReady: another seek is in progress, or the subscription is being ended
    """
    if subscription.closing:
        raise ServiceNotReady("Subscription is fenced: it is being closed or moved")
    subscription.seeking = subscription.closing = True


def end_seek(subscription: Subscription) -> None:
    subscription.seeking = False
    if not subscription.ending:
        # Otherwise the end of the subscription has begun meanwhile, and it must not be reopened.
        subscription.closing = False
        subscription.topic.subscriptions.keep_for_return(subscription)
        if subscription.carried is not None:
            subscription.carried.moved()


async def seek_to(
    subscription: Subscription, position: Position, remaining: int = 0, batch_size: int = 0
) -> None:
    """Disconnects the consumers, which reconnect and get ``position`` next; durable when this returns.

    :param remaining: a bit for each message of the batch there that is to be delivered; 0: all messages
    :param batch_size: 0 if it is not known
    :raises ServiceNotReady: another seek is in progress, or the subscription is being ended
    """
    begin_seek(subscription)
    try:
        subscription.disconnect_all()
        reset(subscription, position)
        if remaining and subscription.topic.batch_index_acks and position not in (EARLIEST, LATEST):
            subscription.cursor.consume_batch_indexes(*position, remaining, batch_size)
        await subscription.cursor.flush()
    finally:
        end_seek(subscription)


def reset(subscription: Subscription, position: Position) -> None:
    """Moves the cursor so that ``position`` is delivered next; the consumers must be disconnected."""
    subscription.cursor.reset(position)
    subscription.start.begin_at(position)
    dispatcher = subscription.dispatcher
    if isinstance(dispatcher, ManyConsumersDispatcher):
        dispatcher.forget_delays(moved=True)
    if dispatcher is not None:
        dispatcher.rewound()
