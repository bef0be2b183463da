"""What waits on a Key_Shared subscription, against a plain model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.dispatch.key_shared.consumer import DrainingSlots, keyed
from magnetar.broker.dispatch.key_shared.replay import KeyedReplay

OWNERS: list[Any] = [type("Owner", (), {})() for _ in range(3)]


@given(st.lists(st.tuples(st.sampled_from("aaadtu"), st.integers(0, 12), st.integers(0, 5)), max_size=60))
def test_like_a_set(steps: list[tuple[str, int, int]]) -> None:
    replay, model, blocked = KeyedReplay(), {}, {4, 5}
    owner_of = {slot: OWNERS[slot % 3] for slot in range(6)}
    for what, number, slot in steps:
        position = (1, number)
        if what == "a" and position not in model:
            model[position] = slot
            replay.add(position, slot, owner_of[slot], blocked=slot in blocked)
        elif what == "d":
            model.pop(position, None)
            replay.discard(position)
        elif what == "u":
            blocked.discard(slot)
            replay.unblock(slot, owner_of[slot])
        elif what == "t":
            owner, last = OWNERS[slot % 3], (1, number)
            wanted = sorted(
                (at, of)
                for at, of in model.items()
                if owner_of[of] is owner and of not in blocked and at <= last
            )[:2]
            assert replay.take(owner, last, 2) == wanted
            for at, _of in wanted:
                del model[at]
        assert len(replay) == len(model)
        for owner in OWNERS:
            mine = [at for at, of in model.items() if owner_of[of] is owner and of not in blocked]
            assert replay.front(owner) == min(mine, default=None)
            assert replay.waits_for(owner) == bool(mine)


def test_what_comes_back_with_another_slot_waits_for_that_one_only() -> None:
    replay = KeyedReplay()
    replay.add((1, 0), 0, OWNERS[0], blocked=False)
    replay.add((1, 1), 2, OWNERS[2], blocked=True)
    for position in ((1, 0), (1, 1)):
        replay.discard(position)
        replay.add(position, 1, OWNERS[1], blocked=False)
    replay.unblock(2, OWNERS[2])
    assert not replay.waits_for(OWNERS[0])
    assert not replay.waits_for(OWNERS[2])
    assert replay.take(OWNERS[1], (1, 9), 9) == [((1, 0), 1), ((1, 1), 1)]


def test_arranged_anew() -> None:
    replay = KeyedReplay()
    for number in range(10):
        replay.add((1, number), number % 3, None, blocked=False)
    replay.arrange(lambda slot: OWNERS[slot] if slot < 2 else None, lambda slot: slot == 1)
    assert [position for position, _slot in replay.take(OWNERS[0], (2, 0), 9)] == [
        (1, n) for n in (0, 3, 6, 9)
    ]
    assert replay.front(OWNERS[1]) is None
    replay.unblock(1, OWNERS[1])
    assert replay.front(OWNERS[1]) == (1, 1)
    assert len(replay) == 6


def test_draining() -> None:
    draining = DrainingSlots()
    one, two = SimpleNamespace(name="1"), SimpleNamespace(name="2")
    one_holds, two_holds = {7: 2, 8: 1}, {9: 4}
    held: Any = [(one, one_holds), (two, two_holds)]
    new_owner: Any = {7: two, 8: one, 9: None}
    draining.recount(held, lambda slot: new_owner[slot])  # type: ignore[arg-type]
    assert [slot for slot in range(10) if draining.blocks(slot)] == [7, 9]
    assert (draining.of(one), draining.of(two), draining.entries()) == ([(7, 2, 0)], [(9, 4, 0)], 6)
    draining.turned_away(7)
    draining.recount(held, lambda slot: new_owner[slot])  # type: ignore[arg-type]
    assert draining.of(one) == [(7, 2, 1)]
    assert not draining.released(two, 7)  # type: ignore[arg-type]
    assert not draining.released(one, 7)  # type: ignore[arg-type]
    assert draining.blocks(7)
    assert draining.released(one, 7)  # type: ignore[arg-type]
    assert (draining.blocks(7), draining.count, draining.cleared, draining.drained) == (False, 1, 1, [7])


def test_a_consumer_without_slots_is_refused() -> None:
    plain: Any = SimpleNamespace(name="plain")
    with pytest.raises(TypeError, match="consumer 'plain' has no slots"):
        keyed(plain)
