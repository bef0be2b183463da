"""Makes a plan from the moves that strategies want: finds a target for each bundle, and leaves out moves that
are not worthwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from magnetar.broker.load.candidates import Candidates, Kinds, Rules, allowed, may_leave, preferred
from magnetar.broker.load.cluster_load import BrokerLoad, ClusterLoad
from magnetar.broker.load.placing import Below, Choice, PlacementStrategy
from magnetar.broker.load.settings import LoadSettings
from magnetar.broker.load.shedding import Move
from magnetar.lazy_dataclass import dataclass

KindsOf = Callable[[str], Kinds]
"""Returns the kinds of topics in a bundle; if they are unknown, only persistent topics are assumed."""


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    moves: Sequence[Move]
    """The planned moves of bundles, each with its target broker."""
    refused: Mapping[str, str]
    """Bundles that should move but stay, with the reasons."""


@dataclass(frozen=True, slots=True)
class Placer:
    """Chooses brokers for bundles; contains everything on which a choice depends."""

    load: ClusterLoad
    rules: Rules
    settings: LoadSettings
    strategy: PlacementStrategy
    below: Below

    def place(
        self, bundle: str, kinds: Kinds, exclude: Collection[str] = ()
    ) -> tuple[Choice | None, Candidates]:
        """Returns the broker for a bundle (None: no broker may own it), and the reasons against other
        brokers.

        :param exclude: brokers that must not get the bundle
        """
        found = preferred(bundle, kinds, self.load, self.rules, self.settings)
        found = self._without(found, exclude, bundle, kinds)
        choice = self.strategy.choose(found.brokers, bundle, self.load, self.settings, self.below)
        return choice, found

    def _without(self, found: Candidates, exclude: Collection[str], bundle: str, kinds: Kinds) -> Candidates:
        if not found.brokers <= set(exclude):
            for broker_id in found.brokers & set(exclude):
                found.refuse(broker_id, "it is excluded from this move")
            return found
        rest = allowed(bundle, kinds, self.load, self.rules, self.settings)
        for broker_id in rest.brokers & set(exclude):
            rest.refuse(broker_id, "it is excluded from this move")
        return rest

    def plan(self, wanted: Iterable[Move], kinds_of: KindsOf) -> PlacementPlan:
        """Finds targets for bundles that are to move; each choice takes the earlier choices into account."""
        moves: list[Move] = []
        refused: dict[str, str] = {}
        expected = _Expected(self.load)
        for move in wanted:
            kinds = kinds_of(move.bundle)
            stays = may_leave(move.bundle, move.source, kinds, self.load, self.rules, self.settings)
            if stays:
                refused[move.bundle] = stays
                continue
            target = self._target(move, kinds)
            if target is None:
                refused[move.bundle] = "no other broker may serve it"
            elif not expected.gains(move.bundle, move.source, target):
                refused[move.bundle] = f"{target} would then have as much load as {move.source} has now"
            else:
                expected.move(move.bundle, move.source, target)
                self.load.give(target, move.bundle)
                moves.append(replace(move, target=target))
        return PlacementPlan(moves, refused)

    def _target(self, move: Move, kinds: Kinds) -> str | None:
        if move.target is not None:
            found = allowed(move.bundle, kinds, self.load, self.rules, self.settings)
            if move.target in found.brokers:
                return move.target
        choice, _ = self.place(move.bundle, kinds, {move.source})
        return None if choice is None else choice.broker_id


@dataclass(slots=True)
class _Traffic:
    rate: float
    throughput: float
    usage: float


class _Expected:
    """The expected load of brokers after the moves planned so far."""

    def __init__(self, load: ClusterLoad) -> None:
        self._load = load
        self._now = {broker_id: _now(broker) for broker_id, broker in load.brokers.items()}

    def gains(self, bundle: str, source: str, target: str) -> bool:
        """Whether the target, with the bundle, would have less load than the source has now, in at least one
        respect."""
        cost = self._cost(bundle, source, target)
        giver, taker = self._now[source], self._now[target]
        return (
            (cost.rate > 0 and taker.rate + cost.rate < giver.rate)
            or (cost.throughput > 0 and taker.throughput + cost.throughput < giver.throughput)
            or (cost.usage > 0 and taker.usage + cost.usage < giver.usage)
        )

    def move(self, bundle: str, source: str, target: str) -> None:
        relief = self._cost(bundle, source, source)
        cost = self._cost(bundle, source, target)
        giver, taker = self._now[source], self._now[target]
        giver.rate -= relief.rate
        giver.throughput -= relief.throughput
        giver.usage -= relief.usage
        taker.rate += cost.rate
        taker.throughput += cost.throughput
        taker.usage += cost.usage

    def _cost(self, bundle: str, source: str, broker_id: str) -> _Traffic:
        """Returns the load that a bundle would cause at a broker. The usage per byte is taken from the broker
        or, if the broker has no traffic, from ``source``.
        """
        short = self._load.history(bundle).short
        known = self._now[broker_id]
        if known.throughput <= 0 or known.usage <= 0:
            known = self._now[source]
        per_byte = known.usage / known.throughput if known.throughput > 0 else 0.0
        return _Traffic(short.rate, short.throughput, short.throughput * per_byte)


def _now(broker: BrokerLoad) -> _Traffic:
    pending = broker.pending.values()
    return _Traffic(
        broker.report.total.rate + sum(each.short.rate for each in pending),
        broker.report.total.throughput + sum(each.short.throughput for each in pending),
        broker.report.resources.most,
    )
