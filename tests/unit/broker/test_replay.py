import random

import pytest

from magnetar.broker.dispatch.shared import ReplayPositions


def test_gives_out_the_lowest_that_lie_close() -> None:
    replay = ReplayPositions()
    for position in [(2, 5), (1, 9), (2, 4), (1, 3), (2, 6), (2, 8)]:
        replay.add(position)
    assert replay.lowest(10, 5) == [(1, 3)]
    assert replay.lowest(10, 6) == [(1, 3), (1, 9)]
    replay.discard((1, 3))
    replay.discard((1, 9))
    assert replay.lowest(10, 1) == [(2, 4), (2, 5), (2, 6)]
    assert replay.lowest(10, 2) == [(2, 4), (2, 5), (2, 6), (2, 8)]
    assert replay.lowest(2, 2) == [(2, 4), (2, 5)]


def test_adding_twice_and_discarding_what_is_not_there() -> None:
    replay = ReplayPositions()
    replay.add((1, 1))
    replay.add((1, 1))
    replay.discard((9, 9))
    assert len(replay) == 1
    replay.discard((1, 1))
    assert not replay
    with pytest.raises(IndexError):
        replay.lowest(1, 1)


def test_a_position_discarded_and_added_again_is_there_once() -> None:
    replay = ReplayPositions()
    for _ in range(3):
        replay.add((1, 1))
        replay.add((1, 2))
        replay.discard((1, 2))
    replay.add((1, 2))
    assert replay.lowest(10, 1) == [(1, 1), (1, 2)]
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
        if chance.random() < 0.02:
            last = (chance.randrange(3), chance.randrange(12))
            replay.drop_through(last)
            model = {each for each in model if each > last}
        if model and chance.random() < 0.5:
            limit, gap = chance.randint(1, 8), chance.randint(1, 4)
            wanted: list[tuple[int, int]] = []
            for each in sorted(model):
                if wanted and (each[0] != wanted[-1][0] or each[1] - wanted[-1][1] > gap):
                    break
                wanted.append(each)
            assert replay.lowest(limit, gap) == wanted[:limit]
