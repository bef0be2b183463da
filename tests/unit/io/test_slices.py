from __future__ import annotations

from collections.abc import Generator

from magnetar.io.simulated import simulated_io
from magnetar.io.slice_times import Slices
from magnetar.io.slices import each, gone_through
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


def test_a_wheel_tells_how_late_the_loop_was() -> None:
    loop = simulated_io(1).loop
    wheel = TimerWheel(loop)
    wheel.schedule(0.1, lambda: None)
    loop.call_later(0.05, lambda: setattr(loop.timeline, "now", 0.5))
    loop.run_for(1)
    assert 0.35 < wheel.longest_delay < 0.45
