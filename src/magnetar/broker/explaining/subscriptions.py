"""Explains why the consumers of a subscription receive nothing.

The reason is the dispatcher's last decision (``broker.dispatch.waiting``). This module adds a sentence,
statistics and a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.dispatch.waiting import Reason, lack_of
from magnetar.broker.explaining.answer import MOST_NAMED, Explanation, command, counted, of_dispatch, waits
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.transactions import txn_text
from magnetar.managed_ledger.position import format_position

_MOST_IN_SENTENCE = 3

Parts = tuple[str, dict[str, Any], str, str]
"""A sentence, additional statistics, a command that resolves the problem, and a command that shows
details."""


def explain_subscription(subscription: BaseSubscription) -> Explanation:
    reason = subscription.why_not()
    if isinstance(subscription, NonPersistentSubscription):
        sentence, figures, attempt, look = _of_unstored(subscription, reason)
    else:
        assert isinstance(subscription, Subscription)
        sentence, figures, attempt, look = _STORED[reason](subscription)
        if subscription.carried is not None:
            figures = {**figures, "snapshots": subscription.carried.snapshots}
            if subscription.carried.hindrance:
                sentence += f" It does not advance in the other clusters: {subscription.carried.hindrance}."
    return Explanation(
        reason.value,
        sentence,
        subscription.waits_since_ms(),
        {**_figures(subscription), **figures},
        attempt,
        look,
    )


def _figures(subscription: BaseSubscription) -> dict[str, object]:
    """Returns the statistics that every explanation of a subscription has."""
    found: dict[str, object] = {
        "type": None if subscription.type is None else subscription.type.name,
        "consumers": len(subscription.consumers),
    }
    if isinstance(subscription, NonPersistentSubscription):
        return {**found, "dropped": subscription.drops.messages}
    return {**found, "backlog": subscription.backlog(), "unacknowledged": subscription.unacked_messages()}


def _waits(messages: int) -> str:
    """Returns the number of waiting messages with a verb, for the beginning of a sentence."""
    return waits(messages).capitalize()


def _topic(subscription: BaseSubscription) -> str:
    return subscription.topic.full_name


def _policies(subscription: BaseSubscription) -> str:
    """Returns the name of the topic whose policies apply: for a partition, the name of its partitioned
    topic.
    """
    return str(subscription.topic.name.base)


def _named(consumers: Iterable[AnyConsumer]) -> list[dict[str, object]]:
    return [
        {
            "name": consumer.name,
            "address": consumer.address,
            "permits": consumer.permits,
            "unacknowledged": consumer.unacked,
        }
        for consumer in list(consumers)[:MOST_NAMED]
    ]


def _names(found: list[dict[str, object]]) -> str:
    """Returns the names of the first consumers as an enumeration in words."""
    some = ", ".join(f"{each['name']} at {each['address']}" for each in found[:_MOST_IN_SENTENCE])
    return some if len(found) <= _MOST_IN_SENTENCE else f"{some} and others"


def _stats(subscription: BaseSubscription) -> str:
    return command("pulsar-admin", "topics", "stats", _topic(subscription))


def _lacking(subscription: Subscription, reason: Reason) -> list[dict[str, object]]:
    """Returns the consumers to which a reason applies."""
    dispatcher = subscription.dispatcher
    consumers = subscription.consumers
    if dispatcher is not None and dispatcher.active is not None:
        consumers = [dispatcher.active]
    return _named(each for each in consumers if not each.ready and lack_of(each) is reason)


# Persistent topics


def _no_consumer(subscription: Subscription) -> Parts:
    sentence = f"No consumer is connected; {waits(subscription.backlog())}."
    look = command("pulsar-admin", "topics", "peek-messages", "-s", subscription.name, _topic(subscription))
    return sentence, {}, "", look if subscription.backlog() else ""


def _takeover(subscription: Subscription) -> Parts:
    dispatcher = subscription.dispatcher
    active = dispatcher.active if dispatcher is not None else None
    seconds = subscription.topic.dispatch_settings.failover_delay_seconds
    name = active.name if active is not None else ""
    sentence = (
        f"{name} has become the active consumer; the broker sends to it after a delay of {seconds:g} s."
    )
    return sentence, {"active": name}, "", ""


def _no_permits(subscription: Subscription) -> Parts:
    found = _lacking(subscription, Reason.NO_PERMITS)
    sentence = (
        f"{_waits(subscription.backlog())}, but no consumer asks for more: their receiver queues are full, "
        f"or they are paused ({_names(found)}). The consumers have to receive messages or resume."
    )
    return sentence, {"waitingFor": found}, "", _stats(subscription)


def _connection_full(subscription: Subscription) -> Parts:
    found = _lacking(subscription, Reason.CONNECTION_FULL)
    sentence = (
        f"The connection is full of messages that were asked for but are not read ({_names(found)}): "
        "the client hangs, or the network is slower than the topic."
    )
    return sentence, {"waitingFor": found}, "", _stats(subscription)


def _unacked_consumer(subscription: Subscription) -> Parts:
    limit = subscription.topic.dispatch_settings.max_unacked_per_consumer
    found = _lacking(subscription, Reason.UNACKED_CONSUMER)
    sentence = (
        f"The limit of unacknowledged messages of a consumer ({limit:,}) is reached by {_names(found)}. "
        "Dispatch resumes when half of them are acknowledged or the limit is raised."
    )
    attempt = command(
        "pulsar-admin",
        "topics",
        "set-max-unacked-messages-per-consumer",
        "-m",
        limit * 2,
        _policies(subscription),
    )
    return sentence, {"limit": limit, "waitingFor": found}, attempt, _stats(subscription)


def _unacked_subscription(subscription: Subscription) -> Parts:
    limit = subscription.topic.dispatch_settings.max_unacked_per_subscription
    sentence = (
        f"This subscription has {counted(subscription.unacked_messages(), 'unacknowledged message')}; the "
        f"limit is {limit:,}. Dispatch resumes when half of them are acknowledged or the limit is raised."
    )
    attempt = command(
        "pulsar-admin",
        "topics",
        "set-max-unacked-messages-per-subscription",
        "-m",
        limit * 2,
        _policies(subscription),
    )
    return sentence, {"limit": limit}, attempt, _stats(subscription)


def _unacked_broker(subscription: Subscription) -> Parts:
    limit = subscription.topic.unacked_limit
    total, most = (limit.total, limit.most) if limit is not None else (0, 0)
    sentence = (
        f"All subscriptions of the broker together have {counted(total, 'unacknowledged message')} "
        f"(maxUnackedMessagesPerBroker is {most:,}), and this one has more than its share. "
        "Dispatch resumes when less than half of the limit, or of its share, is unacknowledged."
    )
    return sentence, {"limit": most, "unacknowledgedOfBroker": total}, "", _stats(subscription)


def _key_held(subscription: Subscription) -> Parts:
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, KeySharedDispatcher)
    blocked = dispatcher.replay.blocked()
    waiting = sum(blocked.values())
    held = [
        {"consumer": each.name, "address": each.address, "hash": slot, "unacknowledged": entries}
        for each in dispatcher.consumers
        for slot, entries, _attempts in dispatcher.draining.of(each)
        if slot in blocked
    ]
    names = ", ".join(dict.fromkeys(f"{each['consumer']} at {each['address']}" for each in held))
    sentence = (
        f"{_waits(waiting)} for {counted(len(blocked), 'key hash', 'key hashes')} that moved to another "
        f"consumer: unacknowledged messages with these keys are still held by {names}, and each key keeps "
        "its order. That consumer has to acknowledge them or to disconnect. Unloading the topic takes them "
        "from all consumers and delivers them again."
    )
    attempt = command("pulsar-admin", "topics", "unload", _topic(subscription))
    return (
        sentence,
        {"held": held[:MOST_NAMED], "waiting": waiting},
        attempt,
        _stats(subscription),
    )


def _key_unassigned(subscription: Subscription) -> Parts:
    dispatcher = subscription.dispatcher
    waiting = len(dispatcher.replay) if isinstance(dispatcher, ManyConsumersDispatcher) else 0
    sentence = (
        f"{_waits(waiting)} for keys that no consumer takes: the sticky ranges of the consumers do not "
        "include them. Connect a consumer with the missing ranges."
    )
    return sentence, {"waiting": waiting}, "", _stats(subscription)


def _look_ahead(subscription: Subscription) -> Parts:
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, KeySharedDispatcher)
    waiting = len(dispatcher.replay)
    found = _named(each for each in dispatcher.consumers if dispatcher.replay.waits_for(each))
    sentence = (
        f"{_waits(waiting)} for individual consumers ({_names(found) or 'their keys are held'}): too many "
        "for the broker to read further messages for other consumers. Those individual consumers have to "
        "receive and acknowledge messages or to disconnect."
    )
    held = sum(dispatcher.replay.blocked().values())
    return sentence, {"waiting": waiting, "waitingFor": found, "held": held}, "", _stats(subscription)


def _rate_limit(subscription: Subscription) -> Parts:
    throttle = subscription.throttle
    limiter = throttle.held_by if throttle is not None else None
    return of_dispatch(subscription, limiter)


def _delayed(subscription: Subscription) -> Parts:
    dispatcher = subscription.dispatcher
    delays = dispatcher.delays if isinstance(dispatcher, ManyConsumersDispatcher) else None
    waiting = 0 if delays is None else len(delays)
    due = None if delays is None else delays.next_due_ms()
    figures: dict[str, object] = {"delayed": waiting}
    when = "later"
    if due is not None:
        figures["nextDue"] = due
        when = f"in {max(0, due - subscription.topic.clock.wall_ms()) / 1000:,.1f} s"
    sentence = f"{_waits(waiting)} for the delivery time that the producers set; the next is due {when}."
    if delays is not None and delays.not_written:
        figures["indexNotWritten"] = delays.not_written
        sentence += f" The index of delayed messages cannot be written ({delays.not_written})"
        sentence += "; nothing more is read until it can be." if delays.is_full else "."
    return sentence, figures, "", ""


def _ack_state(subscription: Subscription) -> Parts:
    sentence = (
        "More messages were acknowledged out of order than the broker can persist, and "
        "dispatcherPauseOnAckStatePersistent pauses dispatch until there are fewer. Acknowledge the messages "
        "in the gaps."
    )
    attempt = command(
        "pulsar-admin",
        "topicPolicies",
        "remove-dispatcher-pause-on-ack-state-persistent",
        _policies(subscription),
    )
    state = subscription.cursor.state
    ranges = sum(each.range_count() for each in state.ranges.values())
    return sentence, {"ranges": ranges, "batches": len(state.batches)}, attempt, ""


def _filter(subscription: Subscription) -> Parts:
    filters = subscription.filters
    names = [] if filters is None else [type(each).__name__ for each in filters.filters]
    again = subscription.topic.dispatch_settings.filter_again_seconds
    sentence = (
        f"Entry filters ({', '.join(names)}) postpone the remaining messages; the broker asks them again "
        f"every {again:g} s."
    )
    figures: dict[str, object] = {"filters": names}
    if filters is not None:
        figures |= {
            "accepted": filters.accepted,
            "rejected": filters.rejected,
            "rescheduled": filters.rescheduled,
        }
    return sentence, figures, "", ""


def _tiered_place(subscription: Subscription) -> str:
    """Returns the location of the next entries in tiered storage; empty if they are read from the ledger
    store."""
    ledger = subscription.topic.managed_ledger
    place = ledger.reader.tiered_place(ledger.ledgers.first_at_or_after(subscription.cursor.read_position))
    if place is None:
        return ""
    known = ", ".join(f"{name} {value}" for name, value in place.properties.items() if value)
    return f"{place.driver} ({known})"


def _reading(subscription: Subscription) -> Parts:
    place = _tiered_place(subscription)
    if place:
        return f"A read from tiered storage is in progress: {place}.", {"tieredStorage": place}, "", ""
    return "A read from the ledger store is in progress.", {}, "", ""


def _read_failed(subscription: Subscription) -> Parts:
    retry = subscription.topic.dispatch_settings.read_retry_seconds
    place = _tiered_place(subscription)
    if place:
        sentence = (
            f"The next entries cannot be read from tiered storage, {place} "
            f"({counted(subscription.read_errors, 'failure')}: {subscription.last_read_error}); the broker "
            f"retries every {retry:g} s."
        )
        return sentence, {"failures": subscription.read_errors, "tieredStorage": place}, "", ""
    sentence = (
        f"The next entries cannot be read ({counted(subscription.read_errors, 'failure')}; the log has the "
        f"error); the broker retries every {retry:g} s. It skips entries that are lost for good only if "
        "autoSkipNonRecoverableData is on."
    )
    attempt = command(
        *("pulsar-admin", "brokers", "update-dynamic-config"),
        *("--config", "autoSkipNonRecoverableData", "--value", "true"),
    )
    return sentence, {"failures": subscription.read_errors}, attempt, ""


def _turn(subscription: Subscription) -> Parts:
    return "The broker serves other subscriptions first and continues with this one at once.", {}, "", ""


def _moving(subscription: Subscription) -> Parts:
    return "The subscription is seeking, or being unloaded or deleted; its consumers reconnect.", {}, "", ""


def _open_transaction(subscription: Subscription) -> Parts:
    ledger, known = subscription.topic.managed_ledger, subscription.topic.transactions
    hidden = ledger.ledgers.entries_after(ledger.max_read_position)
    figures: dict[str, object] = {"hidden": hidden}
    which = "an open transaction"
    if known is not None and known.open:
        txn, first = next(iter(known.open.items()))
        which = f"transaction {txn_text(txn)}, whose first message is at {format_position(first)}"
        figures |= {"transaction": txn_text(txn), "first": format_position(first)}
        figures["openTransactions"] = len(known.open)
    wait = "waits" if hidden == 1 else "wait"
    sentence = f"{counted(hidden, 'entry', 'entries')} {wait} for the end of {which}."
    look = command("pulsar-admin", "transactions", "transaction-buffer-stats", "-t", _topic(subscription))
    return sentence, figures, "", look


def _pending(subscription: Subscription) -> tuple[str, dict[str, object]]:
    """Returns a sentence and statistics about open transactions that have acknowledged messages of the
    subscription; both are empty if no such transaction is open.
    """
    pending = subscription.pending
    if pending is None or not pending.any:
        return "", {}
    names = [txn_text(txn) for txn in pending.open()[:MOST_NAMED]]
    upto = pending.cumulative
    what = f"everything up to {format_position(upto[1].position)}" if upto is not None else ""
    if pending.bits:
        messages = counted(len(pending.bits), "entry", "entries")
        what = f"{what} and {messages}" if what else messages
    sentence = (
        f" Open transactions have acknowledged {what} ({', '.join(names)}): these are delivered again only "
        "if their transaction is aborted."
    )
    return sentence, {"pendingTransactions": len(pending.open()), "pendingEntries": len(pending.bits)}


def _at_end(subscription: Subscription) -> Parts:
    backlog = subscription.backlog()
    if not backlog:
        return "All messages were delivered and acknowledged.", {}, "", ""
    verb = "is" if backlog == 1 else "are"
    sentence = f"All messages were delivered; {backlog:,} of them {verb} not acknowledged."
    pending, figures = _pending(subscription)
    return sentence + pending, figures, "", _stats(subscription)


_STORED: Mapping[Reason, Callable[[Subscription], Parts]] = {
    Reason.NO_CONSUMER: _no_consumer,
    Reason.TAKEOVER: _takeover,
    Reason.NO_PERMITS: _no_permits,
    Reason.CONNECTION_FULL: _connection_full,
    Reason.UNACKED_CONSUMER: _unacked_consumer,
    Reason.UNACKED_SUBSCRIPTION: _unacked_subscription,
    Reason.UNACKED_BROKER: _unacked_broker,
    Reason.KEY_HELD: _key_held,
    Reason.KEY_UNASSIGNED: _key_unassigned,
    Reason.LOOK_AHEAD: _look_ahead,
    Reason.RATE_LIMIT: _rate_limit,
    Reason.DELAYED: _delayed,
    Reason.ACK_STATE: _ack_state,
    Reason.FILTER: _filter,
    Reason.READING: _reading,
    Reason.READ_FAILED: _read_failed,
    Reason.TURN: _turn,
    Reason.MOVING: _moving,
    Reason.OPEN_TRANSACTION: _open_transaction,
    Reason.AT_END: _at_end,
}


# Non-persistent topics

_UNSTORED: Mapping[Reason, str] = {
    Reason.NO_CONSUMER: "No consumer is connected: published messages are dropped.",
    Reason.NO_PERMITS: "The last messages were dropped: no consumer asked for more.",
    Reason.CONNECTION_FULL: "The last messages were dropped: the consumers do not read their connections.",
    Reason.KEY_UNASSIGNED: "The last messages were dropped: no consumer takes their keys.",
    Reason.MOVING: "The subscription is being unloaded or deleted.",
    Reason.AT_END: "All published messages were sent; this topic stores nothing.",
}


def _of_unstored(subscription: NonPersistentSubscription, reason: Reason) -> Parts:
    dropped = subscription.drops.messages
    figures = {"waitingFor": _named(each for each in subscription.consumers if not each.ready)}
    sentence = _UNSTORED[reason]
    if dropped and reason is not Reason.AT_END:
        sentence += f" Dropped for this subscription so far: {counted(dropped, 'message')}."
    return sentence, figures, "", _stats(subscription) if dropped else ""
