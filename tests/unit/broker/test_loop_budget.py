"""What is begun in one turn of the loop, and who goes on in the next."""

from __future__ import annotations

import pytest
from simulated_io import SimulatedLoop

from magnetar.broker.flow.loop_budget import (
    FIRST_STEP_BYTES,
    STEP_BYTES,
    TURN_BYTES,
    TURN_SECONDS,
    LoopBudget,
)


class HandClock:
    """Moves when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def processor(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return int(self.now * 1000)


class Bench:
    def __init__(self) -> None:
        self.loop = SimulatedLoop()  # type: ignore[abstract]
        self.clock = HandClock()
        self.budget = LoopBudget(self.loop, self.clock)
        self.done: list[tuple[str, int]] = []

    def next_turn(self) -> None:
        passed = self.loop.create_future()
        self.loop.call_soon(passed.set_result, None)
        self.loop.run_until(passed)


class Worker:
    """Has so many bytes to send, ``piece`` at a time."""

    def __init__(self, bench: Bench, name: str, size: int, piece: int = 4096, seconds: float = 0.0) -> None:
        self.bench = bench
        self.name = name
        self.left = size
        self.piece = piece
        self.seconds = seconds

    def go_on(self) -> None:
        before = self.left
        while self.left > 0 and self.bench.budget.admits(self):
            self.left -= self.piece
            self.bench.budget.spend(self.piece)
            self.bench.clock.now += self.seconds
        if before != self.left:
            self.bench.done.append((self.name, before - self.left))


def use_up(bench: Bench) -> None:
    """Somebody takes all that is left of a turn, and has no more to do."""
    bench.budget.admits(Worker(bench, "flood", 0))
    bench.budget.spend(TURN_BYTES)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_one_that_fits_into_a_turn_waits_for_nothing(bench: Bench) -> None:
    for _ in range(5):
        worker = Worker(bench, "a", TURN_BYTES - 4096)
        worker.go_on()
        assert worker.left == 0
        bench.next_turn()
    assert bench.budget.put_off == 0
    # Nothing is planned for turns to come either.
    assert not bench.loop.timeline.ready


def test_all_of_a_turn_together_have_one_budget(bench: Bench) -> None:
    workers = [Worker(bench, str(n), TURN_BYTES // 4) for n in range(10)]
    for worker in workers:
        worker.go_on()
    assert sum(size for _, size in bench.done) == TURN_BYTES
    assert bench.budget.waiting == 6


def test_what_is_left_goes_on_until_nothing_is(bench: Bench) -> None:
    workers = [Worker(bench, str(n), 3 * STEP_BYTES) for n in range(40)]
    for worker in workers:
        worker.go_on()
    turns = 0
    while bench.budget.waiting:
        before = sum(size for _, size in bench.done)
        bench.next_turn()
        turns += 1
        assert 0 < sum(size for _, size in bench.done) - before <= TURN_BYTES // 2 + STEP_BYTES
    assert all(worker.left == 0 for worker in workers)
    assert turns >= 10
    bench.next_turn()
    assert not bench.loop.timeline.ready


def test_time_ends_a_turn_too(bench: Bench) -> None:
    slow = Worker(bench, "slow", 1 << 30, piece=1, seconds=TURN_SECONDS / 10)
    slow.go_on()
    assert 10 <= bench.done.pop()[1] <= 11
    bench.next_turn()
    assert 5 <= sum(size for _, size in bench.done) <= 6


def test_a_piece_that_takes_longer_than_a_turn_is_done_all_the_same(bench: Bench) -> None:
    long = Worker(bench, "long", 6 * 4096, seconds=TURN_SECONDS * 3)
    other = Worker(bench, "other", 6 * 4096, seconds=TURN_SECONDS * 3)
    long.go_on()
    other.go_on()
    for _ in range(20):
        bench.next_turn()
    assert (long.left, other.left) == (0, 0)
    # The first was done at once; whoever was put off comes in turn.
    assert [name for name, _ in bench.done[1:9]] == ["long", "other"] * 4


def test_who_waits_is_not_overtaken_by_itself(bench: Bench) -> None:
    hungry = Worker(bench, "hungry", 100 * TURN_BYTES)
    hungry.go_on()
    before = hungry.left
    hungry.go_on()
    assert hungry.left == before
    bench.next_turn()
    # Half of the turn is left; it is for others.
    before = hungry.left
    hungry.go_on()
    assert hungry.left == before
    other = Worker(bench, "other", 4096)
    other.go_on()
    assert other.left == 0


def test_those_who_wait_get_the_same(bench: Bench) -> None:
    workers = [Worker(bench, str(n), 1 << 30) for n in range(7)]
    for worker in workers:
        worker.go_on()
    for _ in range(100):
        bench.next_turn()
    got = [(1 << 30) - worker.left for worker in workers[1:]]
    assert max(got) - min(got) <= STEP_BYTES


def test_who_wants_little_does_not_wait_for_all_who_want_much(bench: Bench) -> None:
    greedy = [Worker(bench, f"greedy{n}", 1 << 30) for n in range(200)]
    for worker in greedy:
        worker.go_on()
    while len({name for name, _ in bench.done}) < 200:
        bench.next_turn()
    use_up(bench)
    modest = Worker(bench, "modest", 4096)
    modest.go_on()
    assert modest.left
    bench.done.clear()
    bench.next_turn()
    assert modest.left == 0
    assert sum(size for _, size in bench.done) <= TURN_BYTES


def test_many_who_come_first_do_not_starve_those_who_come_again(bench: Bench) -> None:
    again = Worker(bench, "again", 1 << 30)
    again.go_on()
    bench.next_turn()
    bench.done.clear()
    for turn in range(50):
        use_up(bench)
        for n in range(100):
            Worker(bench, f"new{turn}.{n}", FIRST_STEP_BYTES).go_on()
        bench.next_turn()
    got = sum(size for name, size in bench.done if name == "again")
    assert got >= 50 * TURN_BYTES // 5


def test_an_error_in_one_does_not_stop_the_others(bench: Bench) -> None:
    class Broken(Worker):
        def go_on(self) -> None:
            raise ValueError("broken")

    broken = Broken(bench, "broken", 1)
    flood = Worker(bench, "flood", 10 * TURN_BYTES)
    flood.go_on()
    assert not bench.budget.admits(broken)
    with pytest.raises(ValueError, match="broken"):
        bench.next_turn()
    for _ in range(30):
        bench.next_turn()
    assert flood.left == 0
