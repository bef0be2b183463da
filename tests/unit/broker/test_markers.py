"""Markers of other brokers are stored, and no consumer gets them: they are acknowledged on the way."""

from __future__ import annotations

import pytest
from peers import Brokers, Peer, frame
from replicating import Replicator, publish, receipts, refusal, replicated, the_topic

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.filters import FilterContext, FilteredEntry, FilterResult
from magnetar.broker.subscriptions.base import SubscriptionType
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.entries import last_message
from magnetar.errors import ServerErrorCode
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

KINDS = list(SubscriptionType)
MIXED = "m.m..mm.m"
"""Markers and messages, in the order of their entries."""
MESSAGES = [place for place, what in enumerate(MIXED) if what == "."]


def send(sender: Replicator, **fields: int) -> None:
    """:param fields: of the metadata of messages"""
    sender.forget()
    frames = [
        replicated(n, f"7:{n}", marker=10) if what == "m" else replicated(n, f"7:{n}", **fields)
        for n, what in enumerate(MIXED)
    ]
    publish(sender, *frames)
    receipts(sender, len(frames))


def subscribed(world: Brokers, kind: SubscriptionType, permits: int = 100) -> Peer:
    peer = world.subscribed("s", kind.value)
    peer.forget()
    peer.connection.data_received(frame(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=permits))
    return peer


def entries(world: Brokers, peer: Peer, count: int) -> list[int]:
    """Entry ids of the messages that were sent, once there are so many, and after a while more."""
    world.until(lambda: peer.count(BaseCommand.MESSAGE) >= count)
    for _ in range(5):
        world.one_turn()
    return [each.message.message_id.entryId for each in peer.received(BaseCommand.MESSAGE)]


def acknowledge(world: Brokers, peer: Peer) -> None:
    for each in peer.received(BaseCommand.MESSAGE):
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id, command.ack.ack_type = 1, 0  # type: ignore[assignment]
        command.ack.message_id.add().CopyFrom(each.message.message_id)
        peer.connection.data_received(encode_command(command))
    world.one_turn()


def subscription(world: Brokers) -> Subscription:
    return the_topic(world).subscriptions["s"]


@pytest.mark.parametrize("first", ["consumer", "messages"])
@pytest.mark.parametrize("kind", KINDS)
def test_consumers_get_the_messages_between_them(kind: SubscriptionType, first: str) -> None:
    world = Brokers()
    sender = Replicator(world)
    if first == "messages":
        send(sender)
    peer = subscribed(world, kind)
    if first == "consumer":
        send(sender)
    assert entries(world, peer, len(MESSAGES)) == MESSAGES
    assert subscription(world).backlog() == len(MESSAGES)
    acknowledge(world, peer)
    assert subscription(world).backlog() == 0
    assert subscription(world).cursor.mark_delete == the_topic(world).managed_ledger.last_confirmed


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_permit_at_a_time(kind: SubscriptionType) -> None:
    world = Brokers()
    send(Replicator(world))
    peer = subscribed(world, kind, 1)
    for number in range(1, len(MESSAGES)):
        assert entries(world, peer, number) == MESSAGES[:number]
        peer.connection.data_received(frame(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1))
    assert entries(world, peer, len(MESSAGES)) == MESSAGES


@pytest.mark.parametrize("kind", KINDS)
def test_after_messages_are_asked_for_again(kind: SubscriptionType) -> None:
    world = Brokers()
    send(Replicator(world))
    peer = subscribed(world, kind)
    assert entries(world, peer, len(MESSAGES)) == MESSAGES
    peer.forget()
    command = "redeliverUnacknowledgedMessages"
    peer.send(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, command, consumer_id=1)
    assert sorted(entries(world, peer, len(MESSAGES))) == MESSAGES


@pytest.mark.parametrize("kind", [SubscriptionType.Shared, SubscriptionType.Key_Shared])
def test_among_messages_that_are_to_come_later(kind: SubscriptionType) -> None:
    world = Brokers()
    sender = Replicator(world)
    peer = subscribed(world, kind)
    due = world.broker.io.clock.wall_ms() + 2000
    send(sender, deliver_at_time=due)
    assert entries(world, peer, 0) == []
    assert subscription(world).backlog() == len(MESSAGES)
    world.world.wait(3)
    assert sorted(entries(world, peer, len(MESSAGES))) == MESSAGES
    acknowledge(world, peer)
    assert subscription(world).backlog() == 0


class _NoMarkers:
    def filter_entry(self, entry: FilteredEntry, _context: FilterContext) -> FilterResult:
        assert not entry.metadata.HasField("marker_type")
        return FilterResult.REJECT if entry.metadata.sequence_id == MESSAGES[1] else FilterResult.ACCEPT


@pytest.mark.parametrize("kind", KINDS)
def test_filters_are_not_asked(kind: SubscriptionType) -> None:
    world = Brokers(dispatch=DispatchSettings(filters=(_NoMarkers(),)))
    sender = Replicator(world)
    peer = subscribed(world, kind)
    send(sender)
    assert entries(world, peer, len(MESSAGES) - 1) == [each for each in MESSAGES if each != MESSAGES[1]]
    acknowledge(world, peer)
    assert subscription(world).backlog() == 0


def test_the_last_message_is_none_of_them() -> None:
    """Else readers would wait for a message that never comes."""
    world = Brokers()
    sender = Replicator(world)
    topic = the_topic(world)
    assert world.world.run(last_message(topic.managed_ledger))[0][1] == -1
    sender.forget()
    publish(sender, replicated(0, "7:0", marker=10), replicated(1, "7:1", marker=13))
    receipts(sender, 2)
    assert world.world.run(last_message(topic.managed_ledger))[0][1] == -1
    publish(sender, replicated(2, "7:2"), replicated(3, "7:3", marker=10), replicated(4, "7:4", marker=12))
    receipts(sender, 3)
    assert world.world.run(last_message(topic.managed_ledger)) == (
        (topic.managed_ledger.last_confirmed[0], 2),
        0,
    )


def test_topics_that_store_nothing_take_none() -> None:
    sender = Replicator(Brokers(), topic="non-persistent://public/default/np")
    sender.forget()
    publish(sender, replicated(1, None, marker=10))
    assert refusal(sender).error == ServerErrorCode.NOT_ALLOWED
