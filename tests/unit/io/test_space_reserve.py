"""A reserve takes room only where there is enough, and gives back what is asked for."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from simulated_io import SimulatedDisk

from magnetar.io.files import SpaceExhausted, SpaceReserve, is_without_room
from magnetar.io.real.disk import RealDisk

KIB = 1 << 10
QUOTA = 1600 * KIB


def filled() -> tuple[SimulatedDisk, SpaceReserve]:
    disk = SimulatedDisk(1, QUOTA)
    disk.make_directory("d")
    reserve = SpaceReserve(disk, "d", 64 * KIB)
    assert reserve.fill()
    return disk, reserve


def test_room_is_given_up_piece_by_piece_and_taken_back() -> None:
    disk, reserve = filled()
    assert (reserve.held, disk.free_bytes()) == (64 * KIB, QUOTA - 64 * KIB)
    disk.quota -= disk.free_bytes() - KIB
    assert reserve.make_room(KIB)
    assert reserve.held == 64 * KIB
    assert reserve.make_room(11 * KIB)
    assert (reserve.held, disk.free_bytes(), reserve.whole) == (54 * KIB, 11 * KIB, False)
    # As much again must be free.
    disk.quota += 8 * KIB
    assert not reserve.fill()
    disk.quota += KIB
    assert reserve.fill()
    assert not reserve.make_room(QUOTA)
    assert reserve.held == 0


def test_what_an_earlier_process_left_counts() -> None:
    disk, reserve = filled()
    disk.quota -= disk.free_bytes()
    reserve.make_room(4 * KIB)
    disk.quota = QUOTA
    again = SpaceReserve(disk, "d", 64 * KIB)
    assert (again.held, again.whole) == (60 * KIB, False)


def test_a_small_device_keeps_a_sixteenth() -> None:
    disk = SimulatedDisk(1, 160 * KIB)
    disk.make_directory("d")
    assert SpaceReserve(disk, "d", 64 * KIB).size == 10 * KIB
    none = SpaceReserve(disk, "d", 0)
    assert none.fill()
    assert not disk.exists("d/reserve")


def test_a_failure_that_is_not_about_room_is_told() -> None:
    disk = SimulatedDisk(1, QUOTA)
    disk.make_directory("d")
    reserve = SpaceReserve(disk, "d", 64 * KIB)
    disk.fail("truncate", "reserve", code=errno.ENOSPC)
    assert not reserve.fill()
    disk.fail("truncate", "reserve")
    with pytest.raises(OSError, match="Input/output"):
        reserve.fill()
    assert is_without_room(SpaceExhausted("why"))
    assert not is_without_room(OSError(errno.EIO, "why"))
    assert not is_without_room(None)


def test_a_real_reserve_has_its_blocks(tmp_path: Path) -> None:
    reserve = SpaceReserve(RealDisk(tmp_path), ".", 256 * KIB)
    assert reserve.fill()
    found = (tmp_path / "reserve").stat()
    assert (found.st_size, found.st_blocks * 512 >= 256 * KIB) == (256 * KIB, True)
