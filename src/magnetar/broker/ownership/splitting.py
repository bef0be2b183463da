"""Where a bundle is divided, by Pulsar's names of the ways to do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.bundles import BundleRange


class Carried(NamedTuple):
    """What goes through topics, in and out."""

    rate: float = 0.0
    """Messages a second."""
    throughput: float = 0.0
    """Bytes a second."""

    def plus(self, other: Carried) -> Carried:
        return Carried(self.rate + other.rate, self.throughput + other.throughput)

    def exceeds(self, bound: Carried) -> bool:
        """Whether it is above a bound in one of both."""
        return self.rate > bound.rate or self.throughput > bound.throughput

    def reaches(self, bound: Carried, factor: float) -> bool:
        """Whether it is at least ``factor`` times a bound in one of both."""
        return self.rate >= bound.rate * factor or self.throughput >= bound.throughput * factor


MOST = Carried(30_000, 100 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class ToDivide:
    """What is known of a bundle."""

    range: BundleRange
    topics: Mapping[int, Carried]
    """The hashes of its topics, and what each carries."""
    positions: Sequence[int] = ()
    """Where whoever asks wants it divided."""
    most: Carried = MOST
    """What a bundle is to carry at most."""
    tolerance: float = 0.1
    """As a share of that: what is above by less is not divided by what it carries."""


def range_equally_divide(bundle: ToDivide) -> Sequence[int]:
    lower, upper = bundle.range.lower, bundle.range.upper
    return [lower + (upper - lower) // 2]


def topic_count_equally_divide(bundle: ToDivide) -> Sequence[int]:
    """Between the two topics in the middle; nowhere when there are fewer than two."""
    hashes = sorted(bundle.topics)
    if len(hashes) < 2:
        return []
    before, after = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
    return [before + (after - before) // 2]


def specified_positions_divide(bundle: ToDivide) -> Sequence[int]:
    """Where whoever asks says, as far as that lies within."""
    return bundle.positions


def flow_or_qps_equally_divide(bundle: ToDivide) -> Sequence[int]:
    """Into as many parts as it takes, so that each carries no more than a bundle is to; one topic always may.

    Nowhere as long as the whole does not carry clearly more than that.
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
    """Ascending, each strictly within the bundle; none where it cannot be divided that way.

    :param algorithm: one of :data:`ALGORITHMS`
    """
    lower, upper = bundle.range.lower, bundle.range.upper
    return sorted({at for at in ALGORITHMS[algorithm](bundle) if lower < at < upper})
