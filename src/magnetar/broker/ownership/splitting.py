"""The algorithms that choose where a bundle is divided, by their names in Pulsar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.bundles import BundleRange


class Carried(NamedTuple):
    """The traffic of topics, in and out."""

    rate: float = 0.0
    """Messages per second."""
    throughput: float = 0.0
    """Bytes per second."""

    def plus(self, other: Carried) -> Carried:
        return Carried(self.rate + other.rate, self.throughput + other.throughput)

    def exceeds(self, bound: Carried) -> bool:
        """Whether either figure is above its bound."""
        return self.rate > bound.rate or self.throughput > bound.throughput

    def reaches(self, bound: Carried, factor: float) -> bool:
        """Whether either figure is at least ``factor`` times its bound."""
        return self.rate >= bound.rate * factor or self.throughput >= bound.throughput * factor


MOST = Carried(30_000, 100 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class ToDivide:
    """A bundle that is to be divided."""

    range: BundleRange
    topics: Mapping[int, Carried]
    """The traffic of each topic, by the topic's hash."""
    positions: Sequence[int] = ()
    """The positions that the request names."""
    most: Carried = MOST
    """The most that a bundle should carry."""
    tolerance: float = 0.1
    """As a fraction of ``most``: a bundle is not divided for its traffic while it exceeds
    ``most`` by less."""


def range_equally_divide(bundle: ToDivide) -> Sequence[int]:
    lower, upper = bundle.range.lower, bundle.range.upper
    return [lower + (upper - lower) // 2]


def topic_count_equally_divide(bundle: ToDivide) -> Sequence[int]:
    """Returns the middle between the two topics in the middle, or nothing if there are fewer than two."""
    hashes = sorted(bundle.topics)
    if len(hashes) < 2:
        return []
    before, after = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
    return [before + (after - before) // 2]


def specified_positions_divide(bundle: ToDivide) -> Sequence[int]:
    """Returns the positions in the request, as far as they lie within the bundle."""
    return bundle.positions


def flow_or_qps_equally_divide(bundle: ToDivide) -> Sequence[int]:
    """Divides the bundle so that each part carries at most ``most``, or has a single topic.

    Returns nothing while the whole bundle does not clearly exceed ``most``.
    """
    busy = {
        at: carried for at, carried in bundle.topics.items() if carried.rate > 0 or carried.throughput > 0
    }
    whole = reduce(Carried.plus, busy.values(), Carried())
    if len(busy) < 2 or not whole.reaches(bundle.most, 1 + bundle.tolerance):
        return []
    found = []
    hashes = sorted(busy)
    part = busy[hashes[0]]
    for before, this in pairwise(hashes):
        part = part.plus(busy[this])
        if part.exceeds(bundle.most):
            found.append(before + (this - before) // 2)
            part = busy[this]
    return found


ALGORITHMS: Mapping[str, Callable[[ToDivide], Sequence[int]]] = {
    each.__name__: each
    for each in (
        range_equally_divide,
        topic_count_equally_divide,
        specified_positions_divide,
        flow_or_qps_equally_divide,
    )
}
DEFAULT = range_equally_divide.__name__


def positions_within(bundle: ToDivide, algorithm: str) -> Sequence[int]:
    """Returns positions in ascending order, each strictly within the bundle; empty if the algorithm finds
    none.

    :param algorithm: one of :data:`ALGORITHMS`
    """
    lower, upper = bundle.range.lower, bundle.range.upper
    return sorted({at for at in ALGORITHMS[algorithm](bundle) if lower < at < upper})
