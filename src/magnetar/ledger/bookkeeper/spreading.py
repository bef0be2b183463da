"""Spreads an ensemble over racks and regions, so that each write quorum has copies in several.

The write quorum of an entry is a window of consecutive bookies of its ensemble, which is a ring. The loss of
a rack then loses no entry's copies altogether.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from magnetar.io.interfaces import Randomness
from magnetar.ledger.bookkeeper.racks import Stand

_STEPS = 20_000
"""The limit of the search for an arrangement."""


class Spread(NamedTuple):
    """What each write quorum must have at least."""

    racks: int
    regions: int = 1


class _OutOfSteps(Exception):
    """The search takes too long."""


class Arrangement:
    """The places of an ensemble, some of which have their bookie already; the others get a rack."""

    def __init__(
        self,
        fixed: Sequence[Stand | None],
        write: int,
        candidates: Mapping[Stand, int],
        randomness: Randomness,
        shares: Mapping[Stand, float] | None = None,
    ) -> None:
        """:param fixed: where the bookies of the ensemble stand; None: a free place

        :param candidates: the number of available bookies by where they stand
        :param shares: the relative share of each stand's bookies together; None: their number
        """
        self._places = list(fixed)
        self._free = [place for place, stand in enumerate(fixed) if stand is None]
        self._write = write
        self._left = Counter(candidates)
        self._each = {
            stand: (shares or candidates)[stand] / count for stand, count in candidates.items() if count
        }
        """The share of one bookie."""
        self._randomness = randomness
        self._steps = 0
        size = len(self._places)
        self._windows = [
            [(first + step) % size for step in range(write)]
            for first in range(size)
            if any(fixed[(first + step) % size] is None for step in range(write))
        ]
        self._of_place: dict[int, list[list[int]]] = {place: [] for place in self._free}
        for window in self._windows:
            for place in window:
                if place in self._of_place:
                    self._of_place[place].append(window)

    def found(self, wanted: Spread) -> list[Stand] | None:
        """Returns where the bookies of the free places shall stand, in order; None: there is no such
        arrangement."""
        self._steps = 0
        try:
            if not self._fill(0, wanted):
                return None
        except _OutOfSteps:
            return None
        finally:
            chosen = [self._places[place] for place in self._free]
            for place in self._free:
                stand = self._places[place]
                if stand is not None:
                    self._left[stand] += 1
                    self._places[place] = None
        return [stand for stand in chosen if stand is not None]

    def _fill(self, number: int, wanted: Spread) -> bool:
        if number == len(self._free):
            return True
        self._steps += 1
        if self._steps > _STEPS:
            raise _OutOfSteps
        place = self._free[number]
        for stand in self._in_turn(place):
            self._places[place] = stand
            self._left[stand] -= 1
            kept = all(self._may_do(window, wanted) for window in self._of_place[place])
            if kept and self._fill(number + 1, wanted):
                return True
            self._places[place] = None
            self._left[stand] += 1
        return False

    def _in_turn(self, place: int) -> list[Stand]:
        """Returns where the next bookie may stand, the best first: in regions and racks with few bookies of
        this ensemble, otherwise where many are left."""
        taken = [stand for stand in self._places if stand is not None]
        regions = Counter(stand.region for stand in taken)
        racks = Counter(stand.rack for stand in taken)
        before = self._places[place - 1]
        stands = [stand for stand, left in self._left.items() if left > 0]
        chance = {stand: self._randomness.fraction() for stand in stands}

        def weight(stand: Stand) -> tuple[float, ...]:
            again = 0 if before is None else (before.region == stand.region) + (before.rack == stand.rack)
            share = regions[stand.region]
            # A stand with more bookies is more likely, as it must be where few racks have many of them.
            return (again, share, racks[stand.rack], chance[stand] / (self._left[stand] * self._each[stand]))

        return sorted(stands, key=weight)

    def _may_do(self, window: Sequence[int], wanted: Spread) -> bool:
        """Whether a write quorum meets the requirements, or still can."""
        stands = [stand for place in window if (stand := self._places[place]) is not None]
        free = len(window) - len(stands)
        return (
            len({stand.rack for stand in stands}) + free >= wanted.racks
            and len({stand.region for stand in stands}) + free >= wanted.regions
        )
