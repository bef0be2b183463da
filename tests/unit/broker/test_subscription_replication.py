"""Replicated subscriptions of one topic: when snapshots are taken, and what moves subscriptions."""

from __future__ import annotations

import pytest
from replicating import deduplicate
from subscription_replication import OWN, Sites, acknowledge, receive

from magnetar.broker.explaining.subscriptions import explain_subscription
from magnetar.broker.replication.clusters import SubscriptionSettings
from magnetar.broker.replication.subscriptions.markers import (
    REQUEST,
    RESPONSE,
    SNAPSHOT,
    UPDATE,
    encode_request,
    encode_update,
)
from magnetar.broker.subscriptions.base import SubscriptionType
from magnetar.broker.subscriptions.persistent import seek_to
from magnetar.managed_ledger.position import LATEST

KINDS = list(SubscriptionType)


def test_what_is_acknowledged_up_to_a_snapshot_is_told_to_the_other_cluster() -> None:
    world = Sites()
    subscription = world.subscription()
    [message] = world.send()
    world.snapshot((9, 4))
    assert world.kinds() == [0, REQUEST, RESPONSE, SNAPSHOT]
    _kind, to, taken = world.entries()[3]
    assert to == [OWN]
    assert (taken.local, taken.remote) == ((message[0], 2), {"east": (9, 4)})
    assert subscription.backlog() == 4
    subscription.skip_to(message)
    world.wait()
    assert world.entries()[4] == (UPDATE, [], ("s", {"east": (9, 4)}))
    assert subscription.backlog() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_told_before_all_messages_are_acknowledged(kind: SubscriptionType) -> None:
    world = Sites()
    world.subscription()
    messages = world.send(3)
    peer = receive(world, kind.value)
    world.snapshot((9, 4))
    acknowledge(world, peer, messages[0], messages[2])
    world.wait()
    assert UPDATE not in world.kinds()
    acknowledge(world, peer, messages[1])
    world.wait(0.1)
    assert world.entries()[-1] == (UPDATE, [], ("s", {"east": (9, 4)}))
    assert world.subscription().backlog() == 0


def test_a_slow_shared_subscription_moves_along_in_steps() -> None:
    """Snapshots that are newer than what it has acknowledged do not push out those it passes next."""
    world = Sites(settings=SubscriptionSettings(cached=4))
    subscription = world.subscription()
    peer = receive(world, SubscriptionType.Shared.value, 1000)
    sent = []
    for number in range(30):
        sent += world.send()
        world.snapshot((9, number))
    told = []
    for message in sent:
        acknowledge(world, peer, message)
        kind, _to, says = world.entries()[-1]
        if kind == UPDATE and (not told or told[-1] != says[1]["east"][1]):
            told.append(says[1]["east"][1])
            assert says[1]["east"][1] <= sent.index(message), "never beyond what was acknowledged"
    assert told[-1] == 29
    assert len(told) == 4
    assert told[0] < 15
    assert subscription.backlog() == 0


def test_after_a_reload_snapshots_are_found_in_the_backlog() -> None:
    world = Sites()
    world.subscription()
    [message] = world.send()
    world.snapshot((9, 4))
    world.reload()
    world.others = ()
    peer = receive(world, 0)
    acknowledge(world, peer, message)
    assert world.entries()[-1] == (UPDATE, [], ("s", {"east": (9, 4)}))


def test_a_snapshot_is_taken_after_something_was_published_and_while_all_are_connected() -> None:
    world = Sites()
    world.subscription()
    world.wait(10)
    assert world.kinds() == []
    world.replicators["east"].connected = False
    world.send()
    world.wait(10)
    assert world.kinds() == [0]
    world.replicators["east"].connected = True
    world.wait(10)
    world.snapshot((9, 0))
    world.wait(10)
    assert world.kinds() == [0, REQUEST, RESPONSE, SNAPSHOT, *world.kinds(4)]
    assert REQUEST not in world.kinds(4), "markers are nothing that was published"
    world.send()
    world.wait()
    assert world.kinds()[-1] == REQUEST


def test_without_a_replicated_subscription_none_is_taken() -> None:
    world = Sites()
    world.subscription(replicated=False)
    world.send()
    world.wait(10)
    assert world.kinds() == [0]
    world.subscription().replicate(True)
    world.wait()
    assert world.kinds() == [0, REQUEST]
    world.answer((9, 0))
    world.subscription().replicate(False)
    world.send()
    world.wait(10)
    assert world.kinds().count(REQUEST) == 1
    assert world.figures.pending == 0


def test_one_that_nobody_answers_is_given_up_and_another_is_taken() -> None:
    world = Sites()
    world.subscription()
    world.send()
    world.wait()
    first = world.requested()
    assert world.figures.pending == 1
    world.wait(32)
    assert world.figures.timed_out == 1
    assert world.requested() != first
    world.answer((9, 0))
    assert world.figures.pending == 0
    assert world.figures.taken.count == 1


def test_one_is_taken_anew_when_the_list_of_clusters_changes() -> None:
    world = Sites("east", "north")
    world.subscription()
    world.send()
    world.wait()
    first = world.requested()
    world.answer((9, 0))
    world.others = ("east",)
    world.wait()
    assert world.requested() != first
    world.answer((9, 1))
    assert (world.figures.pending, world.figures.timed_out, world.figures.taken.count) == (0, 0, 1)


def test_operators_are_told_why_a_subscription_does_not_move_along() -> None:
    world = Sites()
    subscription = world.subscription()
    world.replicators["east"].connected = False
    world.send()
    world.wait()
    sentence = "It does not advance in the other clusters: "
    found = explain_subscription(subscription)
    assert found.sentence.endswith(f" {sentence}not connected to east, and a snapshot needs all clusters.")
    world.replicators["east"].connected = True
    world.wait(4)
    found = explain_subscription(subscription)
    assert f" {sentence}a snapshot has waited" in found.sentence
    assert found.sentence.endswith("for east.")
    world.answer((9, 0))
    world.wait(0.1)
    found = explain_subscription(subscription)
    assert sentence not in found.sentence
    assert found.figures["snapshots"] == 1


def test_while_a_cluster_is_away_it_is_looked_more_and_more_rarely() -> None:
    world = Sites()
    world.subscription()
    world.replicators["east"].connected = False
    world.send()
    world.wait(100)
    world.replicators["east"].connected = True
    world.wait(10.5)
    world.answer((9, 0))
    world.send()
    world.wait()
    assert world.kinds().count(REQUEST) == 2, "and often again when it is back"


def test_a_deleted_subscription_is_not_told_of() -> None:
    """Else it would come into being again where it was deleted as well."""
    world = Sites()
    subscription = world.subscription()
    other = world.subscription("other")
    world.send()
    world.wait()
    subscription.skip_to(world.topic.max_read_position)
    other.skip_to(world.topic.max_read_position)
    world.world.run(world.topic.subscriptions.unsubscribe("s"))
    world.answer((9, 0))
    world.wait()
    assert [says[0] for kind, _to, says in world.entries() if kind == UPDATE] == ["other"]


def test_a_seek_forward_moves_the_others_along() -> None:
    world = Sites()
    subscription = world.subscription()
    world.send(3)
    world.snapshot((9, 4))
    world.world.run(seek_to(subscription, LATEST))
    world.wait(0.1)
    assert world.entries()[-1] == (UPDATE, [], ("s", {"east": (9, 4)}))


def test_with_deduplication_markers_are_no_messages_of_a_producer() -> None:
    world = Sites()
    deduplicate(world)
    subscription = world.subscription()
    for number in range(3):
        [message] = world.send()
        world.snapshot((9, number))
        subscription.skip_to(message)
        world.wait(0.1)
    assert world.kinds().count(UPDATE) == 3
    assert world.topic.last_sequence_id("pulsar.marker") == -1


def test_of_three_clusters_two_are_asked_twice() -> None:
    world = Sites("east", "north")
    world.subscription()
    world.send()
    world.wait()
    first = world.requested()
    world.answer((9, 1))
    world.answer((5, 1), "north")
    world.wait(0.1)
    assert world.requested() != first
    world.answer((5, 2), "north")
    last = world.answer((9, 2))
    world.wait(0.1)
    kind, _to, taken = world.entries(last[1] + 1)[0]
    assert kind == SNAPSHOT
    assert (taken.snapshot_id, taken.local) == (first, last)
    assert taken.remote == {"east": (9, 1), "north": (5, 1)}


def test_requests_are_answered_with_the_last_position() -> None:
    """Without a replicated subscription here, as well."""
    world = Sites("east", "north")
    world.send(3)
    asked = world.marker(REQUEST, encode_request("id", "east"))
    world.wait(0.1)
    assert world.entries(4) == [(RESPONSE, ["east"], ("id", OWN, asked))]
    world.marker(REQUEST, encode_request("id", "south"))
    world.wait(0.1)
    assert len(world.entries(5)) == 1, "nothing goes there from here"


def test_what_cannot_be_read_is_ignored() -> None:
    world = Sites()
    for kind in (REQUEST, RESPONSE, SNAPSHOT, UPDATE):
        world.marker(kind, b"\xff")
    assert world.topic.managed_ledger.last_confirmed[1] == 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_moves_a_subscription_forward_only(kind: SubscriptionType) -> None:
    world = Sites()
    subscription = world.subscription()
    messages = world.send(5)
    peer = receive(world, kind.value)
    world.marker(UPDATE, encode_update("s", {OWN: messages[2], "north": (1, 1)}))
    assert subscription.cursor.mark_delete == messages[2]
    world.marker(UPDATE, encode_update("s", {OWN: messages[1]}))
    world.marker(UPDATE, encode_update("s", {"north": messages[4]}))
    assert subscription.cursor.mark_delete == messages[2]
    acknowledge(world, peer, messages[3], messages[4])
    assert subscription.backlog() == 0


def test_a_subscription_that_is_in_use_elsewhere_does_not_expire() -> None:
    world = Sites()
    subscription = world.subscription()
    [message] = world.send()
    world.wait(100)
    before = subscription.last_active_ms
    world.marker(UPDATE, encode_update("s", {OWN: message}))
    assert subscription.last_active_ms >= before + 100_000


def test_an_update_makes_a_missing_subscription() -> None:
    world = Sites()
    messages = world.send(3)
    world.marker(UPDATE, encode_update("new", {OWN: messages[0]}))
    world.marker(UPDATE, encode_update("new", {OWN: messages[1]}))
    world.until(lambda: "new" in world.topic.subscriptions)
    world.wait(0.1)
    made = world.topic.subscriptions["new"]
    assert made.replicated
    assert made.cursor.mark_delete == messages[1]
    for name in ("pulsar.dedup", "pulsar.repl.east", "__compaction"):
        world.marker(UPDATE, encode_update(name, {OWN: messages[2]}))
    world.wait(0.1)
    assert set(world.topic.subscriptions) == {"new"}


def test_a_position_behind_the_last_entry_moves_nothing() -> None:
    """The topic may have been made anew; what is stored here now has not been consumed elsewhere."""
    world = Sites()
    subscription = world.subscription()
    world.send(3)
    world.marker(UPDATE, encode_update("s", {OWN: (1 << 40, 1)}))
    assert subscription.backlog() == 4


def test_markers_leave_no_backlog_where_nobody_consumes() -> None:
    world = Sites()
    subscriptions = [world.subscription(), world.subscription("plain", replicated=False)]
    messages = world.send(2)
    world.snapshot((9, 0))
    assert [each.backlog() for each in subscriptions] == [5, 5], world.kinds()
    for each in subscriptions:
        each.skip_to(world.topic.max_read_position)
    world.marker(REQUEST, encode_request("id", "east"))
    world.wait()
    assert [each.backlog() for each in subscriptions] == [0, 0]
    behind = world.subscription("behind", replicated=False)
    world.marker(UPDATE, encode_update("behind", {OWN: messages[1]}))
    assert behind.cursor.mark_delete >= messages[1]


def test_where_it_is_switched_off_nothing_is_taken_answered_or_moved() -> None:
    world = Sites(settings=SubscriptionSettings(enabled=False))
    subscription = world.subscription()
    messages = world.send(2)
    world.marker(REQUEST, encode_request("id", "east"))
    world.marker(UPDATE, encode_update("s", {OWN: messages[1]}))
    world.wait(10)
    assert world.kinds() == [0, 0, REQUEST, UPDATE]
    assert subscription.backlog() == 4
