"""Placement strategies, which choose one of several brokers for a bundle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import Protocol

from magnetar.broker.load.cluster_load import BrokerLoad, ClusterLoad
from magnetar.broker.load.settings import LoadSettings
from magnetar.lazy_dataclass import dataclass

Below = Callable[[int], int]
"""Returns a random integer in [0, bound)."""


@dataclass(frozen=True, slots=True)
class Choice:
    broker_id: str
    why: str
    """The reason for the choice, with numbers."""
    scores: Mapping[str, float]
    """The score of each candidate; the lowest is best."""


class PlacementStrategy(Protocol):
    def choose(
        self,
        candidates: Collection[str],
        bundle: str,
        load: ClusterLoad,
        settings: LoadSettings,
        below: Below,
    ) -> Choice | None:
        """Returns the chosen broker; None if there is no candidate. With the same arguments and random
        numbers, the result is the same."""
        ...

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        """Forgets brokers that are not in ``broker_ids``; called when the live brokers have changed."""
        ...


class LeastLongTermMessageRate:
    """Chooses the broker with the lowest long-term message rate among the brokers that are not overloaded."""

    def choose(
        self,
        candidates: Collection[str],
        bundle: str,
        load: ClusterLoad,
        settings: LoadSettings,
        below: Below,
    ) -> Choice | None:
        scores = {broker: _rate_score(load.brokers.get(broker), settings) for broker in sorted(candidates)}
        if not scores:
            return None
        least = min(scores.values())
        best = [broker for broker, score in scores.items() if score == least]
        if least == inf:
            limit = 100 * settings.shed.overloaded
            return Choice(
                _any(best, below),
                f"all candidates use more than {limit:g} %, so one was chosen at random",
                scores,
            )
        among = "" if len(best) == 1 else f", chosen at random among {len(best)} equals"
        return Choice(
            _any(best, below), f"fewest messages per second in the long term: {least:.1f}{among}", scores
        )

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        return


def _rate_score(broker: BrokerLoad | None, settings: LoadSettings) -> float:
    if broker is None:
        return 0.0
    if broker.report.resources.weighed(settings.weights) > settings.shed.overloaded:
        return inf
    return broker.rate()


class UsageHistory:
    """The usage of brokers, smoothed exponentially."""

    def __init__(self) -> None:
        self.usage: dict[str, float] = {}

    def add(self, broker_id: str, now: float, history: float, *, anew: bool = False) -> float:
        """Adds a measurement of a broker; returns its smoothed usage.

        :param history: the weight of the previous value, 0 to 1
        :param anew: whether to ignore the previous value
        """
        before = None if anew else self.usage.get(broker_id)
        usage = now if before is None else before * history + (1 - history) * now
        self.usage[broker_id] = usage
        return usage

    def keep_only(self, broker_ids: Collection[str]) -> None:
        kept = set(broker_ids)
        self.usage = {broker_id: usage for broker_id, usage in self.usage.items() if broker_id in kept}


class LeastResourceUsageWithWeight:
    """Chooses at random among the brokers whose usage is well below the average; if there is no such broker,
    among all brokers.
    """

    def __init__(self) -> None:
        self._history = UsageHistory()

    def choose(
        self,
        candidates: Collection[str],
        bundle: str,
        load: ClusterLoad,
        settings: LoadSettings,
        below: Below,
    ) -> Choice | None:
        if not candidates:
            return None
        scores = {
            broker: self._usage(broker, load.brokers.get(broker), settings) for broker in sorted(candidates)
        }
        average = sum(scores.values()) / len(scores)
        margin = settings.average_difference
        best = [broker for broker, usage in scores.items() if usage + margin <= average]
        if best:
            why = f"at least {100 * margin:g} points below the average usage of {100 * average:.1f} %"
        else:
            best = list(scores)
            why = f"no broker is {100 * margin:g} points below the average usage of {100 * average:.1f} %"
        among = "" if len(best) == 1 else f", chosen at random among {len(best)}"
        return Choice(_any(best, below), why + among, scores)

    def _usage(self, broker_id: str, broker: BrokerLoad | None, settings: LoadSettings) -> float:
        if broker is None:
            return 0.0
        report = broker.report
        # The previous life of a broker that has just started says nothing about it.
        anew = not report.bundles or report.total.rate == 0
        usage = report.resources.weighed(settings.weights)
        return self._history.add(broker_id, usage, settings.shed.history, anew=anew)

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        self._history.keep_only(broker_ids)


class RoundRobin:
    """Chooses one broker after the other, like Pulsar's ``RoundRobinBrokerSelector``."""

    def __init__(self) -> None:
        self._given = 0

    def choose(
        self,
        candidates: Collection[str],
        bundle: str,
        load: ClusterLoad,
        settings: LoadSettings,
        below: Below,
    ) -> Choice | None:
        if not candidates:
            return None
        ordered = sorted(candidates)
        chosen = ordered[self._given % len(ordered)]
        self._given += 1
        return Choice(chosen, "chosen in turn", dict.fromkeys(ordered, 0.0))

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        return


class Anywhere:
    """Chooses a random broker; for AvgShedder, which determines the targets of its moves itself."""

    def choose(
        self,
        candidates: Collection[str],
        bundle: str,
        load: ClusterLoad,
        settings: LoadSettings,
        below: Below,
    ) -> Choice | None:
        if not candidates:
            return None
        ordered = sorted(candidates)
        return Choice(
            _any(ordered, below), f"chosen at random among {len(ordered)}", dict.fromkeys(ordered, 0.0)
        )

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        return


def _any(brokers: Sequence[str], below: Below) -> str:
    return brokers[below(len(brokers))] if len(brokers) > 1 else brokers[0]
