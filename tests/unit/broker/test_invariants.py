"""A violation planted into each class that looks after itself is found."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from lived import Lived

from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.flow.limits import ConnectionCounts, PartialFrames, PublishBuffer, UnackedLimit
from magnetar.broker.flow.outgoing import Outgoing, UnsentBytes
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.subscriptions.base import SubscriptionType
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.persistent import Topic
from magnetar.invariants import BrokenInvariant
from magnetar.managed_ledger.hot_ranges import EntryRanges

pytestmark = pytest.mark.plants


class Wire:
    """A connection that takes everything."""

    address, client_version = "a", "v"

    def __init__(self, lived: Lived) -> None:
        io = lived.world.simulation.io
        self.outgoing = Outgoing(io.loop, lambda: None, lambda _stop: None, UnsentBytes(io.clock))
        self.frames = 0

    def queue(self, _frames: bytes) -> None:
        self.frames += 1


def consumed(kind: SubscriptionType) -> tuple[Topic, Subscription, list[Consumer[Any]]]:
    """A topic with 40 entries of which two consumers hold some, and have acknowledged some."""
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    consumers = [
        Consumer(
            subscription,
            Wire(lived),  # type: ignore[arg-type]
            number,
            f"c{number}",
            priority=0,
            epoch=None,
            metadata={},
            connected_ms=0,
            partition=-1,
        )
        for number in range(2 if kind is SubscriptionType.Shared else 1)
    ]
    for consumer in consumers:
        subscription.add(consumer, kind, 0)
        consumer.permits = 10
    lived.publish(topic, 40)
    subscription.read_more()
    lived.world.wait(0.1)
    first = consumers[0]
    for ledger_id, held in [(i, list(h)) for i, h in first.pending.items()]:
        for entry_id in held[::3]:
            subscription.acknowledge(first, [(ledger_id, entry_id)], [])
    if kind is SubscriptionType.Exclusive:
        subscription.cursor.delete(*subscription.cursor.state.mark_delete[:1], 5)
    return topic, subscription, consumers


def check(topic: Topic, subscription: Subscription) -> None:
    topic.managed_ledger.check()
    subscription.check()


Plant = Callable[[Topic, Subscription, list[Consumer[Any]]], None]


def _unacked(_topic: Topic, _subscription: Subscription, consumers: list[Consumer[Any]]) -> None:
    consumers[0].unacked += 1


def _permits(_topic: Topic, _subscription: Subscription, consumers: list[Consumer[Any]]) -> None:
    consumers[0].permits = -(1 << 40)


def _empty_ledger(_topic: Topic, _subscription: Subscription, consumers: list[Consumer[Any]]) -> None:
    consumers[0].pending[10**6] = {}


def _closed(_topic: Topic, _subscription: Subscription, consumers: list[Consumer[Any]]) -> None:
    consumers[-1].closed = True


def _of_all(_topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    dispatcher: Any = subscription.dispatcher
    dispatcher.unacked -= 1


def _blocked(_topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    dispatcher: Any = subscription.dispatcher
    dispatcher.blocked = True


def _held_and_waiting(_topic: Topic, subscription: Subscription, consumers: list[Consumer[Any]]) -> None:
    dispatcher: Any = subscription.dispatcher
    ledger_id, held = next(iter(consumers[0].pending.items()))
    dispatcher.replay.add((ledger_id, next(iter(held))))


def _foreign(_topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    dispatcher: Any = subscription.dispatcher
    dispatcher.consumers = []


def _back(topic: Topic, _subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    topic.managed_ledger.last_confirmed = topic.managed_ledger.ledgers.first_id(), 0


def _no_writer(topic: Topic, _subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    topic.managed_ledger._current.writer = None


def _less_than_nothing(topic: Topic, _subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    topic.managed_ledger._current.size = -1


def _out_of_order(topic: Topic, _subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    ledger = topic.managed_ledger
    ledger.append(b"x", array("q", [0]), array("q", [1]), 1, 1, None)
    next(iter(ledger.appends)).ledger_id = 0


def _read_behind(_topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    subscription.cursor.read_position = subscription.cursor.mark_delete


def _beyond(topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    ledger_id, entry_id = topic.managed_ledger.last_confirmed
    subscription.cursor.state.mark_delete = ledger_id, entry_id + 1
    subscription.cursor.read_position = ledger_id, entry_id + 2


def _range_behind(_topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    state = subscription.cursor.state
    ledger_id, ranges = next(iter(state.ranges.items()))
    state.mark_delete = ledger_id, next(iter(ranges.in_order()))[0]


def _too_many_holes(topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    ranges = subscription.cursor.state.ranges[topic.managed_ledger.last_confirmed[0] + 1] = EntryRanges()
    ranges.add(0, 10**6)


def _nothing_of_a_batch(topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    subscription.cursor.state.batches[topic.managed_ledger.last_confirmed] = 0


def _batch_and_entry(_topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    subscription.cursor.state.batches[subscription.cursor.mark_delete] = 1


def _unknown_cursor(topic: Topic, subscription: Subscription, _consumers: list[Consumer[Any]]) -> None:
    del topic.managed_ledger.cursors._by_name[subscription.name]


_ANY: tuple[Plant, ...] = (
    _permits,
    _empty_ledger,
    _closed,
    _foreign,
    _back,
    _no_writer,
    _less_than_nothing,
    _out_of_order,
    _read_behind,
    _beyond,
    _range_behind,
    _too_many_holes,
    _nothing_of_a_batch,
    _batch_and_entry,
    _unknown_cursor,
)
_SHARED: tuple[Plant, ...] = (_unacked, _of_all, _blocked, _held_and_waiting)


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        *((SubscriptionType.Exclusive, plant) for plant in _ANY),
        *((SubscriptionType.Shared, plant) for plant in (*_ANY, *_SHARED)),
    ],
)
def test_a_contradiction_in_a_topic_is_found(kind: SubscriptionType, plant: Plant) -> None:
    topic, subscription, consumers = consumed(kind)
    check(topic, subscription)
    plant(topic, subscription, consumers)
    with pytest.raises(BrokenInvariant):
        check(topic, subscription)


class Bounded:
    """As limits see a connection."""

    host, pending_publishes = "h", 0

    def __init__(self) -> None:
        self.input = self

    def pause(self) -> None:
        """Waits."""

    def resume(self) -> None:
        """Goes on."""

    def close(self) -> None:
        """Ends."""


def test_connections_are_counted_once() -> None:
    counts, connection = ConnectionCounts(0, 0), Bounded()
    counts.opened(connection)
    counts.check()
    counts._per_address["h"] += 1
    with pytest.raises(BrokenInvariant):
        counts.check()
    counts._per_address = {"h": 1, "i": 0}
    with pytest.raises(BrokenInvariant):
        counts.check()


def test_published_bytes_are_never_negative() -> None:
    buffer = PublishBuffer(10)
    buffer.grew(Bounded(), 11)
    buffer.check()
    buffer.used = 0
    with pytest.raises(BrokenInvariant):
        buffer.check()
    buffer = PublishBuffer(10)
    buffer.shrank(1)
    with pytest.raises(BrokenInvariant):
        buffer.check()


def test_partial_frames_are_the_sum_of_all() -> None:
    frames, connection = PartialFrames(100), Bounded()
    frames.grew(connection, 5)
    frames.check()
    frames.used += 1
    with pytest.raises(BrokenInvariant):
        frames.check()
    frames.used -= 1
    frames._paused[Bounded()] = None
    with pytest.raises(BrokenInvariant):
        frames.check()


def test_unsent_bytes_are_at_least_what_is_queued() -> None:
    lived = Lived(EffectivePolicies())
    wire = Wire(lived)
    unsent = wire.outgoing.unsent
    unsent.members.add(wire.outgoing)
    wire.outgoing.queue(bytes(10))
    unsent.check()
    unsent.used -= 1
    with pytest.raises(BrokenInvariant):
        unsent.check()


class Counted:
    unacked = 7

    def hold(self) -> None:
        """Sends nothing."""

    def let_go_on(self) -> None:
        """Sends."""


@pytest.mark.parametrize("field", ["total", "_held", "unacked"])
def test_what_is_outstanding_is_counted_once(field: str) -> None:
    limit, dispatcher = UnackedLimit(100, 0.5), Counted()
    limit.changed(dispatcher)
    limit.check()
    if field == "total":
        limit.total += 1
    elif field == "_held":
        limit._held[dispatcher] = None
    else:
        dispatcher.unacked = 8
    with pytest.raises(BrokenInvariant):
        limit.check()
