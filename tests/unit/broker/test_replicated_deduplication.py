"""Each message of another cluster once: after repetitions, failures, reloads and crashes of the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from faulty_ledgers import FaultyLedgerStore
from peers import TOPIC, Brokers
from replicating import (
    NAME,
    NONE,
    Replicator,
    publish,
    receipts,
    refusal,
    replicated,
    stored,
    the_topic,
)
from simulated_io import SimulatedDisk

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.deduplication import DeduplicationSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.errors import ServerErrorCode
from magnetar.ledger.interface import LedgerError, LedgerStore
from magnetar.managed_ledger.position import EARLIEST
from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

_ONCE = EffectivePolicies(deduplication=True)
DUPLICATE = NONE


class Once(Brokers):
    """One life of a broker that deduplicates.

    :param entries: after how many it takes a snapshot
    """

    def __init__(self, disk: SimulatedDisk | None = None, entries: int = 1000) -> None:
        self.store: FaultyLedgerStore

        def faulty(inner: LedgerStore, loop: Any) -> LedgerStore:
            self.store = FaultyLedgerStore(inner, loop)
            return self.store

        topic = TopicSettings(DispatchSettings(), deduplication=DeduplicationSettings(entries))
        super().__init__(disk=disk, wrap=faulty, topic=topic, policies=_ONCE)

    def sender(self, **options: Any) -> Replicator:
        sender = Replicator(self, **options)
        sender.forget()
        return sender


def numbered(first: int, end: int) -> list[bytes]:
    """Messages of which the sequence ids say nothing."""
    return [replicated(0, f"7:{number}") for number in range(first, end)]


def source_entries(world: Once) -> list[int]:
    """The entry ids that everything stored here has in its source."""
    ledger = the_topic(world).managed_ledger
    cursor = world.world.managed.open_reader_cursor(ledger, "r", EARLIEST)
    found = []
    while cursor.has_more():
        run = world.world.run(cursor.read(100, 1 << 20))
        assert run is not None
        for index in range(run.count):
            [position] = [each.value for each in parse_entry(run.entry(index)).metadata.properties]
            found.append(int(position.partition(":")[2]))
    return found


def test_repetitions_are_receipted_and_not_stored() -> None:
    """Neither the sequence ids nor the producers of the messages play a part."""
    world = Once()
    sender = world.sender()
    publish(sender, replicated(5, "7:1"), replicated(4, "7:2"))
    assert receipts(sender, 2) == [(7, 1, 0), (7, 2, 1)]
    publish(sender, replicated(5, "7:1"), replicated(4, "7:2"), replicated(1, "7:3"), replicated(6, "6:9"))
    assert receipts(sender, 4) == [(7, 1, NONE), (7, 2, NONE), (7, 3, 2), (6, 9, NONE)]
    assert stored(world) == 3


def test_what_is_on_its_way_is_not_decided() -> None:
    world = Once()
    sender = world.sender()
    publish(sender, replicated(5, "7:1"), replicated(6, "7:1"))
    found = refusal(sender)
    assert (found.sequence_id, found.error) == (6, ServerErrorCode.PERSISTENCE)
    assert receipts(sender, 1) == [(7, 1, 0)]


def test_receipts_of_duplicates_wait_for_those_before_them() -> None:
    world = Once()
    sender = world.sender()
    publish(sender, *numbered(0, 1))
    receipts(sender, 1)
    publish(sender, replicated(0, "7:1"), replicated(0, "7:0"))
    assert receipts(sender, 2) == [(7, 1, 1), (7, 0, DUPLICATE)]


@pytest.mark.parametrize("ended", ["reloaded", "stopped", "killed"])
@pytest.mark.parametrize("entries", [4, 1000])
def test_positions_behind_the_last_snapshot_are_known_again(ended: str, entries: int) -> None:
    world = Once(entries=entries)
    sender = world.sender()
    for number in range(7):
        publish(sender, *numbered(number, number + 1))
        receipts(sender, 1)
    publish(sender, replicated(0, "7:7", marker=10))
    receipts(sender, 1)
    if ended == "reloaded":
        sender.may_be_closed = True
        world.world.run(world.broker.topics.unload_topic(the_topic(world)))
        again = world
    else:
        again = Once(world.world.crash() if ended == "killed" else world.world.stop(), entries=entries)
    sender = again.sender()
    known = the_topic(again).deduplication
    assert known is not None
    assert known.sources.last(NAME) == (7, 6), "markers are not remembered"
    publish(sender, *numbered(5, 9))
    assert receipts(sender, 4) == [(7, 5, NONE), (7, 6, NONE), (7, 7, 0), (7, 8, 1)]


def test_a_snapshot_has_both_numbers() -> None:
    world = Once(entries=3)
    sender = world.sender()
    publish(sender, *numbered(0, 3))
    receipts(sender, 3)
    known = the_topic(world).deduplication
    assert known is not None
    assert known.cursor.describe_properties() == {f"{NAME}_LID": 7, f"{NAME}_EID": 2}


def test_messages_of_other_clusters_do_not_count_for_local_producers() -> None:
    """After a crash, too: a local producer may have the name of the original one."""
    world = Once()
    sender = world.sender()
    publish(sender, replicated(50, "7:0"))
    receipts(sender, 1)
    assert the_topic(world).last_sequence_id("alpha") == -1
    again = Once(world.world.crash())
    again.sender()
    assert the_topic(again).last_sequence_id("alpha") == -1


def test_a_failed_write_moves_nothing() -> None:
    world = Once()
    sender = world.sender()
    publish(sender, *numbered(0, 2))
    receipts(sender, 2)
    world.store.fail_next_append(LedgerError("no room"))
    publish(sender, *numbered(2, 5))
    world.until(lambda: sender.count(BaseCommand.CLOSE_PRODUCER))
    assert sender.count(BaseCommand.SEND_ERROR) == 3
    known = the_topic(world).deduplication
    assert known is not None
    assert known.sources.last(NAME) == (7, 1)
    sender.open()
    sender.forget()
    # Even if later ones come first.
    publish(sender, *numbered(4, 5))
    receipts(sender, 1)
    publish(sender, *numbered(2, 5))
    found = receipts(sender, 3)
    assert [each[:2] for each in found] == [(7, 2), (7, 3), (7, 4)]
    assert [each[2] == NONE for each in found] == [False, False, True]


def test_an_entry_that_is_too_large_for_the_store_is_not_taken_for_a_duplicate() -> None:
    world = Once()
    sender = world.sender()
    large = replicated(1, "7:1", uuid="x" * 1000)
    world.store.max_entry_bytes = 500
    publish(sender, replicated(0, "7:0"), large, replicated(2, "7:2"))
    found = refusal(sender)
    assert (found.sequence_id, found.error) == (1, ServerErrorCode.NOT_ALLOWED)
    world.until(lambda: stored(world) == 2)
    world.store.max_entry_bytes = 5000
    sender.forget()
    publish(sender, large)
    assert receipts(sender, 1) == [(7, 1, 2)]


def test_without_source_positions_the_original_producers_are_compared() -> None:
    world = Once()
    sender = world.sender(by_position=False)
    publish(sender, replicated(4, None), replicated(5, None))
    assert receipts(sender, 2) == [(4, NONE, 0), (5, NONE, 1)]
    publish(sender, replicated(5, None), replicated(6, None))
    assert receipts(sender, 2) == [(5, NONE, NONE), (6, NONE, 2)]
    topic = the_topic(world)
    assert topic.last_sequence_id("alpha") == 6
    assert topic.last_sequence_id(NAME) == -1
    again = Once(world.world.crash())
    sender = again.sender(by_position=False)
    publish(sender, replicated(6, None))
    assert receipts(sender, 1) == [(6, NONE, NONE)]
    assert again.broker.topics.loaded[TOPIC].full_name == topic.full_name


def test_switching_deduplication_off_and_on_forgets_a_source() -> None:
    """As a source wants whose ledgers were made anew: its positions begin again."""
    world = Once()
    sender = world.sender()
    publish(sender, *numbered(0, 2))
    receipts(sender, 2)
    publish(sender, replicated(0, "3:0"))
    assert receipts(sender, 1) == [(3, 0, DUPLICATE)]
    topic = the_topic(world)
    for wanted in (False, True):
        topic.apply_policies(replace(topic.policies, deduplication=wanted))
        world.world.run(topic.prepare())
    publish(sender, replicated(0, "3:0"), replicated(0, "3:1"))
    assert receipts(sender, 2) == [(3, 0, 2), (3, 1, 3)]


@pytest.mark.parametrize("first_again", [2, 4])
def test_a_message_that_failed_is_no_duplicate_though_later_ones_are_stored(first_again: int) -> None:
    """The replicator begins again with the oldest on its way, or with a later one."""
    world = Once()
    sender = world.sender()
    publish(sender, *numbered(0, 2))
    receipts(sender, 2)
    world.store.fail_next_append(LedgerError("no room"))
    publish(sender, *numbered(2, 3))
    publish(sender, *numbered(3, 6))
    world.until(lambda: sender.count(BaseCommand.CLOSE_PRODUCER))
    assert [each.send_error.sequence_id for each in sender.received(BaseCommand.SEND_ERROR)]
    sender.open()
    sender.forget()
    publish(sender, *numbered(first_again, 6))
    receipts(sender, 6 - first_again)
    publish(sender, *numbered(2, 8))
    assert [each[:2] for each in receipts(sender, 6)] == [(7, number) for number in range(2, 8)]
    assert sorted(source_entries(world)) == list(range(8)), "nothing is left out, nothing is there twice"
