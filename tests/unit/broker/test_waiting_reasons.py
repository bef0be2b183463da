"""Why a dispatcher sends nothing: each reason is brought about, and goes with what brought it about."""

from __future__ import annotations

from dataclasses import replace

import pytest
from delaying import HOUR, Delays
from peers import TOPIC, Brokers, Peer, subscribe_frame
from test_dispatch_rates import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    UNBOUNDED,
    sent,
    store,
    subscription,
    take,
    topic_of,
)
from test_lost_entries import with_a_lost_ledger
from test_pause_on_ack_state import acknowledge
from test_pause_on_ack_state import brokers as pausing

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.filters import FilterContext, FilteredEntry, FilterResult
from magnetar.broker.dispatch.waiting import Reason
from magnetar.broker.flow.dispatch_rates import LimitedBy
from magnetar.broker.policies.values import DispatchRate
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Dispatcher
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

ALL = [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED]
SEVERAL = [SHARED, KEY_SHARED]


def dispatcher(brokers: Brokers) -> Dispatcher:
    found = subscription(brokers).dispatcher
    assert found is not None
    return found


def why(brokers: Brokers) -> Reason:
    return dispatcher(brokers).why_not()


def keyed(key: str) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key=key)
    return build_entry(metadata, b"x")


def joined(brokers: Brokers, number: int, kind: int) -> Peer:
    peer = Peer(brokers)
    peer.connection.data_received(subscribe_frame(number, "s", kind))
    brokers.until(lambda: peer.count(BaseCommand.SUCCESS))
    return peer


@pytest.mark.parametrize("kind", ALL)
def test_nobody_is_connected_then_has_no_permits_then_has_had_everything(kind: int) -> None:
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", kind)
    store(brokers, 10)
    brokers.world.wait(2.0)
    assert why(brokers) is Reason.NO_PERMITS
    take(peer, permits=3)
    brokers.until(lambda: sent(brokers) == 3)
    assert why(brokers) is Reason.NO_PERMITS
    take(peer, permits=7)
    brokers.until(lambda: sent(brokers) == 10)
    assert why(brokers) is Reason.AT_END, "without permits, too"
    take(peer)
    brokers.world.wait(0.1)
    assert why(brokers) is Reason.AT_END
    peer.send(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=9)
    brokers.world.wait(0.1)
    assert why(brokers) is Reason.NO_CONSUMER


def test_since_is_when_the_reason_became_another_one() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 10)
    take(peer, permits=3)
    brokers.until(lambda: sent(brokers) == 3)
    waits, at = dispatcher(brokers).waits, brokers.broker.io.clock.wall_ms()
    assert waits.since_ms <= at
    since = waits.since_ms
    brokers.world.wait(5.0)
    store(brokers, 10)
    assert waits.since_ms == since, "it was decided again, and alike"
    take(peer)
    brokers.until(lambda: sent(brokers) == 20)
    assert waits.since_ms >= at + 5000


def test_who_becomes_active_waits_for_a_while() -> None:
    brokers = Brokers(policies=UNBOUNDED, dispatch=DispatchSettings(failover_delay_seconds=5.0))
    peer = brokers.subscribed("s", FAILOVER)
    store(brokers, 1)
    take(peer)
    brokers.world.wait(1.0)
    assert why(brokers) is Reason.TAKEOVER
    brokers.until(lambda: sent(brokers) == 1)
    assert why(brokers) is Reason.AT_END


@pytest.mark.parametrize("kind", ALL)
def test_a_client_that_does_not_read(kind: int) -> None:
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", kind)
    brokers.world.wait(2.0)
    peer.connection.pause_writing()
    store(brokers, 5000)
    take(peer)
    brokers.world.wait(1.0)
    assert why(brokers) is Reason.CONNECTION_FULL
    peer.connection.resume_writing()
    brokers.until(lambda: sent(brokers) == 5000)
    assert why(brokers) is Reason.AT_END


@pytest.mark.parametrize("kind", SEVERAL)
@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("max_unacked_per_consumer", Reason.UNACKED_CONSUMER),
        ("max_unacked_per_subscription", Reason.UNACKED_SUBSCRIPTION),
    ],
)
def test_as_much_is_outstanding_as_may_be(kind: int, policy: str, found: Reason) -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, **{policy: 5}))
    peer = brokers.subscribed("s", kind)
    store(brokers, 10)
    take(peer)
    brokers.until(lambda: sent(brokers) == 5)
    brokers.world.wait(0.1)
    assert why(brokers) is found
    acknowledge(peer, [0, 1, 2])
    brokers.until(lambda: sent(brokers) > 5)


def test_as_much_is_outstanding_of_the_whole_broker_as_may_be() -> None:
    brokers = Brokers(policies=UNBOUNDED, max_unacked=5)
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 10)
    take(peer, permits=5)
    brokers.until(lambda: sent(brokers) == 5)
    take(peer)
    brokers.world.wait(0.1)
    assert why(brokers) is Reason.UNACKED_BROKER
    acknowledge(peer, [0, 1, 2, 3])
    brokers.until(lambda: sent(brokers) > 5)


def test_keys_that_another_consumer_still_holds() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    first = brokers.subscribed("s", KEY_SHARED)
    take(first)
    for number in range(20):
        store(brokers, 1, keyed(f"k{number}"))
    brokers.until(lambda: sent(brokers) == 20)
    second = joined(brokers, 2, KEY_SHARED)
    take(second, number=2)
    for number in range(20):
        store(brokers, 1, keyed(f"k{number}"))
    brokers.world.wait(0.5)
    assert 20 < sent(brokers) < 40
    assert why(brokers) is Reason.KEY_HELD
    acknowledge(first, list(range(20)))
    brokers.until(lambda: sent(brokers) == 40)
    assert why(brokers) is Reason.AT_END


def test_keys_whose_consumer_takes_no_more_and_look_ahead_that_ends() -> None:
    dispatch = DispatchSettings(look_ahead_per_subscription=30)
    brokers = Brokers(policies=UNBOUNDED, dispatch=dispatch)
    joined(brokers, 1, KEY_SHARED)
    second = joined(brokers, 2, KEY_SHARED)
    take(second, number=2)
    for number in range(20):
        store(brokers, 1, keyed(f"k{number}"))
    brokers.world.wait(0.5)
    assert 0 < sent(brokers) < 20
    assert why(brokers) is Reason.NO_PERMITS
    for number in range(200):
        store(brokers, 1, keyed(f"k{number}"))
    brokers.world.wait(0.5)
    assert why(brokers) is Reason.LOOK_AHEAD


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("whose", [LimitedBy.SUBSCRIPTION, LimitedBy.TOPIC])
def test_a_rate_that_is_used_up(kind: int, whose: LimitedBy) -> None:
    name = "dispatch_rate" if whose is LimitedBy.TOPIC else "subscription_dispatch_rate"
    brokers = Brokers(policies=replace(UNBOUNDED, **{name: DispatchRate(5, period_seconds=3600)}))
    peer = brokers.subscribed("s", kind)
    store(brokers, 20)
    take(peer)
    brokers.world.wait(2.0)
    assert why(brokers) is Reason.RATE_LIMIT
    throttle = subscription(brokers).throttle
    assert throttle is not None
    assert throttle.held_by is not None
    assert throttle.held_by.kind is whose
    topic = topic_of(brokers)
    topic.apply_policies(replace(topic.policies, **{name: DispatchRate()}))
    brokers.until(lambda: sent(brokers) == 20)
    assert why(brokers) is Reason.AT_END


@pytest.mark.parametrize("kind", SEVERAL)
def test_what_is_left_is_not_due(kind: int) -> None:
    brokers = Delays()
    brokers.consumer(kind)
    brokers.send(HOUR, None, 2 * HOUR)
    brokers.run_for(100)
    found = brokers.subscription().dispatcher
    assert found.why_not() is Reason.DELAYED
    assert found.delays.next_due_ms() == pytest.approx(brokers.now + HOUR, abs=1000)
    brokers.run_for(2 * HOUR + 2000)
    assert found.why_not() is Reason.AT_END


@pytest.mark.parametrize("kind", SEVERAL)
def test_more_is_acknowledged_out_of_order_than_is_kept(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CursorStorage, "_keeps_all_holes", False)
    brokers = pausing(pause=True)
    peer = brokers.subscribed("s", kind)
    store(brokers, 40)
    take(peer, permits=20)
    brokers.until(lambda: sent(brokers) == 20)
    acknowledge(peer, [1, 3, 5, 7, 9, 11])
    take(peer, permits=20)
    brokers.world.wait(1.0)
    assert why(brokers) is Reason.ACK_STATE
    acknowledge(peer, [2])
    brokers.until(lambda: sent(brokers) == 40)


class Later:
    """A filter that wants all later, until it is told otherwise."""

    verdict = FilterResult.RESCHEDULE

    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult:
        return self.verdict


@pytest.mark.parametrize("kind", ALL)
def test_a_filter_wants_to_be_asked_again(kind: int) -> None:
    later = Later()
    dispatch = DispatchSettings(filters=(later,), filter_again_seconds=10.0)
    brokers = Brokers(policies=UNBOUNDED, dispatch=dispatch)
    peer = brokers.subscribed("s", kind)
    store(brokers, 2)
    take(peer)
    brokers.world.wait(2.0)
    assert why(brokers) is Reason.FILTER
    later.verdict = FilterResult.ACCEPT
    brokers.until(lambda: sent(brokers) == 2)
    assert why(brokers) is Reason.AT_END


@pytest.mark.parametrize("kind", ALL)
def test_what_cannot_be_read(kind: int) -> None:
    assert why(with_a_lost_ledger(kind, skip=False)) is Reason.READ_FAILED


@pytest.mark.parametrize("kind", ALL)
def test_a_read_is_on_its_way(kind: int) -> None:
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", kind)
    brokers.world.wait(2.0)
    store(brokers, 10)
    topic_of(brokers).managed_ledger.reader.forget(topic_of(brokers).managed_ledger.current_ledger.ledger_id)
    take(peer)
    brokers.until(lambda: why(brokers) is Reason.READING, most=5)
    brokers.until(lambda: sent(brokers) == 10)
    assert why(brokers) is Reason.AT_END


@pytest.mark.parametrize("kind", ALL)
def test_others_come_first_in_a_turn_of_the_loop(kind: int) -> None:
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", kind)
    brokers.world.wait(2.0)
    store(brokers, 10)
    brokers.broker.budget.admits(subscription(brokers))
    brokers.broker.budget.spend(1 << 30)
    take(peer)
    assert why(brokers) is Reason.TURN
    brokers.until(lambda: sent(brokers) == 10)


@pytest.mark.parametrize("kind", ALL)
def test_what_is_stored_nowhere_and_dropped(kind: int) -> None:
    name = TOPIC.replace("persistent://", "non-persistent://", 1)
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", kind, topic=name)
    found = brokers.broker.topics.loaded[name].subscriptions["s"]
    assert isinstance(found, NonPersistentSubscription)
    assert found.dispatcher is not None
    publisher = brokers.publisher(name)
    assert found.dispatcher.why_not() is Reason.AT_END
    brokers.publish(publisher, 2)
    assert (found.dispatcher.why_not(), found.drops.messages) == (Reason.NO_PERMITS, 2)
    take(peer)
    brokers.publish(publisher, 2)
    assert found.dispatcher.why_not() is Reason.AT_END
    peer.send(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=9)
    brokers.publish(publisher, 2)
    assert found.dispatcher.why_not() is Reason.NO_CONSUMER
