"""Who shares a run with whom."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from simulated_io import simulated_io

from magnetar.io.waiting import SharedRuns


class Runs:
    def __init__(self) -> None:
        self.loop = simulated_io(1).loop
        self.shared = SharedRuns(self.loop)
        self.begun: list[tuple[str, float]] = []
        self.failure: Exception | None = None

    def ask(self, kind: str = "a") -> Any:
        async def work() -> None:
            self.begun.append((kind, self.loop.time()))
            passed = self.loop.create_future()
            self.loop.call_later(1, passed.set_result, None)
            await passed
            if self.failure is not None:
                raise self.failure

        return self.loop.create_task(self.shared.run(kind, work))


def test_whoever_asks_during_a_run_shares_the_next_one() -> None:
    runs = Runs()
    first = runs.ask()
    runs.loop.run_for(0.5)
    during = [runs.ask() for _ in range(20)]
    runs.loop.run_until(first)
    assert not any(task.done() for task in during)
    runs.loop.run_for(0.5)
    later = runs.ask()
    for task in (*during, later):
        runs.loop.run_until(task)
    assert [kind for kind, _ in runs.begun] == ["a"] * 3
    assert [at for _, at in runs.begun] == pytest.approx([0, 1, 2], abs=0.1)
    assert not runs.shared._going
    assert not runs.shared._next


def test_those_that_ask_at_the_same_time_share_one_run_and_other_kinds_do_not_wait() -> None:
    runs = Runs()
    tasks = [runs.ask() for _ in range(5)] + [runs.ask("b")]
    for task in tasks:
        runs.loop.run_until(task)
    assert sorted(kind for kind, _ in runs.begun) == ["a", "b"]
    assert runs.loop.time() < 1.5


def test_a_failure_is_told_to_all_who_share_the_run_and_to_nobody_else() -> None:
    runs = Runs()
    runs.failure = ValueError("not now")
    first = runs.ask()
    runs.loop.run_for(0.5)
    during = [runs.ask() for _ in range(2)]
    with pytest.raises(ValueError, match="not now"):
        runs.loop.run_until(first)
    runs.failure = None
    for task in during:
        runs.loop.run_until(task)


def test_a_failure_that_many_are_told_does_not_grow() -> None:
    runs = Runs()
    runs.failure = ValueError("not now")
    told = [runs.ask() for _ in range(30)]
    lengths = []
    for task in told:
        with pytest.raises(ValueError, match="not now") as found:
            runs.loop.run_until(task)
        lengths.append(len(list(traceback.walk_tb(found.value.__traceback__))))
    assert lengths[-1] == lengths[0]


def test_a_caller_that_is_cancelled_leaves_the_run_to_the_others() -> None:
    runs = Runs()
    runs.ask()
    runs.loop.run_for(0.5)
    gone, stays = runs.ask(), runs.ask()
    runs.loop.run_for(0.1)
    gone.cancel()
    runs.loop.run_until(stays)
    assert len(runs.begun) == 2
