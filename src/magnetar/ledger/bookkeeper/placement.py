"""The choice of bookies for a ledger's entries; bookies with more free disk space are chosen more often."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple, Protocol

from magnetar.io.interfaces import Cancellable, Clock, Loop, Randomness
from magnetar.ledger.bookkeeper.bookies import Bookies, Use
from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.bookkeeper.wire import Operation, disk_space, disk_space_request
from magnetar.ledger.interface import Groups, LedgerError, Quorums

_MOST = 3.0
"""The maximum weight, as a multiple of the median: BookKeeper's default."""
_LEAST = 0.01
"""The minimum weight, because a full bookie that is registered as writable may still be needed."""


class NotEnoughBookies(LedgerError):
    """Fewer bookies accept entries than a ledger needs."""

    def __init__(
        self,
        needed: int,
        found: Sequence[str],
        besides: Collection[str] = (),
        rule: str = "",
        trouble: Callable[[str], str] = lambda _bookie: "",
    ) -> None:
        """:param needed: the number of bookies to choose
        :param found: the ids of the bookies that can be chosen
        :param besides: bookies that cannot be chosen, because they are in the ledger's ensemble or have
            just failed
        :param rule: the placement rule that the bookies must meet
        :param trouble: returns the reason why a connection to a bookie failed; empty: the bookie may be
            reachable
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
        """Returns bookies for a new ledger.

        :raises NotEnoughBookies: too few bookies are available, or too few of them meet the rules
        """
        ...

    def replaced(
        self, ensemble: Sequence[str], lost: Collection[int], quorums: Quorums, excluded: Collection[str]
    ) -> tuple[str, ...]:
        """Returns ``ensemble`` with new bookies at the indexes ``lost``. No new bookie is in ``ensemble`` or
        ``excluded``.

        :raises NotEnoughBookies: too few bookies are available, or too few of them meet the rules
        """
        ...


def of_groups(groups: Groups) -> str:
    """Returns the rule that bookies must be in these groups, as text for error messages."""
    return f"of the groups {', '.join(sorted(groups.first | groups.further))}"


Weights = Callable[[Sequence[str]], Sequence[float]]
"""Returns the relative weights of some bookies, 1.0 on average."""


def alike(bookie_ids: Sequence[str]) -> Sequence[float]:
    return [1.0] * len(bookie_ids)


def shuffled(bookie_ids: Sequence[str], weights: Weights, randomness: Randomness) -> list[str]:
    """Returns the bookies in a random order, in which bookies with larger weights tend to come first.

    The probability of being first is proportional to the weight (Efraimidis and Spirakis: order by u ** (1 /
    weight)).
    """
    chances = [math.log(1.0 - randomness.fraction()) / weight for weight in weights(bookie_ids)]
    order = sorted(range(len(bookie_ids)), key=chances.__getitem__, reverse=True)
    return [bookie_ids[index] for index in order]


class RandomPlacement:
    """A ``Placement`` at random. Doubtful bookies are chosen only if too few others are available; a request
    for bookies of isolation groups is refused (NotEnoughBookies)."""

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


class DiskSpaceSettings(NamedTuple):
    """How the free disk space of bookies is queried: bookies with more free space get more of the new ledgers
    (``bookkeeperDiskWeightBasedPlacementEnabled``).
    """

    interval_seconds: float = 86_400.0
    """The interval in seconds at which each bookie is queried
    (bookkeeperClientGetBookieInfoIntervalSeconds)."""
    retry_seconds: float = 60.0
    """The delay in seconds before bookies that did not answer are queried again
    (bookkeeperClientGetBookieInfoRetryIntervalSeconds)."""


class DiskSpaces:
    """Queries the free disk space of bookies periodically until it is stopped."""

    def __init__(self, loop: Loop, clock: Clock, bookies: Bookies, settings: DiskSpaceSettings) -> None:
        self._loop = loop
        self._clock = clock
        self._bookies = bookies
        self._settings = settings
        self._free: dict[str, int] = {}
        self._ask_at: dict[str, float] = {}
        """The time of each bookie's next query, by the monotonic clock."""
        self._timer: Cancellable | None = None

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def weights(self, bookie_ids: Sequence[str]) -> list[float]:
        """Returns the relative weight of each bookie, 1.0 on average; 1.0 for a bookie that has not answered
        yet."""
        if any(each not in self._ask_at for each in bookie_ids):
            self._ask()
        known = [self._free[each] for each in bookie_ids if each in self._free]
        usual = median(known) if known else 0
        if not usual:
            return [1.0] * len(bookie_ids)
        return [min(_MOST, max(_LEAST, self._free.get(each, usual) / usual)) for each in bookie_ids]

    def _look(self) -> None:
        self._ask()
        seconds = min(self._settings.retry_seconds, self._settings.interval_seconds)
        self._timer = self._loop.call_later(seconds, self._look)

    def _ask(self) -> None:
        now = self._clock.monotonic()
        for bookie_id in self._bookies.writable:
            if self._ask_at.get(bookie_id, now) <= now:
                self._ask_at[bookie_id] = now + self._settings.retry_seconds
                told = partial(self._told, bookie_id)
                bookie = self._bookies.bookie(bookie_id, Use.ASKING)
                bookie.ask(Operation.GET_BOOKIE_INFO, disk_space_request, told)

    def _told(self, bookie_id: str, status: int, bodies: list[bytes]) -> None:
        if status == Status.OK:
            self._free[bookie_id] = disk_space(bodies).free
            self._ask_at[bookie_id] = self._clock.monotonic() + self._settings.interval_seconds
