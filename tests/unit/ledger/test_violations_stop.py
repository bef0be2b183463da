"""A change that leaves the embedded store in a wrong state stops the process; what is acknowledged stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ledger_stores import MINIATURE, Listener, append
from simulated_io import ProcessStopped, Simulation, simulated_io

from magnetar.invariants import BrokenInvariant
from magnetar.ledger.embedded.group import LEDGER_CLOSED
from magnetar.ledger.embedded.ledger_table import LedgerRow, encode_closed
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.segment_supply import LogSegment
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import Quorums

pytestmark = pytest.mark.plants

ENTRIES = 20


class Lived:
    """A store with a ledger that is written; all of its entries are acknowledged."""

    def __init__(self) -> None:
        self.simulation: Simulation = simulated_io(1)
        self.listener = Listener()
        self.store: Any = self.run(EmbeddedLedgerStore.open_store(self.simulation.io, "ledgers", MINIATURE))
        self.writer: Any = self.run(self.store.create(Quorums(), {}))
        self.writer.set_listener(self.listener)
        for number in range(ENTRIES):
            append(self.writer, b"%d" % number)
            self.run(self.listener.reached(number))
        self.row: LedgerRow = self.store._table.rows[self.writer.ledger_id]
        self.log: Any = self.store._log

    def run(self, work: Any) -> Any:
        return self.simulation.loop.run_until(work)

    def add(self) -> None:
        append(self.writer, b"more")
        self.simulation.loop.run_for(1.0)


def _entry_left_out(lived: Lived) -> None:
    lived.row.last_entry_id -= 1
    lived.add()


def _stored_again(lived: Lived) -> None:
    lived.row.last_entry_id += 1
    lived.add()


def _closed(lived: Lived) -> None:
    lived.row.closed = True
    lived.add()


def _beyond_the_segment(lived: Lived) -> None:
    add_group = lived.log._add_group

    def too_much(commit: Any, offset: int, runs: Any) -> int:
        size: int = add_group(commit, offset, runs)
        commit.segment.size = offset
        return size

    lived.log._add_group = too_much
    lived.add()


def _no_place(lived: Lived) -> None:
    add_group = lived.log._add_group

    def without_place(commit: Any, offset: int, runs: Any) -> int:
        size: int = add_group(commit, offset, runs)
        commit.places.pop()
        return size

    lived.log._add_group = without_place
    lived.add()


def _known_id(lived: Lived) -> None:
    lived.store._table.rows[lived.writer.ledger_id + 1] = LedgerRow(lived.writer.ledger_id + 1, b"")
    lived.run(lived.store.create(Quorums(), {}))


def _closed_elsewhere(lived: Lived) -> None:
    end = encode_closed(lived.row.last_entry_id + 1, lived.row.length)
    lived.run(lived.log.control(LEDGER_CLOSED, lived.writer.ledger_id, end))


def _acknowledged_twice(lived: Lived) -> None:
    lived.writer._acknowledged += 1
    lived.add()


def _acknowledged_before_it_was_appended(lived: Lived) -> None:
    lived.writer.on_durable(lived.writer._next)


def _two_segments_grow(lived: Lived) -> None:
    begun = lived.log._begun

    def twice(segment: LogSegment) -> None:
        begun(segment)
        begun(LogSegment(lived.store._segments.take_id(), segment.file, segment.size))

    lived.log._begun = twice
    for _ in range(1000):
        append(lived.writer, bytes(1000))
        lived.simulation.loop.run_for(0.1)


def _moved_without_all_entries(lived: Lived) -> None:
    segment_id, first, last, stored = next(iter(lived.row.each_part()))
    lived.store._table.replace_parts(lived.row, {segment_id}, [(segment_id, first + 1, last, stored)])


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (_moved_without_all_entries, "parts of ledger 1: expected each entry once"),
        (_entry_left_out, "first entry of a durable run of ledger 1: expected 19, found 20"),
        (_stored_again, "first entry of the next run of ledger 1: expected 21, found 20"),
        (_closed, "first entry of the next run of ledger 1: expected none, as it is closed, found 20"),
        (_beyond_the_segment, "end of log segment"),
        (_no_place, "the log of the ledger store met an internal error: list index out of range"),
        (_known_id, "id of ledger 2, which is being created: expected a new one"),
        (_closed_elsewhere, "last entry and length of ledger 1, which is being closed: expected (19, "),
        (_acknowledged_twice, "durable entry of ledger 1: expected one in (20, 21), found 20"),
        (
            _acknowledged_before_it_was_appended,
            "durable entry of ledger 1: expected one in (19, 20), found 20",
        ),
        (_two_segments_grow, "segments to which the log writes: expected one, found"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_violation_stops_the_process(plant: Callable[[Lived], None], text: str) -> None:
    lived = Lived()
    with pytest.raises(ProcessStopped) as stopped:
        plant(lived)
    assert text in str(stopped.value)
    assert "the process stops, nothing acknowledged is lost" in str(stopped.value)
    simulation = simulated_io(2, lived.simulation.disk.killed())
    store = simulation.loop.run_until(EmbeddedLedgerStore.open_store(simulation.io, "ledgers", MINIATURE))
    reader = simulation.loop.run_until(store.open(1, recover=True))
    runs = simulation.loop.run_until(reader.read(0, ENTRIES - 1, 1 << 20))
    found = [run.entry(index) for run in runs for index in range(run.count)]
    assert found == [b"%d" % number for number in range(ENTRIES)]


def test_live_bytes_below_zero_stop_the_process() -> None:
    lived = Lived()
    lived.store._table.live_bytes[lived.row.parts[0]] = 1
    with pytest.raises(ProcessStopped, match="live bytes of segment 1: expected at least 0, found -"):
        lived.run(lived.store.delete(lived.writer.ledger_id))


def test_an_unexpected_error_in_a_commit_stops_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived()

    def broken(*_arguments: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(lived.store._table, "add_run", broken)
    with pytest.raises(ProcessStopped, match="met an internal error: 'a defect'"):
        lived.add()
    assert lived.listener.last == ENTRIES - 1


@pytest.mark.parametrize("counter", ["pins", "bytes"])
def test_a_counter_of_reads_that_falls_below_zero_fails_the_read(counter: str) -> None:
    reads: SegmentReads = Lived().store._reads
    if counter == "pins":
        reads._pins[7] = 0
        with pytest.raises(BrokenInvariant, match="pins of segment 7: expected at least 0, found -1"):
            reads.unpin(7)
    else:
        with pytest.raises(BrokenInvariant, match="bytes of reads in flight: expected at least 0, found -5"):
            reads._give_room(5)
        reads.check()
