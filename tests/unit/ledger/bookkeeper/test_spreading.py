"""Ensembles are spread over racks and regions whenever they can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_io import Simulation, simulated_io

from magnetar.ledger.bookkeeper.rack_placement import Arrangement, Spread
from magnetar.ledger.bookkeeper.racks import DEFAULT_RACK, Stand


def stand(rack: str) -> Stand:
    return Stand(frozenset(), rack)


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulated_io(1)


def keeps(stands: Sequence[Stand], write: int, wanted: Spread) -> bool:
    """Whether an ensemble is spread as wanted."""
    size = len(stands)

    def several(label: Callable[[Stand], str], least: int) -> bool:
        return all(
            len({label(stands[(first + step) % size]) for step in range(write)}) >= least
            for first in range(size)
        )

    return several(lambda stand: stand.rack, wanted.racks) and several(
        lambda stand: stand.region, wanted.regions
    )


def exists(fixed: list[Stand | None], write: int, left: Counter[Stand], wanted: Spread) -> bool:
    """Tries everything. Windows that are full already are as they are."""
    free = [place for place, each in enumerate(fixed) if each is None]
    size = len(fixed)
    for chosen in product(left, repeat=len(free)):
        if Counter(chosen) - left:
            continue
        whole = list(fixed)
        for place, taken in zip(free, chosen, strict=True):
            whole[place] = taken
        windows = [[(first + step) % size for step in range(write)] for first in range(size)]
        for window in windows:
            if any(place in free for place in window):
                stands = [each for place in window if (each := whole[place]) is not None]
                if len({each.rack for each in stands}) < wanted.racks:
                    break
                if len({each.region for each in stands}) < wanted.regions:
                    break
        else:
            return True
    return False


RACKS = [stand(each) for each in ("/r1/a", "/r1/b", "/r2/a", "/r2/c", "/r3/d")]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_an_arrangement_is_found_when_there_is_one(simulation: Simulation, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5))
    write = data.draw(st.integers(1, size))
    racks = data.draw(st.lists(st.sampled_from(RACKS), min_size=1, max_size=4, unique=True))
    left = Counter({each: data.draw(st.integers(1, 3)) for each in racks})
    fixed = [data.draw(st.one_of(st.none(), st.sampled_from(RACKS))) for _ in range(size)]
    wanted = Spread(data.draw(st.integers(1, write)), data.draw(st.integers(1, min(2, write))))
    before = left.copy()
    found = Arrangement(fixed, write, left, simulation.io.randomness).found(wanted)
    assert left == before
    if fixed.count(None) > left.total() or not exists(fixed, write, left, wanted):
        assert found is None or not fixed.count(None)
        return
    assert found is not None
    assert not Counter(found) - left
    chosen = iter(found)
    whole = [next(chosen) if each is None else each for each in fixed]
    if all(each is None for each in fixed):
        assert keeps(whole, write, wanted)


def test_large_ensembles_take_few_steps(simulation: Simulation) -> None:
    left = Counter({stand(f"/r{number % 3}/{number}"): 1 + number for number in range(9)})
    for wanted in (Spread(2), Spread(5), Spread(5, 3)):
        found = Arrangement([None] * 15, 5, left, simulation.io.randomness).found(wanted)
        assert found is not None
        assert keeps(found, 5, wanted)
    lonely = Counter({stand("/a"): 14, stand("/b"): 1})
    assert Arrangement([None] * 15, 2, lonely, simulation.io.randomness).found(Spread(2)) is None


@pytest.mark.parametrize(
    ("rack", "region"), [("/a", "/a"), ("/r/a", "/r"), ("/x/r/a", "/x/r"), (DEFAULT_RACK, DEFAULT_RACK)]
)
def test_regions_of_racks(rack: str, region: str) -> None:
    assert stand(rack).region == region
