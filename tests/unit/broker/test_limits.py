from __future__ import annotations

import pytest

from magnetar.broker.flow.limits import ConnectionCounts, PartialFrames, PublishBuffer


class Reader:
    """The part of a connection that is paused."""

    def __init__(self, host: str = "h") -> None:
        self.host = host
        self.pauses = 0

    @property
    def input(self) -> Reader:
        return self

    def pause(self) -> None:
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1
        assert self.pauses >= 0

    def close(self) -> None:
        raise AssertionError("nobody closes it")


# Connections


def test_connections_are_counted_in_all_and_by_address() -> None:
    counts = ConnectionCounts(3, 2)
    first, second, third = Reader("a"), Reader("a"), Reader("a")
    assert counts.opened(first) is None
    assert counts.opened(second) is None
    refusal = counts.opened(third)
    assert refusal is not None
    assert "address a" in str(refusal)
    counts.closed(third)
    assert counts.opened(Reader("b")) is None
    assert counts.opened(Reader("c")) is not None
    assert counts.refused == 2
    assert counts.created == 5


def test_closing_twice_counts_once() -> None:
    counts = ConnectionCounts(0, 1)
    reader = Reader("a")
    counts.opened(reader)
    counts.closed(reader)
    counts.closed(reader)
    assert counts.closed_count == 1
    assert counts.opened(Reader("a")) is None


def test_no_caps() -> None:
    counts = ConnectionCounts(0, 0)
    assert not any(counts.opened(Reader()) for _ in range(1000))


# Publishes that are not durable


def test_publishers_pause_above_the_limit_and_go_on_at_half() -> None:
    buffer = PublishBuffer(100)
    one, other = Reader(), Reader()
    buffer.grew(one, 100)
    assert not buffer.holds(one)
    buffer.grew(one, 1)
    buffer.grew(other, 10)
    buffer.grew(other, 10)
    assert (one.pauses, other.pauses) == (1, 1)
    buffer.shrank(70)
    assert (one.pauses, other.pauses) == (1, 1)
    buffer.shrank(1)
    assert (one.pauses, other.pauses) == (0, 0)
    assert not buffer.holds(one)
    buffer.shrank(50)
    assert buffer.used == 0


def test_who_publishes_as_soon_as_it_goes_on_is_paused_again() -> None:
    buffer = PublishBuffer(100)

    class Eager(Reader):
        def resume(self) -> None:
            super().resume()
            buffer.grew(self, 200)

    eager = Eager()
    buffer.grew(eager, 101)
    buffer.shrank(101)
    assert (eager.pauses, buffer.used) == (1, 200)


# Partial frames


def test_the_oldest_partial_frames_wait_and_the_newest_comes_through() -> None:
    partial = PartialFrames(100)
    old, middle, new = Reader(), Reader(), Reader()
    partial.grew(old, 60)
    partial.grew(middle, 40)
    assert (old.pauses, middle.pauses) == (0, 0)
    partial.grew(new, 10)
    assert (old.pauses, middle.pauses, new.pauses) == (1, 0, 0)
    partial.gone(new)
    assert old.pauses == 0
    assert partial.used == 100


def test_the_last_one_is_never_paused() -> None:
    partial = PartialFrames(10)
    only = Reader()
    partial.grew(only, 1000)
    assert only.pauses == 0


def test_the_oldest_are_closed_when_what_they_hold_leaves_no_room() -> None:
    """Those paused had sent all they had; the next ones were read, and the bound was none."""
    partial = PartialFrames(100)
    closed: list[Reader] = []

    class Closing(Reader):
        def close(self) -> None:
            closed.append(self)
            partial.gone(self)

    readers = [Closing() for _ in range(50)]
    for reader in readers:
        partial.grew(reader, 20)
        assert partial.used <= 150
    assert closed == readers[:43]
    assert readers[-1].pauses == 0


def test_a_frame_larger_than_all_room_closes_all_others_but_not_itself() -> None:
    partial = PartialFrames(100)

    class Closing(Reader):
        def close(self) -> None:
            partial.gone(self)

    other, large = Closing(), Reader()
    partial.grew(other, 10)
    partial.grew(large, 1000)
    assert (partial.used, large.pauses) == (1000, 0)


def test_one_that_goes_while_it_waits_is_resumed_once() -> None:
    partial = PartialFrames(100)
    readers = [Reader() for _ in range(10)]
    for reader in readers:
        partial.grew(reader, 15)
    assert sum(reader.pauses for reader in readers) == 4
    for reader in readers:
        partial.gone(reader)
        partial.gone(reader)
    assert partial.used == 0
    assert not any(reader.pauses for reader in readers)


@pytest.mark.parametrize("limit", [9_000, 10_000, 1_000_000])
def test_what_is_held_returns_to_nothing(limit: int) -> None:
    partial = PartialFrames(limit)
    readers = [Reader() for _ in range(50)]
    for round_ in range(5):
        for index, reader in enumerate(readers):
            partial.grew(reader, (index * 37 + round_) % 101 + 1)
    for reader in reversed(readers):
        partial.gone(reader)
    assert partial.used == 0
    assert not any(reader.pauses for reader in readers)
