"""Drivers of tiered storage and their threads end when nothing uses them, also if the store hangs."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest
from memory_bucket import MemoryBucket
from test_offloading import AT_ONCE, Offloading

from magnetar.managed_ledger.measures import Timings
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import OFFLOADS_TO_DELETE, Offload
from magnetar.managed_ledger.settings import OffloadStorage, RetentionSettings

IDLE_SECONDS = 600


def keeping_local() -> Offloading:
    """Returns a topic that was read locally, so that the threads of the ledger store run."""
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(None)
    topic.publish(6)
    topic.ledger.cache.clear()
    assert topic.stored() == topic.published
    return topic


def threads(topic: Offloading) -> int:
    return sum(not worker.closed for worker in topic.world.simulation.workers)


def test_drivers_that_nobody_uses_are_closed_and_opened_again() -> None:
    topic = keeping_local()
    before = threads(topic)
    topic.ledger.use_offload(AT_ONCE)
    topic.publish(12)
    topic.world.wait(5)
    cursor = topic.world.managed.open_reader_cursor(topic.ledger, "r", EARLIEST)
    first = topic.world.run(cursor.read(1, 1 << 20))
    assert first is not None
    assert threads(topic) > before
    topic.world.wait(IDLE_SECONDS + 10)
    assert threads(topic) == before
    assert topic.bucket.closed == len(topic.bucket.opened)
    # Its reader was open meanwhile.
    topic.ledger.cache.clear()
    left = [first.entry(0)]
    while cursor.has_more():
        run = topic.world.run(cursor.read(1, 1 << 20))
        assert run is not None
        left.append(run.entry(0))
    assert left == topic.published
    topic.publish(5)
    topic.world.wait(5)
    assert topic.stored() == topic.published
    topic.check_nothing_is_left_over()


def test_a_driver_that_is_used_stays_open() -> None:
    topic = Offloading(MemoryBucket())
    topic.publish(6)
    topic.world.wait(5)
    assert topic.stored() == topic.published
    opened = len(topic.bucket.opened)
    for _ in range(5):
        topic.world.wait(IDLE_SECONDS * 0.9)
        topic.ledger.cache.clear()
        assert topic.stored() == topic.published
    assert len(topic.bucket.opened) == opened


def test_open_readers_take_new_credentials_and_the_former_driver_is_closed() -> None:
    topic = Offloading(MemoryBucket())
    topic.publish(6)
    topic.world.wait(5)
    assert topic.stored() == topic.published
    renewed = OffloadStorage("memory", (("s3ManagedLedgerOffloadCredentialId", "renewed"),))
    topic.ledger.use_offload(replace(AT_ONCE, storage=renewed))
    topic.ledger.cache.clear()
    assert topic.stored() == topic.published
    assert topic.bucket.opened[-1] == renewed
    for _ in range(3):
        topic.world.wait(IDLE_SECONDS * 0.5)
        topic.ledger.cache.clear()
        assert topic.stored() == topic.published
    assert topic.bucket.closed == len(topic.bucket.opened) - 1


def test_a_store_that_hangs_does_not_delay_the_stop_of_the_broker() -> None:
    topic = keeping_local()
    before = threads(topic)
    topic.ledger.use_offload(AT_ONCE)
    topic.publish(6)
    topic.world.wait(5)
    for worker in topic.world.simulation.workers[before:]:
        worker.longest_delay = 1e6
    now = topic.world.simulation.loop.time()
    topic.world.run(topic.world.managed.release())
    assert topic.world.simulation.loop.time() < now + 10
    assert topic.bucket.closed == 0
    topic.world.wait(2e6)
    assert topic.bucket.closed == len(topic.bucket.opened)
    assert threads(topic) == before


def test_many_open_readers_do_not_delay_the_stop_of_the_broker() -> None:
    """Simulation, seed 13006465: each reader was closed by a job of its own."""
    topic = keeping_local()
    before = threads(topic)
    topic.ledger.use_offload(AT_ONCE)
    topic.publish(400)
    topic.world.wait(30)
    topic.ledger.cache.clear()
    assert topic.stored() == topic.published
    for worker in topic.world.simulation.workers[before:]:
        worker.longest_delay = 0.3
    topic.world.run(topic.ledger.close())
    topic.world.run(topic.world.managed.release())
    assert topic.bucket.closed == len(topic.bucket.opened)
    assert threads(topic) == before


def test_a_store_that_hangs_does_not_delay_uploads_to_others() -> None:
    topic = keeping_local()
    topic.publish(12)
    closed = [each.ledger_id for each in topic.ledger.ledgers if each.closed_ms]
    tiered, run = topic.world.managed.tiered(), topic.world.run
    loop = topic.world.simulation.loop
    before = threads(topic)
    place = run(tiered.new_place(OffloadStorage("memory")))
    for worker in topic.world.simulation.workers[before:]:
        worker.longest_delay = 1e6
    waiting = [
        loop.create_task(
            tiered.upload(OffloadStorage("memory"), topic.ledger.name, ledger_id, place, Timings())
        )
        for ledger_id in closed[:3]
    ]
    other = OffloadStorage("memory", (("s3ManagedLedgerOffloadBucket", "other"),))
    now = loop.time()
    run(tiered.upload(other, topic.ledger.name, closed[0], run(tiered.new_place(other)), Timings()))
    assert loop.time() < now + 60
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()
    topic.world.wait(2e6)


def test_an_upload_that_is_complete_is_deleted_without_looking_for_unfinished_ones() -> None:
    topic = Offloading(MemoryBucket())
    topic.publish(12)
    topic.world.wait(5)
    topic.bucket.fault = lambda _call, name: name == "discard"
    topic.world.run(topic.world.managed.delete(topic.ledger))
    topic.world.wait(5)
    assert not topic.bucket.complete
    topic.check_nothing_is_left_over()


@pytest.mark.parametrize("complete", [False, None], ids=["unfinished", "of an earlier release"])
def test_an_upload_that_may_be_unfinished_is_looked_for(complete: bool | None) -> None:
    topic = Offloading(MemoryBucket())
    uuid = UUID(int=7)
    topic.bucket.unfinished[uuid] = [b"begun"]
    tiered = topic.world.managed.tiered()
    if complete is None:
        note = {"managedLedger": topic.ledger.name, "driver": "memory", "properties": {}}
        path = f"{OFFLOADS_TO_DELETE}/5-{uuid}"
        topic.world.run(topic.world.metadata.put(path, json.dumps(note).encode()))
    else:
        topic.world.run(tiered.deletions.note(topic.ledger.name, 5, Offload(uuid, "memory", {})))
    tiered.deletions.start()
    topic.world.wait(5)
    topic.check_nothing_is_left_over()


def test_ledgers_are_read_and_deleted_with_the_driver_of_their_record() -> None:
    """After another driver was configured, or none any more."""
    topic = Offloading(MemoryBucket())
    topic.publish(6)
    topic.world.wait(5)
    other = OffloadStorage("other", (("s3ManagedLedgerOffloadCredentialId", "key"),))
    topic.bucket.opened.clear()
    topic.ledger.use_offload(replace(AT_ONCE, storage=other))
    topic.ledger.cache.clear()
    assert topic.stored() == topic.published
    assert topic.bucket.opened == [replace(other, driver="memory")]
    topic.publish(6)
    topic.world.wait(5)
    assert {each.driver for each in topic.bucket.opened} == {"memory", "other"}
    topic.ledger.use_offload(None)
    topic.ledger.cache.clear()
    assert topic.stored() == topic.published
    topic.world.wait(3 * IDLE_SECONDS)
    topic.bucket.opened.clear()
    topic.world.run(topic.world.managed.delete(topic.ledger))
    topic.world.wait(5)
    topic.check_nothing_is_left_over()
    assert set(topic.bucket.opened) == {OffloadStorage("memory"), OffloadStorage("other")}


def test_a_read_that_waits_while_its_ledger_is_trimmed_continues_behind_it() -> None:
    """Simulation, seed 52581: the subscription logged that the reader is closed."""
    topic = keeping_local()
    before = threads(topic)
    topic.ledger.use_offload(AT_ONCE)
    topic.publish(12)
    topic.world.wait(5)
    topic.ledger.cache.clear()
    cursors = [
        topic.world.managed.open_reader_cursor(topic.ledger, f"r{each}", EARLIEST) for each in range(2)
    ]
    for worker in topic.world.simulation.workers[before:]:
        worker.longest_delay = 10
    loop = topic.world.simulation.loop
    # The reads of one ledger take turns: the second has not begun when its reader is closed.
    reads = [loop.create_task(cursor.read(100, 1 << 20)) for cursor in cursors]
    first = next(iter(topic.ledger.ledgers)).ledger_id
    topic.world.wait(0)
    topic.ledger.use_retention(RetentionSettings())
    topic.world.wait(60)
    assert topic.ledger.ledgers.get(first) is None
    for read in reads:
        # The cursor has skipped the ledger, or read what arrived before.
        assert read.exception() is None
