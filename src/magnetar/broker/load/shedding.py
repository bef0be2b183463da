"""Load shedding: the bundles that leave their brokers to spread the load, and the bundles that are split
because they are too large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from magnetar.broker.load.cluster_load import (
    BrokerLoad,
    BundleHistory,
    ClusterLoad,
    belongs_to_a_broker,
    namespace_of,
)
from magnetar.broker.load.placing import UsageHistory
from magnetar.broker.load.reports import BundleStats
from magnetar.broker.load.settings import LoadSettings, SplitSettings
from magnetar.lazy_dataclass import dataclass

_MARGIN = 0.05
"""How far below its threshold the usage of a broker is to fall, as a fraction of full usage."""
_LOWER_MARGIN = 0.5
_TOLERANCE = 1000
"""The messages or bytes per second by which a bundle may exceed the rate that is still to be moved."""
_NOTHING = 1e-6
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Move:
    """A bundle that is to leave a broker."""

    bundle: str
    source: str
    why: str
    """The reason for the move, with numbers."""
    target: str | None = None
    """The broker that the bundle moves to; None: placement chooses a broker."""


class Shedder(Protocol):
    def find(self, load: ClusterLoad, settings: LoadSettings) -> Sequence[Move]:
        """Returns the bundles to move now; some strategies count calls, and act only after several calls."""
        ...

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        """Forgets brokers that are not in ``broker_ids``; called when the live brokers have changed."""
        ...


def _throughput(history: BundleHistory) -> float:
    return history.short.throughput


def _rate(history: BundleHistory) -> float:
    return history.short.rate


def _largest_first(
    load: ClusterLoad, broker_id: str, traffic: Callable[[BundleHistory], float]
) -> list[tuple[str, float]]:
    found = [(bundle, traffic(history)) for bundle, history in load.movable(broker_id)]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def _enough(load: ClusterLoad, broker_id: str, wanted: float) -> Iterable[str]:
    """Yields the largest bundles up to ``wanted`` bytes per second: at least one bundle, but never all
    bundles.
    """
    left = wanted
    candidates = _largest_first(load, broker_id, _throughput)
    most = len(load.brokers[broker_id].report.bundles) - 1
    for index, (bundle, throughput) in enumerate(candidates[:most]):
        if index and left <= 0:
            return
        yield bundle
        left -= throughput


class ThresholdShedder:
    """Relieves brokers whose smoothed usage exceeds the average by a threshold."""

    def __init__(self) -> None:
        self._history = UsageHistory()

    def find(self, load: ClusterLoad, settings: LoadSettings) -> Sequence[Move]:
        shed = settings.shed
        usage = {
            broker_id: self._history.add(
                broker_id, broker.report.resources.weighed(settings.weights), shed.history
            )
            for broker_id, broker in sorted(load.brokers.items())
        }
        average = sum(usage.values()) / len(usage) if usage else 0.0
        if not average:
            return []
        moves: list[Move] = []
        for broker_id, used in usage.items():
            if used >= average + shed.above_average:
                share = used - average - shed.above_average + _MARGIN
                why = f"usage {100 * used:.1f} %, average {100 * average:.1f} %"
                moves += self._moves(load, settings, broker_id, share, why)
        if not moves and shed.lower_boundary:
            moves = self._to_idle(load, settings, usage, average)
        return moves

    def _to_idle(
        self, load: ClusterLoad, settings: LoadSettings, usage: dict[str, float], average: float
    ) -> list[Move]:
        """Returns moves of bundles from the busiest broker if another broker is far below the average."""
        threshold = settings.shed.above_average
        idle = min(usage, key=lambda broker_id: (usage[broker_id], broker_id))
        if usage[idle] >= average - threshold:
            return []
        givers = [each for each in usage if len(load.brokers[each].report.bundles) > 1]
        busiest = max(givers, key=lambda broker_id: usage[broker_id], default=None)
        if busiest is None:
            return []
        why = f"{idle} uses {100 * usage[idle]:.1f} %, the average is {100 * average:.1f} %"
        return self._moves(load, settings, busiest, threshold * _LOWER_MARGIN, why)

    def _moves(
        self, load: ClusterLoad, settings: LoadSettings, broker_id: str, share: float, why: str
    ) -> list[Move]:
        """Returns moves of bundles from a broker to others.

        :param share: the fraction of the broker's throughput to move
        """
        report = load.brokers[broker_id].report
        wanted = report.total.throughput * share
        if wanted < settings.shed.min_throughput or len(report.bundles) < 2:
            return []
        told = f"{why}: {wanted / _MIB:.1f} MiB/s are to be moved"
        return [Move(bundle, broker_id, told) for bundle in _enough(load, broker_id, wanted)]

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        self._history.keep_only(broker_ids)


class OverloadShedder:
    """Relieves brokers whose usage is above a threshold."""

    def find(self, load: ClusterLoad, settings: LoadSettings) -> Sequence[Move]:
        threshold = settings.shed.overloaded
        moves: list[Move] = []
        for broker_id, broker in sorted(load.brokers.items()):
            used = broker.report.resources.most
            if used < threshold or len(broker.report.bundles) < 2:
                continue
            wanted = broker.report.total.throughput * (used - threshold + _MARGIN)
            allowed = f"usage {100 * used:.1f} %, allowed {100 * threshold:g} %"
            why = f"{allowed}: {wanted / _MIB:.1f} MiB/s are to be moved"
            moves += [Move(bundle, broker_id, why) for bundle in _enough(load, broker_id, wanted)]
        return moves

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        return


class UniformLoadShedder:
    """Moves bundles from the broker with the highest rate of messages (or bytes) to relieve it."""

    def find(self, load: ClusterLoad, settings: LoadSettings) -> Sequence[Move]:
        shed = settings.shed
        if len(load.brokers) < 2:
            return []
        rates = {broker_id: broker.report.total.rate for broker_id, broker in sorted(load.brokers.items())}
        high, low = max(rates.values()), _some(min(rates.values()))
        if shed.rate_difference > 0 and (high - low) / low > shed.rate_difference:
            wanted = int((high - low) * shed.max_unload_share)
            if wanted < shed.min_unload_rate:
                return []
            why = f"{high:.0f} messages/s, the least loaded broker has {low:.0f}"
            return _down_to(load, _most(rates), wanted, _rate, shed.max_bundles, why)
        flows = {
            broker_id: broker.report.total.throughput for broker_id, broker in sorted(load.brokers.items())
        }
        high, low = max(flows.values()), _some(min(flows.values()))
        if shed.throughput_factor <= 0 or high / low <= shed.throughput_factor:
            return []
        wanted = int((high - low) * shed.max_unload_share)
        if wanted < shed.min_unload_throughput:
            return []
        why = f"{high / _MIB:.1f} MiB/s, the least loaded broker has {low / _MIB:.1f}"
        return _down_to(load, _most(flows), wanted, _throughput, shed.max_bundles, why)

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        return


def _some(lowest: float) -> float:
    """Returns the lowest rate for use as a divisor; 1.0 if the rate is close to zero."""
    return lowest if lowest > _NOTHING else 1.0


def _most(figures: dict[str, float]) -> str:
    return max(figures, key=lambda broker_id: figures[broker_id])


def _down_to(
    load: ClusterLoad,
    broker_id: str,
    wanted: float,
    traffic: Callable[[BundleHistory], float],
    most: int,
    why: str,
) -> list[Move]:
    """Returns moves of a broker's largest bundles, which together have a traffic of at most about ``wanted``.

    :param wanted: the traffic to move, in the unit of ``traffic``
    :param most: the maximum number of moves; -1: no limit
    """
    if len(load.brokers[broker_id].report.bundles) < 2:
        return []
    moves: list[Move] = []
    for bundle, amount in _largest_first(load, broker_id, traffic):
        if most != -1 and len(moves) >= most:
            break
        if 0 < amount <= wanted + _TOLERANCE:
            wanted -= amount
            moves.append(Move(bundle, broker_id, why))
    return moves


class AvgShedder:
    """Pairs the busiest broker with the least busy one, the second busiest with the second least busy one,
    and so on; moves bundles within the pairs.

    Bundles only move if the difference persists for several rounds. The strategy also determines the target
    of each move.
    """

    def __init__(self) -> None:
        self._high: dict[str, int] = {}
        self._low: dict[str, int] = {}

    def find(self, load: ClusterLoad, settings: LoadSettings) -> Sequence[Move]:
        shed = settings.shed
        scores = {
            broker_id: 100 * broker.report.resources.weighed(settings.weights)
            for broker_id, broker in load.brokers.items()
        }
        ordered = sorted(scores, key=lambda broker_id: (scores[broker_id], broker_id))
        half = len(ordered) // 2
        pairs = list(zip(ordered[:half], ordered[::-1][:half], strict=True))
        self._count(pairs, scores, settings)
        moves: list[Move] = []
        for idle, busy in pairs:
            if scores[busy] - scores[idle] >= shed.low and self._hit(idle, busy, settings):
                moves += self._between(load, settings, idle, busy, scores)
        return moves

    def _count(
        self, pairs: Sequence[tuple[str, str]], scores: dict[str, float], settings: LoadSettings
    ) -> None:
        for pair in pairs:
            apart = scores[pair[1]] - scores[pair[0]]
            for counts, threshold in ((self._low, settings.shed.low), (self._high, settings.shed.high)):
                for broker_id in pair:
                    if apart >= threshold:
                        counts[broker_id] = counts.get(broker_id, 0) + 1
                    else:
                        counts.pop(broker_id, None)

    def _hit(self, idle: str, busy: str, settings: LoadSettings) -> bool:
        seen = (
            max(self._high.get(idle, 0), self._high.get(busy, 0)) >= settings.shed.hits_high
            or max(self._low.get(idle, 0), self._low.get(busy, 0)) >= settings.shed.hits_low
        )
        if seen:
            for counts in (self._high, self._low):
                counts.pop(idle, None)
                counts.pop(busy, None)
        return seen

    def _between(
        self, load: ClusterLoad, settings: LoadSettings, idle: str, busy: str, scores: dict[str, float]
    ) -> list[Move]:
        shed = settings.shed
        few, many = _total(load.brokers[idle]), _total(load.brokers[busy])
        rate, flow = ((many[index] - few[index]) * shed.max_unload_share for index in (0, 1))
        if rate > shed.min_unload_rate:
            left, traffic = rate, _rate
        elif flow > shed.min_unload_throughput:
            left, traffic = flow, _throughput
        else:
            return []
        moves: list[Move] = []
        why = f"usage {scores[busy]:.1f} %, that of {idle} {scores[idle]:.1f} %"
        for bundle, amount in _largest_first(load, busy, traffic):
            if 0 < amount <= left:
                left -= amount
                moves.append(Move(bundle, busy, why, idle))
        return moves

    def brokers_changed(self, broker_ids: Collection[str]) -> None:
        for counts in (self._high, self._low):
            for gone in counts.keys() - set(broker_ids):
                del counts[gone]


def _total(broker: BrokerLoad) -> tuple[float, float]:
    return broker.report.total.rate, broker.report.total.throughput


@dataclass(frozen=True, slots=True)
class Split:
    """A bundle that has become too large, and is to be split."""

    bundle: str
    broker_id: str
    why: str


def too_large(load: ClusterLoad, settings: SplitSettings) -> Sequence[Split]:
    """Returns bundles that exceed a limit and have at least two topics, so that they can be split."""
    found = []
    for broker_id, broker in sorted(load.brokers.items()):
        for bundle, stats in sorted(broker.report.stats.items()):
            if stats.topics < 2 or belongs_to_a_broker(bundle):
                continue
            reasons = _reasons(stats, load.bundles.get(bundle), settings)
            if reasons:
                found.append(Split(bundle, broker_id, ", ".join(reasons)))
    return found


def _reasons(stats: BundleStats, history: BundleHistory | None, settings: SplitSettings) -> Sequence[str]:
    reasons = []
    sessions = stats.consumers + stats.producers
    if stats.topics > settings.max_topics:
        reasons.append(f"{stats.topics} topics")
    if 0 < settings.max_sessions < sessions:
        reasons.append(f"{sessions} producers and consumers")
    if history is not None and history.long.rate > settings.max_rate:
        reasons.append(f"{history.long.rate:.0f} messages/s")
    if history is not None and history.long.throughput > settings.max_throughput:
        reasons.append(f"{history.long.throughput / _MIB:.1f} MiB/s")
    return reasons


def within_bounds(
    splits: Sequence[Split], settings: SplitSettings, counts: Mapping[str, int]
) -> Sequence[Split]:
    """Returns the splits whose namespaces may have one more bundle each.

    :param counts: the number of bundles by namespace; missing namespaces are not split
    """
    planned: Counter[str] = Counter()
    found = []
    for split in splits:
        namespace = namespace_of(split.bundle)
        if 0 < counts.get(namespace, 0) + planned[namespace] < settings.max_bundles:
            planned[namespace] += 1
            found.append(split)
    return found
