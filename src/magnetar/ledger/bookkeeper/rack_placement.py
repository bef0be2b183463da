"""Placement of bookies by racks, regions and groups, as in Pulsar's placement policies.

An ensemble is spread so that each write quorum has copies in several racks and regions. The write quorum of
an entry is a window of consecutive bookies of the ensemble, whose first bookie follows its last one. So the
loss of a rack never loses all copies of an entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from magnetar.io.interfaces import Randomness
from magnetar.ledger.bookkeeper.bookies import Bookies
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies, Weights, alike, of_groups, shuffled
from magnetar.ledger.bookkeeper.racks import DEFAULT_RACK, RackTable, Stand
from magnetar.ledger.interface import Groups, Quorums

_STEPS = 20_000
"""The maximum number of steps of the search for an arrangement."""


class PlacementSettings(NamedTuple):
    regions: bool = False
    """Whether racks are ``/region/rack``, and regions take precedence over racks
    (bookkeeperClientRegionawarePolicyEnabled)."""
    min_racks: int = 2
    """The number of racks in which each write quorum must have bookies; the bookies of a smaller write quorum
    must all be in different racks (bookkeeperClientMinNumRacksPerWriteQuorum)."""
    enforced: bool = False
    """Whether a ledger that cannot be spread over ``min_racks`` racks is refused
    (bookkeeperClientEnforceMinNumRacksPerWriteQuorum)."""
    groups: Groups | None = None
    """The groups whose bookies are used for ledgers that name no groups; None: all bookies
    (bookkeeperClientIsolationGroups, bookkeeperClientSecondaryIsolationGroups)."""
    racks: bool = True
    """Whether racks and regions are considered (bookkeeperClientRackawarePolicyEnabled)."""


class RackPlacement:
    """A ``Placement`` by racks and groups. Doubtful bookies are chosen only if there are too few others."""

    def __init__(
        self,
        bookies: Bookies,
        table: RackTable,
        settings: PlacementSettings,
        randomness: Randomness,
        weights: Weights = alike,
    ) -> None:
        self._bookies = bookies
        self._table = table
        self._settings = settings
        self._randomness = randomness
        self._weights = weights

    def ensemble(self, quorums: Quorums) -> tuple[str, ...]:
        return self._filled([None] * quorums.ensemble, quorums, ())

    def replaced(
        self, ensemble: Sequence[str], lost: Collection[int], quorums: Quorums, excluded: Collection[str]
    ) -> tuple[str, ...]:
        kept = [None if index in lost else bookie_id for index, bookie_id in enumerate(ensemble)]
        return self._filled(kept, quorums, {*ensemble, *excluded})

    def _filled(
        self, kept: Sequence[str | None], quorums: Quorums, besides: Collection[str]
    ) -> tuple[str, ...]:
        missing = kept.count(None)
        groups = quorums.groups or self._settings.groups
        candidates = self._candidates(quorums.ensemble, groups, besides)
        sure = [each for each in candidates if not self._bookies.doubtful(each)]
        for choice in (sure, candidates):
            if len(choice) >= missing:
                filled = self._spread(kept, quorums.write, choice)
                if filled is not None:
                    return filled
        rule = self._rule(quorums, groups)
        raise NotEnoughBookies(missing, candidates, besides, rule, self._bookies.trouble)

    def _candidates(self, needed: int, groups: Groups | None, besides: Collection[str]) -> list[str]:
        writable = self._bookies.writable
        if groups is not None:
            names = groups.first
            first = [each for each in writable if self._table.of(each).groups & names]
            if len(first) < needed:
                names = names | groups.further
            writable = [each for each in writable if self._table.of(each).groups & names]
        if self._settings.enforced:
            # A bookie without a known rack might stand in any rack.
            writable = [each for each in writable if self._table.of(each).rack != DEFAULT_RACK]
        return [each for each in writable if each not in besides]

    def _spread(
        self, kept: Sequence[str | None], write: int, candidates: Sequence[str]
    ) -> tuple[str, ...] | None:
        """Returns an ensemble: ``kept``, with candidates in place of None; returns None if the bookies cannot
        be spread as required."""
        by_stand: dict[Stand, list[str]] = {}
        # The last of each list is taken first.
        for bookie_id in reversed(shuffled(candidates, self._weights, self._randomness)):
            by_stand.setdefault(self._stand(bookie_id), []).append(bookie_id)
        fixed = [None if each is None else self._stand(each) for each in kept]
        counts = Counter({stand: len(ids) for stand, ids in by_stand.items()})
        shares = {stand: sum(self._weights(ids)) for stand, ids in by_stand.items()}
        arrangement = Arrangement(fixed, write, counts, self._randomness, shares)
        regions = len({stand.region for stand in (*by_stand, *fixed) if stand is not None})
        for wanted in self._wanted(write, regions):
            stands = arrangement.found(wanted)
            if stands is not None:
                chosen = iter([by_stand[stand].pop() for stand in stands])
                return tuple(next(chosen) if each is None else each for each in kept)
        return None

    def _wanted(self, write: int, regions: int) -> Iterator[Spread]:
        """Iterates over the spreads to try, the best first."""
        settings = self._settings
        least = min(settings.min_racks, write)
        spans = range(min(write, regions) if settings.regions else 1, 0, -1)
        for span in spans:
            most = max(least, span)
            for racks in range(most, (least if settings.enforced else 1) - 1, -1):
                yield Spread(racks, min(span, racks))

    def _stand(self, bookie_id: str) -> Stand:
        """Returns the rack of a bookie, without its group."""
        rack = self._table.of(bookie_id).rack if self._settings.racks else DEFAULT_RACK
        return Stand(frozenset(), rack)

    def _rule(self, quorums: Quorums, groups: Groups | None) -> str:
        settings = self._settings
        rules = []
        if groups is not None:
            rules.append(of_groups(groups))
        if settings.enforced:
            rules.append(f"in {min(settings.min_racks, quorums.write)} racks for each write quorum")
        return " ".join(rules)


class Spread(NamedTuple):
    """The minimum numbers of racks and regions in each write quorum."""

    racks: int
    regions: int = 1


class _OutOfSteps(Exception):
    """The search for a placement takes too many steps."""


class Arrangement:
    """An ensemble with bookies at some positions; :meth:`found` finds racks for the other positions."""

    def __init__(
        self,
        fixed: Sequence[Stand | None],
        write: int,
        candidates: Mapping[Stand, int],
        randomness: Randomness,
        shares: Mapping[Stand, float] | None = None,
    ) -> None:
        """:param fixed: for each position of the ensemble, the rack of its bookie; None: the position is free
        :param write: the write quorum
        :param candidates: the number of available bookies in each rack
        :param shares: the sum of the weights of each rack's bookies; None: the number of available bookies
            counts instead
        """
        self._places = list(fixed)
        self._free = [place for place, stand in enumerate(fixed) if stand is None]
        self._write = write
        self._left = Counter(candidates)
        self._each = {
            stand: (shares or candidates)[stand] / count for stand, count in candidates.items() if count
        }
        """The average weight of a bookie, by rack."""
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
        """Returns the racks for the free positions, in order; None if there is no such arrangement."""
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
        """Returns the racks for the next position, the best first: regions and racks with few bookies of this
        ensemble, then racks with many bookies left."""
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
        """Whether a write quorum meets the requirements, or can meet them once more positions are filled."""
        stands = [stand for place in window if (stand := self._places[place]) is not None]
        free = len(window) - len(stands)
        return (
            len({stand.rack for stand in stands}) + free >= wanted.racks
            and len({stand.region for stand in stands}) + free >= wanted.regions
        )
