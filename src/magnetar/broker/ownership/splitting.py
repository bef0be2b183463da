"""Where a bundle is divided, by Pulsar's names of the ways to do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from magnetar.naming.bundles import BundleRange


@dataclass(frozen=True, slots=True)
class ToDivide:
    """What is known of a bundle."""

    range: BundleRange
    topics: Mapping[int, float]
    """The hashes of its topics, and how much each carries, in any unit."""
    positions: Sequence[int] = ()
    """Where whoever asks wants it divided."""


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
    """So that about half of what is carried lies on each side."""
    hashes = sorted(bundle.topics)
    total, before = sum(bundle.topics.values()), 0.0
    if total <= 0:
        return []
    best: tuple[float, int] | None = None
    for this, following in pairwise(hashes):
        before += bundle.topics[this]
        found = (abs(total - 2 * before), this + (following - this) // 2)
        best = found if best is None else min(best, found)
    return [best[1]] if best is not None else []


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
