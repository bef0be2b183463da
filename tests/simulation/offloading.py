"""Tiered storage of a seed: what is offloaded when, to a bucket that fails, is slow, outlives the broker."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from memory_bucket import MemoryBucket

from magnetar.broker.policies.offload import (
    DELETION_LAG,
    DRIVER,
    PRIORITIES,
    READ_PRIORITY,
    THRESHOLD_BYTES,
    THRESHOLD_SECONDS,
)
from magnetar.broker.policies.values import Json
from simulation.limits import Limits

_SHARE = 0.25
"""Of the seeds that have tiered storage."""


class Tiered:
    """Survives all lives of the broker."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.bucket = MemoryBucket()
        self.policies: Json = {
            DRIVER: "memory",
            THRESHOLD_BYTES: random.choice((0, 0, 500, -1)),
            THRESHOLD_SECONDS: random.choice((0, 1, 1)),
            DELETION_LAG: random.choice((0, 0, 300, 3000)),
            READ_PRIORITY: random.choice(PRIORITIES),
        }
        self.slowness = random.choice((0.001, 0.05, 0.3))
        """How long one call takes at most, in virtual seconds."""
        self._failing = random.choice((0.0, 0.05, 0.3))
        self._lost = random.choice((0.0, 0.05, 0.2))
        self.bucket.fault = lambda _call, _name: random.random() < self._failing
        self.bucket.loses_answer = lambda _call, _name: random.random() < self._lost

    def mend(self) -> None:
        """From now on each call succeeds."""
        self._failing = self._lost = 0.0

    def limits(self, limits: Limits) -> Limits:
        """The same with ledgers that end early, and with readers that seldom find them in memory."""
        random = self._random
        ledgers = replace(limits.ledgers, max_entries_per_ledger=random.choice((2, 5, 20)), min_rollover_ms=0)
        cache = replace(limits.cache, max_bytes=random.choice((0, limits.cache.max_bytes)))
        return replace(limits, ledgers=ledgers, cache=cache)


def tiered(seed: int) -> Tiered | None:
    """Returns the tiered storage of a seed; None: it has none."""
    random = Random(f"tiered storage {seed}")
    return Tiered(random) if random.random() < _SHARE else None
