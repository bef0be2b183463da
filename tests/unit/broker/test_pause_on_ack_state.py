"""Nothing new is sent while more is acknowledged out of order than a cursor keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from peers import TOPIC, Brokers, Peer
from test_dispatch_rates import KEY_SHARED, SHARED, UNBOUNDED, sent, store, take

from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

MOST = 5


@pytest.fixture(autouse=True)
def few_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a ledger store on which no more ranges are kept."""
    monkeypatch.setattr(CursorStorage, "_keeps_all_holes", False)


def brokers(*, pause: bool) -> Brokers:
    made = Brokers(policies=replace(UNBOUNDED, pause_on_ack_state=pause))
    ledgers = made.broker.managed_ledgers
    ledgers.settings = replace(ledgers.settings, max_unacked_ranges_to_persist=MOST)
    return made


def acknowledge(peer: Peer, entries: list[int]) -> None:
    """Whole entries, by their places among those that came."""
    peer.world.world.wait(0.1)
    ids = [found.message.message_id for found in peer.received(BaseCommand.MESSAGE)]
    for entry in entries:
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id = 1
        command.ack.ack_type = 0  # type: ignore[assignment]
        command.ack.message_id.add(ledgerId=ids[entry].ledgerId, entryId=ids[entry].entryId)
        peer.connection.data_received(encode_command(command))


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_it_waits_until_what_is_acknowledged_can_be_kept(kind: int) -> None:
    world = brokers(pause=True)
    peer = world.subscribed("s", kind)
    store(world, 40)
    take(peer, permits=20)
    world.until(lambda: sent(world) == 20)
    acknowledge(peer, [1, 3, 5, 7, 9, 11])
    take(peer, permits=20)
    world.world.wait(1.0)
    assert sent(world) == 20, "six ranges are not kept"
    acknowledge(peer, [2])
    world.until(lambda: sent(world) == 40)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_waits_to_be_delivered_again_is_sent_all_the_same(kind: int) -> None:
    world = brokers(pause=True)
    peer = world.subscribed("s", kind)
    store(world, 40)
    take(peer, permits=20)
    world.until(lambda: sent(world) == 20)
    acknowledge(peer, [1, 3, 5, 7, 9, 11])
    take(peer, permits=100)
    peer.send(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliverUnacknowledgedMessages", consumer_id=1)
    world.world.wait(1.0)
    assert sent(world) == 34, "the fourteen that are left of the twenty, again"


def test_without_the_policy_or_when_it_goes_everything_is_sent() -> None:
    world = brokers(pause=False)
    peer = world.subscribed("s", SHARED)
    store(world, 40)
    take(peer, permits=20)
    world.until(lambda: sent(world) == 20)
    acknowledge(peer, [1, 3, 5, 7, 9, 11])
    topic = world.broker.topics.loaded[TOPIC]
    topic.apply_policies(replace(topic.policies, pause_on_ack_state=True))
    take(peer, permits=20)
    world.world.wait(1.0)
    assert sent(world) == 20
    topic.apply_policies(replace(topic.policies, pause_on_ack_state=False))
    world.until(lambda: sent(world) == 40)
