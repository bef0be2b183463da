"""Read plans: which files hold which entries, for readers in other processes.

A plan pins its segments like a read in this process: their files and indexes keep their names and bytes until
the plan is released or expires. A late reader finds another segment's header, or no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.invariants import must
from magnetar.io.interfaces import Cancellable, Io
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.ledger_reader import ReadContext
from magnetar.ledger.interface import (
    NoSuchReadPlan,
    PlannedRange,
    ReadPlan,
    StoreClosed,
    TooManyReadPlans,
)

_TOKEN_BYTES = 16


@dataclass(slots=True)
class _Held:
    segments: frozenset[int]
    expiry: Cancellable


class EmbeddedReadPlans:
    """The plans of one store; see :class:`magnetar.ledger.interface.ReadPlans`."""

    def __init__(self, io: Io, context: ReadContext, most_plans: int) -> None:
        self._io = io
        self._context = context
        self._most = most_plans
        self._plans: dict[str, _Held] = {}
        self._closed = False

    def make(self, ranges: Sequence[tuple[int, int, int]], seconds: float) -> ReadPlan:
        if self._closed:
            raise StoreClosed("the ledger store is closed")
        if len(self._plans) >= self._most:
            raise TooManyReadPlans(f"{self._most} read plans are already held")
        planned = [part for wanted in ranges for part in self._sealed_parts(*wanted)]
        segments = frozenset(part.segment_id for part in planned)
        for segment_id in segments:
            self._context.reads.pin(segment_id)
        plan_id = self._io.randomness.token(_TOKEN_BYTES).hex()
        self._plans[plan_id] = _Held(segments, self._expire_in(plan_id, seconds))
        return ReadPlan(plan_id, seconds, planned)

    def prolong(self, plan_id: str, seconds: float) -> None:
        held = self._held(plan_id)
        held.expiry.cancel()
        held.expiry = self._expire_in(plan_id, seconds)

    def release(self, plan_id: str) -> None:
        held = self._plans.pop(plan_id, None)
        if held is None:
            return
        held.expiry.cancel()
        for segment_id in held.segments:
            self._context.reads.unpin(segment_id)

    def check(self) -> None:
        """:raises BrokenInvariant: a segment of a plan is not pinned"""
        for plan_id, held in self._plans.items():
            for segment_id in held.segments:
                pinned = self._context.reads.is_pinned(segment_id)
                must(pinned, "read plan", plan_id, "does not keep segment", segment_id)

    def close(self) -> None:
        """Releases all plans; none outlives the store."""
        self._closed = True
        for plan_id in list(self._plans):
            self.release(plan_id)

    def _held(self, plan_id: str) -> _Held:
        held = self._plans.get(plan_id)
        if held is None:
            raise NoSuchReadPlan(f"read plan {plan_id} does not exist: it was released, or it has expired")
        return held

    def _expire_in(self, plan_id: str, seconds: float) -> Any:
        return self._io.loop.call_later(seconds, self.release, plan_id)

    def _sealed_parts(self, ledger_id: int, first: int, last: int) -> list[PlannedRange]:
        """Returns the ranges of entries ``first`` to ``last`` in sealed segments; empty for a
        deleted ledger."""
        row = self._context.table.rows.get(ledger_id)
        if row is None:
            return []
        files, segments = self._context.files, self._context.segments
        found = []
        for segment_id, part_first, part_last, _ in row.each_part():
            begin, end = max(first, part_first), min(last, part_last)
            if segments.may_grow(segment_id) or begin > end:
                continue
            found.append(
                PlannedRange(
                    ledger_id,
                    begin,
                    end,
                    segment_id,
                    files.segment_path(segment_id),
                    files.index_path(segment_id),
                )
            )
        return found
