"""Which bookies get a ledger's entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from magnetar.io.interfaces import Randomness
from magnetar.ledger.bookkeeper.bookies import Bookies
from magnetar.ledger.interface import Groups, LedgerError, Quorums


class NotEnoughBookies(LedgerError):
    """There are fewer bookies that take entries than a ledger needs."""

    def __init__(
        self,
        needed: int,
        found: Sequence[str],
        besides: Collection[str] = (),
        rule: str = "",
        trouble: Callable[[str], str] = lambda _bookie: "",
    ) -> None:
        """:param besides: those that may not be taken: the ledger has them, or has just lost them

        :param rule: what they must be like
        :param trouble: why there is no connection with one; empty: there may be one
        """
        names = ", ".join(found) or "none"
        others = f" in addition to {', '.join(sorted(besides))}" if besides else ""
        which = f" {rule}" if rule else ""
        troubles = {each: trouble(each) for each in sorted({*besides, *found})}
        told = "".join(f"; no connection to {each}: {why}" for each, why in troubles.items() if why)
        super().__init__(
            f"{needed} bookies{which} are needed{others}, but {len(found)} are available: {names}{told}"
        )
        self.needed = needed
        self.found = found


class Placement(Protocol):
    def ensemble(self, quorums: Quorums) -> tuple[str, ...]:
        """Bookies for a new ledger.

        :raises NotEnoughBookies: there are too few, or none that keep the rules
        """
        ...

    def replaced(
        self, ensemble: Sequence[str], lost: Collection[int], quorums: Quorums, excluded: Collection[str]
    ) -> tuple[str, ...]:
        """``ensemble`` with others at the indices ``lost``; none that are in it, or in ``excluded``.

        :raises NotEnoughBookies: there are too few, or none that keep the rules
        """
        ...


def of_groups(groups: Groups) -> str:
    """A rule of placement."""
    return f"of the groups {', '.join(sorted(groups.first | groups.further))}"


Weights = Callable[[Sequence[str]], Sequence[float]]
"""How much each of some bookies should get, 1.0 for the usual."""


def alike(bookie_ids: Sequence[str]) -> Sequence[float]:
    return [1.0] * len(bookie_ids)


def shuffled(bookie_ids: Sequence[str], weights: Weights, randomness: Randomness) -> list[str]:
    """In a random order, where those that should get more come first more often.

    The chance to be first is as the weight (Efraimidis and Spirakis: order by u ** (1 / weight)).
    """
    chances = [math.log(1.0 - randomness.fraction()) / weight for weight in weights(bookie_ids)]
    order = sorted(range(len(bookie_ids)), key=chances.__getitem__, reverse=True)
    return [bookie_ids[index] for index in order]


class RandomPlacement:
    """Any bookies, but those in doubt only when there are no others; it knows of no groups."""

    def __init__(self, bookies: Bookies, randomness: Randomness, weights: Weights = alike) -> None:
        self._bookies = bookies
        self._randomness = randomness
        self._weights = weights

    def ensemble(self, quorums: Quorums) -> tuple[str, ...]:
        return self._chosen(quorums, quorums.ensemble, ())

    def replaced(
        self, ensemble: Sequence[str], lost: Collection[int], quorums: Quorums, excluded: Collection[str]
    ) -> tuple[str, ...]:
        chosen = self._chosen(quorums, len(lost), {*ensemble, *excluded})
        result = list(ensemble)
        for index, bookie_id in zip(sorted(lost), chosen, strict=True):
            result[index] = bookie_id
        return tuple(result)

    def _chosen(self, quorums: Quorums, count: int, besides: Collection[str]) -> tuple[str, ...]:
        if quorums.groups is not None:
            rule, trouble = of_groups(quorums.groups), self._bookies.trouble
            raise NotEnoughBookies(count, (), besides, rule, trouble)
        candidates = [each for each in self._bookies.writable if each not in besides]
        if len(candidates) < count:
            raise NotEnoughBookies(count, candidates, besides, trouble=self._bookies.trouble)
        candidates = shuffled(candidates, self._weights, self._randomness)
        candidates.sort(key=self._bookies.doubtful)
        return tuple(candidates[:count])
