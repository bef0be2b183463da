"""Read plans, which tell readers on the same machine or a shared file system which files hold a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.broker.admin.topics import TopicAdmin
from magnetar.broker.service import BrokerService
from magnetar.errors import InvalidRequest, NotAllowed, NotFound, NotSupported, TooManyRequests
from magnetar.ledger.interface import NoSuchReadPlan, PlannedRange, ReadPlans, TooManyReadPlans
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position

Json = Mapping[str, Any]

_DEFAULT_SECONDS = 600


class ReadPlanAdmin:
    """Plans have ids that cannot be guessed; a client that knows the id may extend and release the plan."""

    def __init__(self, broker: BrokerService, topics: TopicAdmin) -> None:
        self._broker = broker
        self._topics = topics

    async def make(self, topic: str, start: Position, end: Position | None, seconds: int | None) -> Json:
        """Returns the files with the entries from ``start`` up to but not including ``end`` (None: all
        readable).

        :raises TopicNotFound: no such topic
        :raises NotAllowed: the topic is partitioned; its partitions are topics
        :raises NotSupported: the ledger store has no files to read, or the settings forbid it
        :raises InvalidRequest: ``seconds`` is out of range
        :raises TooManyRequests: too many plans are held
        """
        plans, held = self._plans(), self._seconds(seconds)
        if await self._broker.namespaces.partitions(self._broker.parse_topic(topic)):
            raise NotAllowed("Read plans need a topic without partitions, or one partition")
        ledger = (await self._topics.persistent(topic)).managed_ledger
        try:
            plan = plans.make(_ranges(ledger, start, end), held)
        except TooManyReadPlans as error:
            raise TooManyRequests(str(error)) from error
        return {"id": plan.plan_id, "seconds": held, "ranges": [_range(part) for part in plan.ranges]}

    def prolong(self, plan_id: str, seconds: int | None) -> Json:
        """Keeps the plan's files for ``seconds`` from now on.

        :raises NotFound: the plan was released or has expired
        :raises InvalidRequest: ``seconds`` is out of range
        """
        held = self._seconds(seconds)
        try:
            self._plans().prolong(plan_id, held)
        except NoSuchReadPlan as error:
            raise NotFound(str(error)) from error
        return {"id": plan_id, "seconds": held}

    def release(self, plan_id: str) -> None:
        """Releases a plan; does nothing if it no longer exists."""
        self._plans().release(plan_id)

    def _plans(self) -> ReadPlans:
        plans = self._broker.managed_ledgers.store.read_plans
        if plans is None:
            raise NotSupported(
                "Read plans are not available: the files of this ledger store cannot be read by other "
                "programs"
            )
        if not self._broker.settings.max_read_plan_seconds:
            raise NotSupported("Read plans are disabled: magnetarReadPlanMaxSeconds is 0")
        return plans

    def _seconds(self, seconds: int | None) -> int:
        most = self._broker.settings.max_read_plan_seconds
        if seconds is None:
            return min(_DEFAULT_SECONDS, most)
        if not 0 < seconds <= most:
            raise InvalidRequest(
                f"seconds must be from 1 to {most} (magnetarReadPlanMaxSeconds), not {seconds}"
            )
        return seconds


def _ranges(ledger: ManagedLedger, start: Position, end: Position | None) -> list[tuple[int, int, int]]:
    """Returns (ledger id, first entry, last entry) of readable ranges from ``start`` to before ``end``."""
    after = ledger.max_read_position
    after = (after[0], after[1] + 1)
    after = after if end is None else min(after, end)
    found = []
    for summary in ledger.ledgers:
        first = max(start[1], 0) if summary.ledger_id == start[0] else 0
        last = min(summary.entries, after[1]) - 1 if summary.ledger_id == after[0] else summary.entries - 1
        if start[0] <= summary.ledger_id <= after[0] and first <= last:
            found.append((summary.ledger_id, first, last))
    return found


def _range(part: PlannedRange) -> Json:
    return {
        "ledgerId": part.ledger_id,
        "firstEntryId": part.first_entry_id,
        "lastEntryId": part.last_entry_id,
        "segmentId": part.segment_id,
        "segmentFile": part.segment_file,
        "indexFile": part.index_file,
    }
