"""Which bookies get a ledger's entries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from magnetar.io.interfaces import Randomness
from magnetar.ledger.bookkeeper.bookies import Bookies
from magnetar.ledger.interface import LedgerError, Quorums


class NotEnoughBookies(LedgerError):
    """There are fewer bookies that take entries than a ledger needs."""

    def __init__(
        self, needed: int, found: Sequence[str], besides: Collection[str] = (), rule: str = ""
    ) -> None:
        """:param besides: those that may not be taken: the ledger has them, or has just lost them

        :param rule: what they must be like
        """
        names = ", ".join(found) or "none"
        others = f" besides {', '.join(sorted(besides))}" if besides else ""
        which = f" {rule}" if rule else ""
        super().__init__(f"{needed} bookies{which} are needed{others}, there are {len(found)}: {names}")
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


class RandomPlacement:
    """Any bookies, but those in doubt only when there are no others."""

    def __init__(self, bookies: Bookies, randomness: Randomness) -> None:
        self._bookies = bookies
        self._randomness = randomness

    def ensemble(self, quorums: Quorums) -> tuple[str, ...]:
        return self._chosen(quorums.ensemble, ())

    def replaced(
        self, ensemble: Sequence[str], lost: Collection[int], quorums: Quorums, excluded: Collection[str]
    ) -> tuple[str, ...]:
        chosen = self._chosen(len(lost), {*ensemble, *excluded})
        result = list(ensemble)
        for index, bookie_id in zip(sorted(lost), chosen, strict=True):
            result[index] = bookie_id
        return tuple(result)

    def _chosen(self, count: int, besides: Collection[str]) -> tuple[str, ...]:
        candidates = [each for each in self._bookies.writable if each not in besides]
        if len(candidates) < count:
            raise NotEnoughBookies(count, candidates, besides)
        for index in range(len(candidates) - 1, 0, -1):
            other = self._randomness.below(index + 1)
            candidates[index], candidates[other] = candidates[other], candidates[index]
        candidates.sort(key=self._bookies.doubtful)
        return tuple(candidates[:count])
