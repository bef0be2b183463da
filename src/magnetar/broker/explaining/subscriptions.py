"""Why the consumers of a subscription get nothing.

The reason is what its dispatcher decided last (``broker.dispatch.waiting``); here it gets its words, the
figures that belong to it, and a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from magnetar.broker.dispatch.contract import AnyConsumer
from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.dispatch.waiting import Reason, lack_of
from magnetar.broker.explaining.answer import MOST_NAMED, Explanation, command, counted, waits
from magnetar.broker.explaining.rates import of_dispatch
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription

_MOST_IN_SENTENCE = 3

Parts = tuple[str, dict[str, Any], str, str]
"""Sentence, figures beside those of every subscription, command that mends it, command that shows more."""


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
                sentence += f" It does not move along in other clusters: {subscription.carried.hindrance}."
    return Explanation(
        reason.value,
        sentence,
        subscription.waits_since_ms(),
        {**_figures(subscription), **figures},
        attempt,
        look,
    )


def _figures(subscription: BaseSubscription) -> dict[str, Any]:
    """Those that belong to any reason."""
    found: dict[str, Any] = {
        "type": None if subscription.type is None else subscription.type.name,
        "consumers": len(subscription.consumers),
    }
    if isinstance(subscription, NonPersistentSubscription):
        return {**found, "dropped": subscription.drops.messages}
    return {**found, "backlog": subscription.backlog(), "unacknowledged": subscription.unacked_messages()}


def _waits(messages: int) -> str:
    """At the beginning of a sentence."""
    return waits(messages).capitalize()


def _topic(subscription: BaseSubscription) -> str:
    return subscription.topic.full_name


def _policies(subscription: BaseSubscription) -> str:
    """Whose policies are those of the topic: a partition's are those of the whole."""
    return str(subscription.topic.name.base)


def _named(consumers: Iterable[AnyConsumer]) -> list[dict[str, Any]]:
    return [
        {
            "name": consumer.name,
            "address": consumer.address,
            "permits": consumer.permits,
            "unacknowledged": consumer.unacked,
        }
        for consumer in list(consumers)[:MOST_NAMED]
    ]


def _names(found: list[dict[str, Any]]) -> str:
    """Some of them, in a sentence."""
    some = ", ".join(f"{each['name']} at {each['address']}" for each in found[:_MOST_IN_SENTENCE])
    return some if len(found) <= _MOST_IN_SENTENCE else f"{some} and others"


def _stats(subscription: BaseSubscription) -> str:
    return command("pulsar-admin", "topics", "stats", _topic(subscription))


def _lacking(subscription: Subscription, reason: Reason) -> list[dict[str, Any]]:
    """The consumers to which a reason applies."""
    dispatcher = subscription.dispatcher
    consumers = subscription.consumers
    if dispatcher is not None and dispatcher.active is not None:
        consumers = [dispatcher.active]
    return _named(each for each in consumers if not each.ready and lack_of(each) is reason)


# Of topics that store


def _no_consumer(subscription: Subscription) -> Parts:
    sentence = f"No consumer is connected; {waits(subscription.backlog())}."
    look = command("pulsar-admin", "topics", "peek-messages", "-s", subscription.name, _topic(subscription))
    return sentence, {}, "", look if subscription.backlog() else ""


def _takeover(subscription: Subscription) -> Parts:
    dispatcher = subscription.dispatcher
    active = dispatcher.active if dispatcher is not None else None
    seconds = subscription.topic.dispatch_settings.failover_delay_seconds
    name = active.name if active is not None else ""
    sentence = f"{name} has become the active consumer, and is served {seconds:g} s later."
    return sentence, {"active": name}, "", ""


def _no_permits(subscription: Subscription) -> Parts:
    found = _lacking(subscription, Reason.NO_PERMITS)
    sentence = (
        f"{_waits(subscription.backlog())}, and no consumer asks for more: their receiver queues are full, "
        f"or they are paused ({_names(found)}). They have to receive, or resume."
    )
    return sentence, {"waitingFor": found}, "", _stats(subscription)


def _connection_full(subscription: Subscription) -> Parts:
    found = _lacking(subscription, Reason.CONNECTION_FULL)
    sentence = (
        f"{_names(found)} asked for messages and does not read what was written to its connection: "
        "the client hangs, or the network is slower than the topic."
    )
    return sentence, {"waitingFor": found}, "", _stats(subscription)


def _unacked_consumer(subscription: Subscription) -> Parts:
    limit = subscription.topic.dispatch_settings.max_unacked_per_consumer
    found = _lacking(subscription, Reason.UNACKED_CONSUMER)
    sentence = (
        f"{_names(found)} holds as many unacknowledged messages as a consumer may ({limit:,}). "
        "It goes on when half of them are acknowledged, or when the limit is raised."
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
        f"{counted(subscription.unacked_messages(), 'message')} of this subscription are not acknowledged, "
        f"and {limit:,} may be. It goes on when half of them are acknowledged, or when the limit is raised."
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
        f"{counted(total, 'message')} of all subscriptions of the broker are not acknowledged "
        f"(maxUnackedMessagesPerBroker is {most:,}), and this one has more than its share. "
        "It goes on when less than half of the limit, or of its share, is outstanding."
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
        f"{_waits(waiting)} for {counted(len(blocked), 'key hash', 'key hashes')} that changed hands: "
        f"{names} still holds unacknowledged messages of them, and keys keep their order. "
        "It has to acknowledge them, or to leave; unloading the topic takes them from all consumers and "
        "delivers them again."
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
        f"{_waits(waiting)} for keys that no consumer takes: the ranges that consumers asked for "
        "leave them out. A consumer with those ranges has to come."
    )
    return sentence, {"waiting": waiting}, "", _stats(subscription)


def _look_ahead(subscription: Subscription) -> Parts:
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, KeySharedDispatcher)
    waiting = len(dispatcher.replay)
    found = _named(each for each in dispatcher.consumers if dispatcher.replay.waits_for(each))
    sentence = (
        f"{_waits(waiting)} for single consumers ({_names(found) or 'their keys are held'}), so many that "
        "no more are read for the others. Those consumers have to receive and acknowledge, or to leave."
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
    figures: dict[str, Any] = {"delayed": waiting}
    when = "some time from now"
    if due is not None:
        figures["nextDue"] = due
        when = f"in {max(0, due - subscription.topic.clock.wall_ms()) / 1000:,.1f} s"
    sentence = f"{_waits(waiting)} for a delivery time that producers gave; the next is due {when}."
    if delays is not None and delays.not_written:
        figures["indexNotWritten"] = delays.not_written
        sentence += f" The index of delayed messages cannot be written ({delays.not_written})"
        sentence += ", and nothing more is read before it can." if delays.is_full else "."
    return sentence, figures, "", ""


def _ack_state(subscription: Subscription) -> Parts:
    sentence = (
        "More messages were acknowledged out of order than can be kept, and "
        "dispatcherPauseOnAckStatePersistent has nothing new sent until it is less. What is missing between "
        "them has to be acknowledged."
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
        f"Entry filters ({', '.join(names)}) put off what is left; they are asked again every {again:g} s."
    )
    figures: dict[str, Any] = {"filters": names}
    if filters is not None:
        figures |= {
            "accepted": filters.accepted,
            "rejected": filters.rejected,
            "rescheduled": filters.rescheduled,
        }
    return sentence, figures, "", ""


def _reading(subscription: Subscription) -> Parts:
    return "A read from the ledger store is on its way.", {}, "", ""


def _read_failed(subscription: Subscription) -> Parts:
    retry = subscription.topic.dispatch_settings.read_retry_seconds
    sentence = (
        f"What comes next cannot be read ({counted(subscription.read_errors, 'failure')}; the log says why); "
        f"it is tried again every {retry:g} s. What is lost for good is left out once that is allowed."
    )
    attempt = command(
        *("pulsar-admin", "brokers", "update-dynamic-config"),
        *("--config", "autoSkipNonRecoverableData", "--value", "true"),
    )
    return sentence, {"failures": subscription.read_errors}, attempt, ""


def _turn(subscription: Subscription) -> Parts:
    return "The broker serves others first, and goes on with this one at once.", {}, "", ""


def _moving(subscription: Subscription) -> Parts:
    return "The subscription is just being moved, unloaded or ended; its consumers come back.", {}, "", ""


def _at_end(subscription: Subscription) -> Parts:
    backlog = subscription.backlog()
    if not backlog:
        return "All was delivered and acknowledged: nothing waits.", {}, "", ""
    verb = "is" if backlog == 1 else "are"
    sentence = f"All was delivered; {counted(backlog, 'message')} of it {verb} not acknowledged."
    return sentence, {}, "", _stats(subscription)


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
    Reason.AT_END: _at_end,
}


# Of topics that store nothing

_UNSTORED: Mapping[Reason, str] = {
    Reason.NO_CONSUMER: "No consumer is connected: whatever is published is dropped.",
    Reason.NO_PERMITS: "What was published last was dropped: no consumer asked for more.",
    Reason.CONNECTION_FULL: "What was published last was dropped: consumers do not read their connections.",
    Reason.KEY_UNASSIGNED: "What was published last was dropped: no consumer takes its keys.",
    Reason.MOVING: "The subscription is just being unloaded or ended.",
    Reason.AT_END: "All that was published was sent on; this topic stores nothing.",
}


def _of_unstored(subscription: NonPersistentSubscription, reason: Reason) -> Parts:
    dropped = subscription.drops.messages
    figures = {"waitingFor": _named(each for each in subscription.consumers if not each.ready)}
    sentence = _UNSTORED[reason]
    if dropped and reason is not Reason.AT_END:
        sentence += f" {counted(dropped, 'message')} were lost to it so far."
    return sentence, figures, "", _stats(subscription) if dropped else ""
