"""How slots are divided: every slot has one holder, and few change hands."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.dispatch.key_shared import KeySharedMode, KeySharedPolicy
from magnetar.broker.dispatch.key_shared.ranges import (
    HalvedRanges,
    HashRing,
    KeyRanges,
    StickyRanges,
    key_ranges,
    ranges_of,
)
from magnetar.errors import ConsumerAssignFailure

SLOTS = range(1, 65536)


class Member(SimpleNamespace):
    """A consumer."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def member(name: str, *ranges: tuple[int, int]) -> Any:
    return Member(name=name, policy=KeySharedPolicy(KeySharedMode.STICKY, ranges))


def holders(ranges: KeyRanges) -> list[Any]:
    """Of slots 1 … 65535."""
    segments = ranges.segments()
    assert all(a[0] < b[0] for a, b in pairwise(segments))
    ends = [last for last, _holder in segments]
    return [segments[bisect_left(ends, slot)][1] for slot in SLOTS]


@pytest.mark.parametrize("made", [lambda: HashRing(100), HalvedRanges])
@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 5), max_size=12))
def test_all_slots_are_held_by_those_that_are_here(made: Any, steps: list[int]) -> None:
    ranges, here = made(), []
    for number, step in enumerate(steps):
        before = holders(ranges)
        if step < 4 or not here:
            newcomer = member(f"c{step}")
            ranges.add(newcomer)
            here.append(newcomer)
            after = holders(ranges)
            moved = [b for a, b in zip(before, after, strict=True) if a is not b]
            assert all(holder is newcomer for holder in moved), number
        else:
            gone = here.pop(step % len(here))
            ranges.remove(gone)
            after = holders(ranges)
            assert all(a is gone for a, b in zip(before, after, strict=True) if a is not b)
        assert set(map(id, after)) <= {id(each) for each in here or [None]}


def test_a_consumer_that_comes_back_gets_the_same_slots() -> None:
    ring = HashRing(100)
    for name in "abc":
        ring.add(member(name))
    first = member("d")
    ring.add(first)
    before = [holder.name for holder in holders(ring)]
    ring.remove(first)
    ring.add(member("d"))
    assert [holder.name for holder in holders(ring)] == before


def test_ring_is_about_even() -> None:
    ring = HashRing(100)
    members = [member(f"consumer-{number}") for number in range(10)]
    for each in members:
        ring.add(each)
    found = holders(ring)
    shares = [sum(holder is each for holder in found) for each in members]
    assert min(shares) > 65536 / 10 / 2
    assert max(shares) < 65536 / 10 * 2


def test_ranges_for_statistics() -> None:
    halved = HalvedRanges()
    members = [member(f"c{number}") for number in range(3)]
    for each in members:
        halved.add(each)
    shown = [ranges_of(each, halved.segments()) for each in members]
    assert shown == [[(32769, 65535)], [(16385, 32768)], [(0, 16384)]]
    ring = HashRing(1)
    ring.add(members[0])
    assert ranges_of(members[0], ring.segments()) == [(0, 65535)]
    assert ranges_of(members[0], ring.segments(), first=1) == [(1, 65535)]


def test_sticky_gaps() -> None:
    sticky = StickyRanges()
    one = member("one", (10, 20), (0, 3))
    sticky.add(one)
    found = holders(sticky)
    assert [slot for slot in SLOTS if found[slot - 1] is one] == [1, 2, 3, *range(10, 21)]
    assert ranges_of(one, sticky.segments()) == [(0, 3), (10, 20)]
    with pytest.raises(ConsumerAssignFailure):
        sticky.add(member("two", (4, 10)))
    assert holders(sticky) == found


def test_which_way() -> None:
    assert isinstance(key_ranges(KeySharedMode.AUTO_SPLIT, 100), HashRing)
    assert isinstance(key_ranges(KeySharedMode.AUTO_SPLIT, 0), HalvedRanges)
    assert isinstance(key_ranges(KeySharedMode.STICKY, 100), StickyRanges)
