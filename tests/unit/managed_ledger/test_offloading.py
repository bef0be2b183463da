"""Ledgers move to tiered storage and are read from there; nothing is lost or left behind."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from memory_bucket import MemoryBucket
from simulated_io import SimulatedDisk
from world import NAME, SMALL, Listener, World

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import sleep
from magnetar.ledger.interface import EntryRun, NoSuchLedger
from magnetar.managed_ledger.entry_reader import is_in_tiered_storage_only
from magnetar.managed_ledger.errors import OffloadInProgress
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.offloading import Offloader, OffloadStatus
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import OFFLOADS_TO_DELETE, ROOT, decode_managed_ledger
from magnetar.managed_ledger.settings import OffloadPolicy, OffloadStorage, RetentionSettings

AT_ONCE = OffloadPolicy(OffloadStorage("memory"), threshold_bytes=0, deletion_lag_ms=0)
KEEPING = replace(SMALL, retention=RetentionSettings(-1, -1))


class Offloading:
    """A topic that keeps everything, and offloads it."""

    def __init__(self, bucket: MemoryBucket, disk: SimulatedDisk | None = None) -> None:
        self.bucket = bucket
        self.world = World(disk, KEEPING, open_driver=bucket.open_driver)
        self.ledger: ManagedLedger
        self.listener: Listener
        self.published: list[bytes] = []
        self.open()

    def open(self, policy: OffloadPolicy | None = AT_ONCE) -> None:
        self.ledger, self.listener = self.world.open()
        self.ledger.use_offload(policy)

    def publish(self, count: int) -> None:
        wanted = len(self.listener.stored) + count
        for _ in range(count):
            entry = f"entry {len(self.published)}".encode()
            self.published.append(entry)
            self.ledger.append(entry, array("q", [0]), array("q", [len(entry)]), 1, len(entry), None)
        while len(self.listener.stored) < wanted:
            self.world.wait(0.01)

    @property
    def offloader(self) -> Offloader:
        assert self.ledger.offloader is not None
        return self.ledger.offloader

    def stored(self) -> list[bytes]:
        """Everything that a new reader finds."""
        cursor = self.world.managed.open_reader_cursor(
            self.ledger, f"reader-{len(self.ledger.cursors)}", EARLIEST
        )
        found = []
        while cursor.has_more():
            run = self.world.run(cursor.read(100, 1 << 20))
            assert run is not None
            found += [run.entry(index) for index in range(run.count)]
        return found

    def in_store(self) -> set[int]:
        """The closed ledgers of the topic that the ledger store has."""
        existing = set(self.world.run(self.world.store.ledger_ids()))
        return {each.ledger_id for each in self.ledger.ledgers if each.closed_ms} & existing

    def check_nothing_is_left_over(self) -> None:
        """Exactly the objects that the record names exist."""
        node = self.world.run(self.world.metadata.get(f"{ROOT}/{NAME}"))
        named = set()
        if node is not None:
            for each in decode_managed_ledger(node.value, node.path).ledgers:
                if each.offload is not None:
                    assert each.offload.complete
                    named.add(each.offload.uuid)
        assert set(self.bucket.complete) == named
        assert not self.bucket.unfinished
        assert self.world.run(self.world.metadata.children(OFFLOADS_TO_DELETE)) == []


def test_closed_ledgers_move_to_tiered_storage_and_are_read_from_there() -> None:
    topic = Offloading(MemoryBucket())
    topic.publish(22)
    topic.world.wait(5)
    closed = [each for each in topic.ledger.ledgers if each.closed_ms]
    assert len(closed) == 4
    assert all(each.offload is not None and each.offload.local_deleted for each in closed)
    assert not topic.in_store()
    assert topic.offloader.bytes == sum(each.size for each in closed)
    assert topic.stored() == topic.published
    topic.check_nothing_is_left_over()


def test_a_restarted_broker_reads_what_was_offloaded() -> None:
    topic = Offloading(MemoryBucket())
    topic.publish(12)
    topic.world.wait(5)
    again = Offloading(topic.bucket, topic.world.crash())
    assert again.stored() == topic.published
    again.publish(5)
    again.world.wait(5)
    assert again.stored() == topic.published + again.published
    again.check_nothing_is_left_over()


@pytest.mark.parametrize("on_load", [True, False])
def test_the_policy_decides_whether_loading_a_topic_offloads_what_is_due(on_load: bool) -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(None)
    topic.publish(12)
    world = World(topic.world.crash(), KEEPING, open_driver=topic.bucket.open_driver)
    ledger, _listener = world.open()
    ledger.use_offload(replace(AT_ONCE, on_load=on_load))
    world.wait(5)
    assert bool(topic.bucket.complete) is on_load
    ledger.check_rollover()
    world.wait(5)
    assert topic.bucket.complete


def test_the_local_copy_stays_for_the_lag() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, deletion_lag_ms=60_000))
    topic.publish(6)
    topic.world.wait(30)
    assert len(topic.bucket.complete) == len(topic.in_store()) == 1
    topic.world.wait(31)
    topic.ledger.check_rollover()
    topic.world.wait(1)
    assert topic.in_store() == set()
    assert topic.stored() == topic.published


@pytest.mark.parametrize("tiered_first", [True, False])
def test_the_policy_decides_where_a_ledger_is_read_that_is_in_both(tiered_first: bool) -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, deletion_lag_ms=60_000, tiered_first=tiered_first))
    topic.publish(6)
    topic.world.wait(5)
    topic.ledger.cache.clear()
    reads: list[str] = []
    topic.bucket.fault = lambda _call, name: reads.append(name) is not None
    assert topic.stored() == topic.published
    assert ("read" in reads) == tiered_first


def test_a_local_copy_goes_after_what_loading_reads_in_it_is_written_elsewhere() -> None:
    topic = Offloading(MemoryBucket())
    there: list[int] = []

    async def write_summaries() -> None:
        there.append(sum(is_in_tiered_storage_only(each) for each in topic.ledger.ledgers))

    topic.ledger.write_summaries = write_summaries
    topic.ledger.trimmer.begun = False
    topic.publish(6)
    topic.world.wait(5)
    assert len(topic.bucket.complete) == len(topic.in_store()) == 1
    assert there == []
    topic.ledger.trimmer.begin()
    topic.ledger.check_rollover()
    topic.world.wait(1)
    assert topic.in_store() == set()
    assert there == [0]


def test_loading_reads_local_copies_whatever_the_policy_says() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, deletion_lag_ms=60_000, tiered_first=True))
    topic.publish(6)
    topic.world.wait(5)
    topic.ledger.cache.clear()
    topic.ledger.reader.prefers_local = True
    topic.bucket.fault = lambda call, _name: call == "read"
    assert topic.stored() == topic.published


def test_a_request_without_a_policy_ends_with_what_to_set() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(None)
    topic.publish(3)
    topic.ledger.offload_before((2**60, 0))
    # Only the ledger that is written has entries.
    assert topic.offloader.status is OffloadStatus.SUCCESS
    topic.publish(6)
    topic.ledger.offload_before((2**60, 0))
    assert topic.offloader.status is OffloadStatus.ERROR
    assert "set managedLedgerOffloadDriver" in topic.offloader.last_error
    topic.ledger.use_offload(replace(AT_ONCE, threshold_bytes=-1))
    topic.ledger.offload_before((2**60, 0))
    topic.world.wait(5)
    assert topic.offloader.status is OffloadStatus.SUCCESS
    assert len(topic.bucket.complete) == 1


def test_rates_are_those_of_the_last_minute() -> None:
    topic = Offloading(MemoryBucket())
    now = topic.world.simulation.io.clock.monotonic
    topic.publish(12)
    topic.world.wait(5)
    topic.ledger.cache.clear()
    assert topic.stored() == topic.published
    reads = topic.ledger.reader.tiered_reads
    assert reads is not None
    written = sum(each.size for each in topic.ledger.ledgers if each.closed_ms)
    assert topic.offloader.recent.per_second(now()) == written / 60
    assert reads.recent.per_second(now()) == reads.bytes / 60 > 0
    topic.world.wait(61)
    assert topic.offloader.recent.per_second(now()) == reads.recent.per_second(now()) == 0
    topic.bucket.fault = lambda _call, name: name == "begin"
    topic.publish(6)
    topic.world.wait(5)
    assert topic.offloader.store_failures == topic.offloader.failures > 0


def test_durations_are_counted_by_what_was_accessed() -> None:
    topic = Offloading(MemoryBucket())
    topic.publish(12)
    topic.world.wait(5)
    assert topic.ledger.reader.tiered_reads is None
    assert topic.offloader.read_times.count == 2
    topic.ledger.cache.clear()
    calls: list[str] = []
    topic.bucket.loses_answer = lambda _call, name: bool(calls.append(name))
    assert topic.stored() == topic.published
    reads = topic.ledger.reader.tiered_reads
    assert reads is not None
    assert (reads.index_times.count, reads.data_times.count) == (calls.count("open"), calls.count("read"))
    assert calls.count("open") == 2
    topic.world.run(topic.world.managed.delete(topic.ledger))
    topic.world.wait(5)
    [counts] = topic.world.managed.offload_deletions().values()
    assert (counts.succeeded, counts.failed) == (2, 0)


def test_deletions_are_counted_for_an_hour_after_the_last_one() -> None:
    topic = Offloading(MemoryBucket())
    topic.publish(12)
    topic.world.wait(5)
    topic.bucket.fault = lambda _call, name: name == "delete"
    topic.world.run(topic.world.managed.delete(topic.ledger))
    topic.world.wait(5)
    topic.bucket.fault = lambda _call, _name: False
    topic.world.wait(60)
    [(name, counts)] = topic.world.managed.offload_deletions().items()
    assert (name, counts.succeeded, counts.failed) == (NAME, 2, 2)
    topic.world.wait(3601)
    assert topic.world.managed.offload_deletions() == {}


def test_a_threshold_of_size_keeps_the_youngest_ledgers() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, threshold_bytes=80))
    topic.publish(26)
    topic.world.wait(5)
    left = [each for each in topic.ledger.ledgers if each.offload is None]
    assert sum(each.size for each in left) <= 80
    assert len(topic.bucket.complete) == len(topic.ledger.ledgers) - len(left) == 4


def test_a_threshold_of_age_waits_until_a_ledger_is_old() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, threshold_bytes=-1, threshold_seconds=60))
    topic.publish(6)
    topic.world.wait(30)
    topic.ledger.check_rollover()
    topic.world.wait(1)
    assert not topic.bucket.complete
    topic.world.wait(31)
    topic.ledger.check_rollover()
    topic.world.wait(1)
    assert len(topic.bucket.complete) == 1


def test_a_user_offloads_what_is_before_a_position() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, threshold_bytes=-1))
    topic.publish(22)
    topic.world.wait(1)
    third = list(topic.ledger.ledgers)[2].ledger_id
    topic.offloader.offload_before((third, 0))
    assert topic.offloader.status is OffloadStatus.RUNNING
    with pytest.raises(OffloadInProgress):
        topic.offloader.offload_before((third, 0))
    topic.world.wait(5)
    assert topic.offloader.status is OffloadStatus.SUCCESS
    assert topic.offloader.first_not_offloaded == (third, 0)
    assert len(topic.bucket.complete) == 2
    topic.offloader.offload_before((third, 0))
    assert topic.offloader.status is OffloadStatus.SUCCESS


def test_a_failed_request_reports_the_error_and_is_not_repeated() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, threshold_bytes=-1))
    topic.publish(6)
    topic.bucket.fault = lambda _call, name: name == "finish"
    topic.offloader.offload_before((1 << 40, 0))
    topic.world.wait(5)
    assert topic.offloader.status is OffloadStatus.ERROR
    assert "the bucket does not answer" in topic.offloader.last_error
    topic.bucket.fault = lambda _call, _name: False
    topic.world.wait(60)
    assert not topic.bucket.complete
    topic.offloader.offload_before((1 << 40, 0))
    topic.world.wait(60)
    assert topic.offloader.status is OffloadStatus.SUCCESS
    topic.check_nothing_is_left_over()


def test_a_request_right_after_a_failure_is_carried_out() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, threshold_bytes=-1))
    topic.publish(6)
    topic.bucket.fault = lambda _call, name: name == "finish"
    topic.offloader.offload_before((1 << 40, 0))
    topic.world.wait(1)
    assert topic.offloader.status is OffloadStatus.ERROR
    topic.bucket.fault = lambda _call, _name: False
    topic.offloader.offload_before((1 << 40, 0))
    assert topic.offloader.status is OffloadStatus.RUNNING
    topic.world.wait(1)
    assert topic.offloader.status is OffloadStatus.SUCCESS
    assert len(topic.bucket.complete) == 1


@pytest.mark.parametrize("failing", range(1, 12))
def test_a_failed_call_is_repeated_and_leaves_nothing(failing: int) -> None:
    topic = Offloading(MemoryBucket())
    topic.bucket.fault = lambda call, _name: call == failing
    topic.publish(12)
    topic.world.wait(120)
    topic.bucket.fault = lambda _call, _name: False
    assert topic.stored() == topic.published
    assert not topic.in_store()
    topic.check_nothing_is_left_over()


def test_an_object_that_vanished_keeps_the_local_copy() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, deletion_lag_ms=60_000))
    topic.publish(6)
    topic.world.wait(5)
    topic.bucket.complete.clear()
    topic.world.wait(60)
    topic.ledger.check_rollover()
    topic.world.wait(1)
    assert len(topic.in_store()) == 1
    assert "does not exist" in topic.offloader.last_failure
    topic.ledger.use_offload(replace(AT_ONCE, deletion_lag_ms=60_000, tiered_first=False))
    topic.ledger.reader.close()
    assert topic.stored() == topic.published


def test_trimming_and_deleting_a_topic_delete_its_objects() -> None:
    topic = Offloading(MemoryBucket())
    cursor = topic.world.run(topic.world.managed.open_cursor(topic.ledger, "s", EARLIEST, {}))
    topic.publish(22)
    topic.world.wait(5)
    assert len(topic.bucket.complete) == 4
    cursor.mark_delete_to(topic.listener.stored[9])
    topic.ledger.use_retention(RetentionSettings())
    topic.world.wait(5)
    assert len(topic.bucket.complete) == 2
    topic.check_nothing_is_left_over()
    topic.bucket.fault = lambda _call, name: name == "delete"
    topic.world.run(topic.world.managed.delete(topic.ledger))
    topic.world.wait(5)
    assert len(topic.bucket.complete) == 2
    topic.bucket.fault = lambda _call, _name: False
    topic.world.wait(60)
    topic.check_nothing_is_left_over()


def test_objects_are_deleted_after_a_restart_if_the_topic_was_deleted_before() -> None:
    topic = Offloading(MemoryBucket())
    topic.publish(12)
    topic.world.wait(5)
    topic.bucket.fault = lambda _call, name: name == "delete"
    topic.world.run(topic.world.managed.delete(topic.ledger))
    again = World(topic.world.crash(), KEEPING, open_driver=topic.bucket.open_driver)
    topic.bucket.fault = lambda _call, _name: False
    again.run(again.managed.resume_deletions())
    again.wait(5)
    assert not topic.bucket.complete
    assert again.run(again.metadata.children(OFFLOADS_TO_DELETE)) == []


@pytest.mark.parametrize("step", range(60))
def test_a_crash_at_any_moment_loses_nothing_and_leaves_nothing(step: int) -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(None)
    topic.publish(12)
    topic.ledger.use_offload(AT_ONCE)
    topic.ledger.check_rollover()
    topic.world.wait(step / 500)
    again = Offloading(topic.bucket, topic.world.crash())
    assert again.stored() == topic.published
    again.world.run(again.world.managed.resume_deletions())
    again.ledger.check_rollover()
    again.world.wait(60)
    again.world.run(
        again.world.managed.orphaned_ledgers(0).look(again.world.run(again.world.store.ledger_ids()))
    )
    assert again.stored() == topic.published
    assert not again.in_store()
    again.check_nothing_is_left_over()


def test_a_reader_of_the_local_copy_goes_on_in_tiered_storage() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, deletion_lag_ms=60_000, tiered_first=False))
    topic.publish(11)
    topic.world.wait(5)
    cursor = topic.world.managed.open_reader_cursor(topic.ledger, "r", EARLIEST)
    found = topic.world.run(cursor.read(1, 1 << 20))
    assert found is not None
    topic.world.wait(60)
    topic.ledger.check_rollover()
    topic.world.wait(1)
    assert not topic.in_store()
    topic.ledger.cache.clear()
    left = [found.entry(0)]
    while cursor.has_more():
        run = topic.world.run(cursor.read(1, 1 << 20))
        assert run is not None
        left.append(run.entry(0))
    assert left == topic.published


class _Late:
    """A local reader whose reads wait, and find that the ledger was deleted meanwhile."""

    def __init__(self, loop: Loop, ledger_id: int) -> None:
        self._loop = loop
        self._ledger_id = ledger_id

    async def read(self, _first: int, _last: int, _max_bytes: int) -> list[EntryRun]:
        await sleep(self._loop, 1.0)
        raise NoSuchLedger(self._ledger_id)

    def close(self) -> None:
        """Has nothing to close."""


def test_a_read_that_began_before_the_local_copy_was_deleted_ends_in_tiered_storage() -> None:
    topic = Offloading(MemoryBucket())
    topic.ledger.use_offload(replace(AT_ONCE, deletion_lag_ms=60_000, tiered_first=False))
    topic.publish(6)
    topic.world.wait(5)
    topic.ledger.cache.clear()
    summary = next(iter(topic.ledger.ledgers))
    assert summary.offload is not None
    loop, reader = topic.world.simulation.loop, topic.ledger.reader
    late: Any = _Late(loop, summary.ledger_id)
    reader._readers[summary.ledger_id] = late
    # The record says so before the local copy is deleted.
    summary.offload = replace(summary.offload, local_deleted=True)
    end = (summary.ledger_id, 4)
    reading = loop.create_task(reader.read((summary.ledger_id, 0), end, 5, 1 << 20))
    topic.world.wait(0.5)
    reader.local_copy_deleted(summary.ledger_id)
    run = topic.world.run(reading)
    assert [run.entry(index) for index in range(run.count)] == topic.published[: run.count]
