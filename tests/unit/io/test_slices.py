from __future__ import annotations

from collections.abc import Generator
from functools import partial

import pytest
from simulated_io import simulated_io

from magnetar.io.interfaces import Slices
from magnetar.io.slices import Slice, each, gone_through, start_each
from magnetar.io.wheel import TimerWheel


def test_the_longest_of_each_kind_over_two_windows() -> None:
    slices = Slices()
    slices.note("a", 0.2)
    slices.note("a", 0.1)
    slices.note("b", 0.3)
    assert slices.longest() == {"a": 0.2, "b": 0.3}
    slices.new_window()
    slices.note("a", 0.15)
    assert slices.longest() == {"a": 0.2, "b": 0.3}
    slices.new_window()
    assert slices.longest() == {"a": 0.15}


def test_the_longest_by_the_processors_time_too() -> None:
    slices = Slices()
    slices.note("a", 0.2, 0.003)
    slices.note("b", 0.1, 0.007)
    assert slices.longest_processor() == 0.007
    slices.new_window()
    assert slices.longest_processor() == 0.007
    slices.new_window()
    assert slices.longest_processor() == 0.0


def test_work_is_interrupted_every_millisecond_and_noted() -> None:
    simulation = simulated_io(1)
    io, loop = simulation.io, simulation.loop
    done: list[int] = []
    others: list[int] = []

    def work(item: int) -> None:
        loop.call_soon(others.append, item)
        done.append(item)
        # In the simulated world work takes no time by itself.
        loop.timeline.now += 0.0004

    loop.run_until(each(io, "kind", range(7), work))
    assert done == list(range(7))
    assert others[:3] == [0, 1, 2], "the loop had its turn after a millisecond"
    assert 0.001 <= io.slices.longest()["kind"] < 0.0014


def test_with_a_pause_it_gets_a_share_of_the_loop() -> None:
    simulation = simulated_io(1)
    loop = simulation.loop

    def work(_item: int) -> None:
        loop.timeline.now += 0.0011

    loop.run_until(each(simulation.io, "kind", range(10), work, pause=0.004))
    assert loop.time() >= 0.05


def test_a_generator_is_interrupted_where_it_yields_and_its_value_is_kept() -> None:
    simulation = simulated_io(1)
    io, loop = simulation.io, simulation.loop
    others: list[int] = []

    def work() -> Generator[None, None, str]:
        for piece in range(10):
            loop.call_soon(others.append, piece)
            loop.timeline.now += 0.0006
            yield
        assert others[:4] == [0, 1, 2, 3], "the loop had its turn after a millisecond"
        return "done"

    assert loop.run_until(gone_through(io, "kind", work(), pause=0.004)) == "done"
    assert loop.time() >= 5 * 0.004
    assert 0.001 <= io.slices.longest()["kind"] < 0.0016


def test_works_that_run_at_the_same_time_take_turns() -> None:
    simulation = simulated_io(1)
    io, loop = simulation.io, simulation.loop
    turn = 0
    slices: list[tuple[int, str]] = []

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    def piece(name: str) -> None:
        slices.append((turn, name))
        loop.timeline.now += 0.0011

    def pieces(name: str) -> Generator[None, None, None]:
        for _ in range(5):
            piece(name)
            yield

    async def resting(name: str) -> None:
        running = Slice(io, "kind")
        for _ in range(5):
            piece(name)
            await running.rest()

    loop.call_soon(count)
    works = [
        each(io, "kind", ["each"] * 5, piece),
        gone_through(io, "kind", pieces("pieces")),
        resting("rest"),
    ]
    for work in works:
        loop.create_task(work)
    loop.call_soon(start_each, io, "kind", iter([partial(piece, "step")] * 5))
    while len(slices) < 20:
        passed = loop.create_future()
        loop.call_soon(passed.set_result, None)
        loop.run_until(passed)
    # Where they begin nothing tells that there are others.
    later = slices[4:]
    assert len({turn for turn, _ in later}) == len(later), "no turn has two slices"
    assert {name for _, name in later[:4]} == {"each", "pieces", "rest", "step"}


def test_a_work_that_is_cancelled_while_it_waits_for_its_turn_passes_it_on() -> None:
    simulation = simulated_io(1)
    io, loop = simulation.io, simulation.loop
    done: list[str] = []

    def work(name: str) -> None:
        done.append(name)
        loop.timeline.now += 0.0011

    first = loop.create_task(each(io, "kind", ["a"] * 3, work))
    second = loop.create_task(each(io, "kind", ["b"] * 3, work))
    loop.call_soon(loop.call_soon, first.cancel)
    loop.run_until(second)
    assert done.count("b") == 3
    assert done.count("a") < 3


def test_steps_after_one_that_fails_are_carried_out() -> None:
    simulation = simulated_io(1)
    done: list[int] = []

    def step(number: int) -> None:
        if number == 1:
            raise ValueError("a step")
        done.append(number)

    with pytest.raises(ValueError, match="a step"):
        start_each(simulation.io, "kind", iter([partial(step, number) for number in range(4)]))
    simulation.loop.run_for(0.1)
    assert done == [0, 2, 3]


def test_a_wheel_tells_how_late_the_loop_was() -> None:
    loop = simulated_io(1).loop
    wheel = TimerWheel(loop)
    wheel.schedule(0.1, lambda: None)
    loop.call_later(0.05, lambda: setattr(loop.timeline, "now", 0.5))
    loop.run_for(1)
    assert 0.35 < wheel.longest_delay < 0.45
