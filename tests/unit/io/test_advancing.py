"""Time that is put ahead: timers in their order, what follows from one another, and rest in between."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import process_services
import pytest

from magnetar.io.advancing import AdvancingIo, AdvancingLoop, QuietLoop
from magnetar.io.real import real_io
from magnetar.io.waiting import sleep
from magnetar.io.wheel import TimerWheel

HOUR = 3600.0
DAY = 24 * HOUR


class World:
    def __init__(self, folder: Path) -> None:
        self.real = QuietLoop()
        self.time = AdvancingIo(real_io(self.real, folder), self.real)
        self.io = self.time.io
        self.loop: AdvancingLoop = self.time.loop
        self.begun = self.loop.time()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.real.run_until_complete(work)

    def advance(self, seconds: float) -> bool:
        return bool(self.run(self.time.advance(seconds)))

    @property
    def passed(self) -> float:
        return self.loop.time() - self.begun

    def every(self, seconds: float, work: Callable[[], object]) -> None:
        def run() -> None:
            self.loop.call_later(seconds, run)
            work()

        self.loop.call_later(seconds, run)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.real.close()


def test_what_is_due_is_called_in_the_order_of_its_time(world: World) -> None:
    called: list[str] = []
    world.loop.call_later(7200, called.append, "later")
    world.loop.call_later(60, called.append, "sooner")
    world.loop.call_later(60.5, called.append, "next").cancel()
    world.loop.call_later(10801, called.append, "not yet")

    assert world.advance(3 * HOUR)

    assert called == ["sooner", "later"]
    assert world.advance(2)
    assert called == ["sooner", "later", "not yet"]


def test_a_clock_is_ahead_by_what_was_advanced(world: World) -> None:
    wall, monotonic = world.io.clock.wall_ms(), world.io.clock.monotonic()

    world.advance(2 * DAY)

    assert 2 * DAY * 1000 <= world.io.clock.wall_ms() - wall < (2 * DAY + 60) * 1000
    assert 2 * DAY <= world.io.clock.monotonic() - monotonic < 2 * DAY + 60
    assert world.real.time() - world.begun < 60


def test_what_repeats_happens_as_often_as_it_would_within_ten_minutes(world: World) -> None:
    times: list[float] = []
    world.every(60, lambda: times.append(world.passed))

    world.advance(605)

    assert [round(at) for at in times] == [60 * number for number in range(1, 11)]


def test_what_repeats_happens_less_often_within_days_and_as_often_before_their_end(world: World) -> None:
    times: list[float] = []
    world.every(60, lambda: times.append(world.passed))

    world.advance(2 * DAY)

    assert len(times) < 100
    assert len([at for at in times if at > 2 * DAY - 600]) in (9, 10, 11)


def test_what_follows_from_another_has_happened_too(world: World) -> None:
    """The first is found after a day, what it allows an hour after that, and so on."""
    found: dict[str, float] = {}

    def look(name: str, after: Callable[[], float | None], wait: float) -> None:
        def now() -> None:
            since = after()
            if name not in found and since is not None and world.passed - since >= wait:
                found[name] = world.passed

        world.every(60, now)

    look("third", lambda: found.get("second"), 120)
    look("second", lambda: found.get("first"), HOUR)
    look("first", lambda: 0.0, DAY)

    world.advance(2 * DAY)

    assert found.keys() == {"first", "second", "third"}


def test_threads_are_waited_for_before_time_goes_on(world: World) -> None:
    worker = world.io.start_worker("slow")
    ready = []

    def ask() -> None:
        asked_at = world.passed
        worker.submit(lambda: sum(range(2_000_000)), lambda *_: ready.append(world.passed - asked_at))

    world.loop.call_later(60, ask)
    world.loop.call_later(120, worker.submit, lambda: ready.append(0.0))

    assert world.advance(HOUR)

    worker.close()
    assert len(ready) == 2
    assert ready[0] < 30


def test_processes_are_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    process = world.io.start_process("echo", process_services.echo)
    answers = []

    async def ask() -> None:
        answers.append(await process.ask([b"x"]))

    world.loop.call_later(60, lambda: world.loop.create_task(ask()))

    assert world.advance(HOUR)
    process.close()
    assert answers == [b"x"]


def test_pauses_of_work_are_seen_through(world: World) -> None:
    done = []

    async def work() -> None:
        for _ in range(20):
            await sleep(world.loop, 0.004)
        done.append(True)

    world.loop.call_later(HOUR - 0.001, lambda: world.loop.create_task(work()))

    assert world.advance(HOUR)
    assert done


def test_it_says_when_there_was_no_rest(world: World) -> None:
    again = [True]

    def go_on() -> None:
        if again:
            world.real.call_soon(go_on)

    go_on()
    assert not world.advance(HOUR)
    again.clear()
    assert world.advance(HOUR)
    assert 2 * HOUR <= world.passed < 2 * HOUR + 60


def test_a_wheel_turns_with_it(world: World) -> None:
    called: list[float] = []
    wheel = TimerWheel(world.loop)
    wheel.schedule(90, lambda: called.append(world.passed))
    gone = wheel.schedule(91, lambda: called.append(world.passed))
    gone.cancel()

    assert world.advance(100)

    assert [round(at) for at in called] == [90]
    assert len(wheel) == 0


def test_without_an_advance_timers_are_those_of_the_real_loop(world: World) -> None:
    passed = world.loop.create_future()
    world.loop.call_later(0.01, passed.set_result, None)
    world.run(awaited(passed))
    assert 0.01 <= world.passed < 60


async def awaited(future: Any) -> Any:
    return await future
