"""Memory that several share."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_io.loop import SimulatedLoop

from magnetar.io.locks import Held, NoRoom, Room

SECONDS = 5.0


class Asked:
    """Some who take room, in the order in which they ask."""

    def __init__(self, size: int, waiting: int = 2) -> None:
        self.loop = SimulatedLoop()
        self.room = Room(self.loop, size, waiting=waiting, seconds=SECONDS)

    def take(self, size: int) -> Any:
        task = self.loop.create_task(self.room.take(size))
        self.loop.run_for(0.0)
        return task

    def held(self, size: int) -> Held:
        task = self.take(size)
        assert task.done()
        return task.result()  # type: ignore[no-any-return]


def test_what_fits_is_given_at_once_and_what_does_not_waits_its_turn() -> None:
    asked = Asked(10)
    first, large, small = asked.held(6), asked.take(8), asked.take(2)
    # The small one would fit, and does not overtake.
    assert (large.done(), small.done(), asked.room.used, asked.room.is_wanted) == (False, False, 6, True)
    first.release()
    first.release()
    asked.loop.run_for(0.0)
    assert (large.done(), small.done(), asked.room.used, asked.room.is_wanted) == (True, True, 10, False)


def test_what_can_never_fit_is_refused_at_once() -> None:
    task = Asked(10).take(11)
    assert task.exception().ever is False
    assert str(task.exception()) == "11 bytes of memory are needed, but the limit is 10"


def test_who_waits_too_long_is_refused_and_so_are_too_many() -> None:
    asked = Asked(10)
    held = asked.held(10)
    waiting = [asked.take(1), asked.take(1)]
    assert asked.take(1).exception().ever is True
    asked.loop.run_for(SECONDS + 1)
    assert [isinstance(task.exception(), NoRoom) for task in waiting] == [True, True]
    held.shrink(4)
    assert asked.room.used == 4
    asked.held(6)


def test_one_that_gives_up_lets_in_those_behind_it() -> None:
    asked = Asked(10)
    held = asked.held(5)
    large, small = asked.take(8), asked.take(5)
    large.cancel()
    asked.loop.run_for(0.0)
    assert small.done()
    held.release()
    assert asked.room.used == 5


def test_room_that_is_forgotten_is_given_back() -> None:
    room = Asked(10).room
    room.used = 10
    held = Held(room, 10)
    assert room.used == 10
    del held
    assert room.used == 0


@pytest.mark.parametrize("late", [False, True])
def test_one_that_is_cancelled_with_its_turn_gives_it_back(late: bool) -> None:
    asked = Asked(10)
    held = asked.held(10)
    task = asked.take(10)
    if late:
        held.release()
    task.cancel()
    asked.loop.run_for(0.0)
    assert asked.room.used == (0 if late else 10)
