import random

import pytest

from magnetar.broker.dispatch.replay import ReplayPositions


def test_gives_out_the_lowest_range() -> None:
    replay = ReplayPositions()
    for position in [(2, 5), (1, 9), (2, 4), (1, 3), (2, 6), (2, 8)]:
        replay.add(position)
    assert replay.first_range(10) == ((1, 3), 1)
    replay.discard((1, 3))
    replay.discard((1, 9))
    assert replay.first_range(10) == ((2, 4), 3)
    assert replay.first_range(2) == ((2, 4), 2)


def test_adding_twice_and_discarding_what_is_not_there() -> None:
    replay = ReplayPositions()
    replay.add((1, 1))
    replay.add((1, 1))
    replay.discard((9, 9))
    assert len(replay) == 1
    replay.discard((1, 1))
    assert not replay
    with pytest.raises(IndexError):
        replay.first_range(1)


def test_a_position_discarded_and_added_again_is_there_once() -> None:
    replay = ReplayPositions()
    for _ in range(3):
        replay.add((1, 1))
        replay.add((1, 2))
        replay.discard((1, 2))
    replay.add((1, 2))
    assert replay.first_range(10) == ((1, 1), 2)
    replay.clear()
    assert (1, 1) not in replay


@pytest.mark.parametrize("seed", range(20))
def test_like_a_sorted_set(seed: int) -> None:
    chance = random.Random(seed)
    replay, model = ReplayPositions(), set[tuple[int, int]]()
    for _ in range(500):
        position = (chance.randrange(3), chance.randrange(12))
        if chance.random() < 0.55:
            replay.add(position)
            model.add(position)
        else:
            replay.discard(position)
            model.discard(position)
        assert len(replay) == len(model)
        if model:
            limit = chance.randint(1, 5)
            ledger_id, entry_id = first = min(model)
            count = 1
            while count < limit and (ledger_id, entry_id + count) in model:
                count += 1
            assert replay.first_range(limit) == (first, count)
