"""Receipts of replicators: source positions in the place of sequence ids, as Apache Pulsar 4.0.8 has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from peers import Brokers
from replicating import (
    NONE,
    Replicator,
    deduplicate,
    publish,
    receipts,
    refusal,
    replicated,
    stored,
    the_topic,
)

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, EncryptionKeys

_MARKER = 2**63


def sender_of(world: Brokers, *, deduplication: bool, **options: Any) -> Replicator:
    sender = Replicator(world, **options)
    if deduplication:
        deduplicate(world)
    sender.forget()
    return sender


def test_the_broker_announces_that_it_knows_source_positions() -> None:
    sender = Replicator(Brokers())
    [connected] = sender.received(BaseCommand.CONNECTED)
    assert connected.connected.feature_flags.supports_repl_dedup_by_lid_and_eid
    [success] = sender.received(BaseCommand.PRODUCER_SUCCESS)
    assert success.producer_success.last_sequence_id == -1


@pytest.mark.parametrize("deduplication", [False, True])
def test_receipts_have_source_positions(deduplication: bool) -> None:
    world = Brokers()
    sender = sender_of(world, deduplication=deduplication)
    publish(sender, replicated(4, "7:0"), replicated(2, "7:3"), replicated(2, "9:0"))
    assert receipts(sender, 3) == [(7, 0, 0), (7, 3, 1), (9, 0, 2)]


@pytest.mark.parametrize("deduplication", [False, True])
def test_markers_are_known_by_their_sequence_ids(deduplication: bool) -> None:
    """They are stored, and neither compared nor remembered."""
    world = Brokers()
    sender = sender_of(world, deduplication=deduplication)
    publish(sender, replicated(0, "7:0"), replicated(0, "7:1", marker=10), replicated(1, "7:2"))
    assert receipts(sender, 3) == [(7, 0, 0), (0, _MARKER, 1), (7, 2, 2)]
    publish(sender, replicated(0, "7:1", marker=13), replicated(5, None, marker=11))
    assert receipts(sender, 2) == [(0, _MARKER, 3), (5, _MARKER, 4)]


def test_markers_of_another_kind_are_refused() -> None:
    world = Brokers()
    sender = sender_of(world, deduplication=False)
    publish(sender, replicated(3, "7:0", marker=21))
    found = refusal(sender)
    assert (found.sequence_id, found.error) == (3, ServerErrorCode.NOT_ALLOWED)
    assert stored(world) == 0


@pytest.mark.parametrize("position", [None, "7", "x:y", "7:1:2"])
@pytest.mark.parametrize("deduplication", [False, True])
def test_what_has_no_source_position_is_refused_and_not_stored(
    deduplication: bool, position: str | None
) -> None:
    world = Brokers()
    sender = sender_of(world, deduplication=deduplication)
    publish(sender, replicated(2, position))
    found = refusal(sender)
    assert (found.producer_id, found.sequence_id) == (1, 2)
    assert found.error == ServerErrorCode.PERSISTENCE
    if deduplication:
        name = the_topic(world).full_name
        text = f"[{name}][pulsar.repl.east-->standalone]Cannot determine whether the message is a duplicate"
        assert found.message == f"{text} at this time"
    else:
        assert found.message.startswith("Message can not determine whether the message is duplicated")
    publish(sender, replicated(3, "7:0"))
    assert receipts(sender, 1) == [(7, 0, 0)]
    assert stored(world) == 1


def test_a_run_is_stored_around_what_is_refused() -> None:
    world = Brokers()
    sender = sender_of(world, deduplication=False)
    publish(sender, replicated(0, "7:0"), replicated(1, None), replicated(2, "7:2"))
    assert receipts(sender, 2) == [(7, 0, 0), (7, 2, 1)]
    assert stored(world) == 2


@pytest.mark.parametrize("deduplication", [False, True])
def test_ordinary_receipts_for_a_replicator_that_does_not_know_source_positions(deduplication: bool) -> None:
    world = Brokers()
    sender = sender_of(world, deduplication=deduplication, by_position=False)
    publish(sender, replicated(4, None), replicated(5, "7:3"), replicated(6, None, marker=10))
    assert receipts(sender, 3) == [(4, NONE, 0), (5, NONE, 1), (6, NONE, 2)]


def test_ordinary_receipts_for_non_persistent_topics() -> None:
    world = Brokers()
    sender = Replicator(world, topic="non-persistent://public/default/np")
    sender.forget()
    publish(sender, replicated(4, None))
    assert receipts(sender, 1)[0][:2] == (4, NONE)


def test_ordinary_receipts_for_ordinary_producers_of_such_a_client() -> None:
    world = Brokers()
    sender = Replicator(world, name="alpha")
    sender.forget()
    publish(sender, replicated(4, "7:0"))
    assert receipts(sender, 1) == [(4, NONE, 0)]


def test_clients_send_no_markers() -> None:
    world = Brokers()
    sender = Replicator(world, name="alpha")
    sender.forget()
    publish(sender, replicated(4, "7:0", marker=10))
    assert refusal(sender).error == ServerErrorCode.NOT_ALLOWED


def test_a_damaged_marker_is_refused() -> None:
    world = Brokers()
    sender = sender_of(world, deduplication=False)
    frame = bytearray(replicated(4, "7:0", marker=10))
    frame[-1] ^= 1
    publish(sender, bytes(frame))
    assert refusal(sender).error == ServerErrorCode.CHECKSUM
    assert stored(world) == 0


def test_a_message_that_is_refused_holds_back_what_comes_behind_it() -> None:
    """Its replicator sends both again, in their order; else a later one would be stored before it."""
    world = Brokers()
    sender = sender_of(world, deduplication=True)
    topic = the_topic(world)
    topic.apply_policies(replace(topic.policies, max_message_size=400))
    large = replicated(1, "7:1", uuid="x" * 400)
    publish(sender, replicated(0, "7:0"), large, replicated(2, "7:2"))
    assert refusal_and_close(sender) == (1, ServerErrorCode.NOT_ALLOWED)
    assert stored(world) == 1
    topic.apply_policies(replace(topic.policies, max_message_size=0))
    sender.open()
    sender.forget()
    publish(sender, replicated(0, "7:0"), large, replicated(2, "7:2"))
    assert receipts(sender, 3) == [(7, 0, NONE), (7, 1, 1), (7, 2, 2)]


def refusal_and_close(sender: Replicator) -> tuple[int, int]:
    sender.world.until(lambda: sender.count(BaseCommand.CLOSE_PRODUCER))
    kinds = [each.type for each in sender.told() if each.type != BaseCommand.SEND_RECEIPT]
    assert kinds == [BaseCommand.SEND_ERROR, BaseCommand.CLOSE_PRODUCER]
    [found] = sender.received(BaseCommand.SEND_ERROR)
    sender.forget()
    return found.send_error.sequence_id, found.send_error.error


@pytest.mark.parametrize("by_position", [True, False])
def test_where_encryption_is_required_the_messages_of_replicators_are_looked_at(by_position: bool) -> None:
    """Their producers never say that they encrypt: it is the original ones that did."""
    world = Brokers(policies=EffectivePolicies(encryption_required=True))
    sender = sender_of(world, deduplication=False, by_position=by_position)
    key = EncryptionKeys(key="k", value=b"v")
    publish(sender, replicated(0, "7:0", encryption_keys=[key]), replicated(0, "7:1", marker=10))
    assert [each[2] for each in receipts(sender, 2)] == [0, 1]
    publish(sender, replicated(3, "7:2"))
    found = refusal(sender)
    assert (found.sequence_id, found.error) == (3, ServerErrorCode.METADATA)
    assert found.message == "Messages must be encrypted"
    assert stored(world) == 2


def test_where_encryption_is_required_clients_have_to_say_that_they_encrypt() -> None:
    world = Brokers(policies=EffectivePolicies(encryption_required=True))
    sender = Replicator(world, name="alpha")
    [found] = sender.received(BaseCommand.ERROR)
    assert found.error.message.startswith("Encryption is required in")


def test_messages_of_replicators_on_non_persistent_topics_are_looked_at_too() -> None:
    world = Brokers(policies=EffectivePolicies(encryption_required=True))
    sender = Replicator(world, topic="non-persistent://public/default/np")
    publish(sender, replicated(3, None))
    assert refusal(sender).message == "Messages must be encrypted"
