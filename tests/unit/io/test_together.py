"""Many things at once, a bounded number of them."""

from __future__ import annotations

import asyncio

import pytest
from simulated_io import SimulatedDisk, simulated_io

from magnetar.io.waiting import sleep, together


class Work:
    """Takes a second for each item; some fail."""

    def __init__(self, *failing: int) -> None:
        self.loop = simulated_io(1, SimulatedDisk(1)).loop
        self.failing = failing
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.most = 0

    async def do(self, item: int) -> str:
        self.begun.append(item)
        self.most = max(self.most, len(self.begun) - len(self.ended))
        try:
            # The first ones take longest.
            await sleep(self.loop, 1.0 / (item + 1))
            if item in self.failing:
                raise ValueError(item)
            return str(item)
        finally:
            self.ended.append(item)


def test_results_come_in_order_and_no_more_than_the_bound_are_under_way() -> None:
    work = Work()
    done = work.loop.run_until(together(work.loop, range(20), work.do, 4))
    assert done == [str(item) for item in range(20)]
    assert work.most == 4
    assert work.ended != sorted(work.ended)


def test_with_few_items_or_none_no_task_idles() -> None:
    work = Work()
    assert work.loop.run_until(together(work.loop, [], work.do, 4)) == []
    assert work.loop.run_until(together(work.loop, [3], work.do, 4)) == ["3"]


def test_after_a_failure_nothing_is_begun_and_what_is_under_way_ends() -> None:
    work = Work(2)
    with pytest.raises(ValueError, match="2"):
        work.loop.run_until(together(work.loop, range(20), work.do, 4))
    assert sorted(work.begun) == sorted(work.ended)
    assert len(work.begun) < 20


def test_a_caller_that_is_cancelled_ends_all_of_it() -> None:
    work = Work()
    task = work.loop.create_task(together(work.loop, range(20), work.do, 4))
    work.loop.run_for(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        work.loop.run_until(task)
    work.loop.run_for(5)
    assert sorted(work.begun) == sorted(work.ended)
    assert len(work.begun) < 20
