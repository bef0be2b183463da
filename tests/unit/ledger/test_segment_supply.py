"""Segments ahead of need: what is told when there is no room, and what the log gets all the same."""

from __future__ import annotations

from itertools import count

from simulated_io import SimulatedDisk, Simulation, simulated_io

from magnetar.ledger.embedded.segment_files import SegmentFiles, SegmentRoom
from magnetar.ledger.embedded.segment_supply import LogSegment, SegmentSupply
from magnetar.ledger.embedded.settings import EmbeddedSettings

KIB = 1 << 10
SETTINGS = EmbeddedSettings(
    segment_bytes=64 * KIB,
    first_segment_bytes=64 * KIB,
    reserve_bytes=128 * KIB,
    entry_free_bytes=512 * KIB,
)
QUOTA = 4096 * KIB


class Supplied:
    """A supply on a disk of its own; remembers what it told."""

    def __init__(self) -> None:
        self.simulation: Simulation = simulated_io(1, SimulatedDisk(1, QUOTA))
        io = self.simulation.io
        io.disk.make_directory("ledgers")
        files = SegmentFiles(io.disk, "ledgers", SETTINGS, bytes(16))
        self.failures: list[str] = []
        self.told: list[str] = []
        self.ready = self.refused = 0
        ids = count(1)
        self.supply = SegmentSupply(
            files,
            io.start_worker("space"),
            SETTINGS,
            lambda: next(ids),
            lambda what, _error: self.failures.append(what),
            self.told.append,
        )
        self.first = self.supply.first()

    def leave_free(self, size: int) -> None:
        disk = self.simulation.disk
        disk.quota += size - disk.free_bytes()

    def take(self) -> None:
        assert self.supply.take(10 * KIB, self._is_ready, self._is_refused) is None
        self.settle()

    def taken(self) -> LogSegment:
        """What is ready."""
        segment = self.supply.take(10 * KIB, self._is_ready, self._is_refused)
        assert segment is not None
        return segment

    def _is_ready(self) -> None:
        self.ready += 1

    def _is_refused(self) -> None:
        self.refused += 1

    def settle(self) -> None:
        waiter = self.simulation.loop.create_future()
        self.simulation.loop.call_later(1.0, waiter.set_result, None)

        async def wait() -> None:
            await waiter

        self.simulation.loop.run_until(wait())


def test_no_room_ahead_is_told_before_anybody_needs_it() -> None:
    supplied = Supplied()
    supplied.leave_free(560 * KIB)
    supplied.supply.prefetch(supplied.first, supplied.first)
    supplied.settle()
    assert len(supplied.told) == 1
    assert "(diskUsageThreshold, magnetarDiskReserveBytes)" in supplied.told[0]
    assert not supplied.supply.has_room
    assert not supplied.failures


def test_what_was_accepted_gets_what_is_free_and_then_there_is_the_reserve() -> None:
    supplied = Supplied()
    supplied.leave_free(100 * KIB)
    supplied.take()
    assert (supplied.ready, supplied.supply.has_room, supplied.supply.reserved) == (1, True, None)
    assert not supplied.taken().reserved
    supplied.take()
    assert (supplied.ready, supplied.supply.has_room, supplied.supply.reserved) == (
        2,
        False,
        SegmentRoom.RESERVED,
    )
    assert supplied.taken().reserved
    # The reserve has less than a second one needs without touching the last quarter.
    supplied.leave_free(0)
    supplied.take()
    assert (supplied.ready, supplied.supply.has_room, supplied.supply.reserved) == (
        3,
        False,
        SegmentRoom.LAST,
    )
    assert supplied.taken().room is SegmentRoom.LAST
    supplied.leave_free(0)
    supplied.take()
    assert (supplied.ready, supplied.refused) == (3, 1)
    # Nobody is told twice, and nothing has failed.
    supplied.settle()
    assert supplied.refused == 1
    supplied.leave_free(100 * KIB)
    supplied.supply.look_for_room()
    supplied.settle()
    assert supplied.supply.has_room
    assert not supplied.failures


def test_publishing_goes_on_only_when_there_is_clearly_more_room() -> None:
    supplied = Supplied()
    limit = 64 * KIB + SETTINGS.entry_free_bytes + SETTINGS.reserve_bytes // 16
    supplied.leave_free(limit - 8 * KIB)
    supplied.supply.prefetch(supplied.first, supplied.first)
    supplied.settle()
    assert len(supplied.told) == 1
    for extra in (KIB, 16 * KIB, -8 * KIB, 32 * KIB):
        supplied.leave_free(limit + extra)
        supplied.supply.look_for_room()
        supplied.settle()
    assert all(supplied.told)
    supplied.leave_free(limit + 160 * KIB)
    supplied.supply.look_for_room()
    supplied.settle()
    assert supplied.told[-1] == ""
    # And from then on the limit itself counts again.
    supplied.supply.take(KIB, lambda: None, lambda: None)
    supplied.leave_free(limit + 16 * KIB)
    supplied.supply.prefetch(supplied.first, supplied.first)
    supplied.settle()
    assert supplied.told[-1] == ""


def test_the_reserve_grows_with_the_segments() -> None:
    simulation = simulated_io(1, SimulatedDisk(1, 1 << 30))
    io = simulation.io
    io.disk.make_directory("ledgers")
    settings = EmbeddedSettings()
    files = SegmentFiles(io.disk, "ledgers", settings, bytes(16))
    size, held = settings.first_segment_bytes, []
    for segment_id in range(1, 9):
        files.prepare(segment_id, 0, size, SegmentRoom.PLENTY).close()
        held.append(files.reserve.held >> 20)
        size = min(2 * size, settings.segment_bytes)
    assert held == [2, 4, 8, 16, 32, 64, 64, 64]
    # It never shrinks, and the next life begins with what there is.
    files = SegmentFiles(io.disk, "ledgers", settings, bytes(16))
    files.prepare(9, 0, settings.first_segment_bytes, SegmentRoom.PLENTY).close()
    assert files.reserve.held == settings.reserve_bytes


def test_room_is_found_again_although_a_small_segment_is_left_over() -> None:
    for left, reserved in ((100 * KIB, None), (0, SegmentRoom.RESERVED)):
        supplied = Supplied()
        supplied.leave_free(left)
        supplied.take()
        assert supplied.supply.reserved is reserved
        supplied.leave_free(1024 * KIB)
        supplied.supply.look_for_room()
        supplied.settle()
        assert supplied.told[-1] == ""
        assert supplied.supply.has_room
        assert len(supplied.simulation.disk.paths("ledgers/segment-")) == 2
