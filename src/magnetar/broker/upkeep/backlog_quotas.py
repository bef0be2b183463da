"""Backlog quotas: limits of the backlog of a topic, and the actions when they are exceeded.

Quotas are checked periodically and when a producer is created, never for a message. The durable subscription
that is farthest behind counts; non-durable subscriptions keep no messages and do not count. A gate stops
publishing to all topics while the storage is full.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from magnetar.broker.flow.rates import Distribution
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.entries import published_at
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.expiry import last_published_before
from magnetar.errors import QuotaExceeded, QuotaExceededHold
from magnetar.io.interfaces import Task
from magnetar.io.slices import PAUSE_SECONDS, each, let_others
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerError, NoSuchLedger
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import LedgerSummary

if TYPE_CHECKING:
    from magnetar.broker.replication.replicator import Replicator


log = logging.getLogger(__name__)
HOLD = "producer_request_hold"
EXCEPTION = "producer_exception"
EVICTION = "consumer_backlog_eviction"
CHECK_BOUNDS = (5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram of check durations, in seconds."""
_DOWN_TO = 0.9
"""An eviction reduces the backlog to this fraction of the quota."""
_REFUSAL = "Cannot create producer on topic with backlog quota exceeded"


class Quota(Enum):
    """The quota that is exceeded; the value is its name in metrics."""

    SIZE = "size"
    TIME = "time"


@dataclass(slots=True)
class Evictions:
    """How often messages were evicted from a topic's backlog, and the backlog's age at the last check."""

    by_size: int = 0
    by_time: int = 0
    age_seconds: int = -1
    """The age of the backlog in seconds at the last check; -1: there is no backlog, or its age is unknown."""


def _has_quota(topic: Topic) -> bool:
    policies = topic.policies
    return policies.storage_quota.limit_bytes >= 0 or policies.age_quota.limit_seconds > 0


def counted(topic: Topic) -> list[Subscription | Replicator]:
    """Returns the subscriptions and replicators with a backlog that quotas count."""
    found: list[Subscription | Replicator] = [
        s
        for s in topic.subscriptions.values()
        if s.durable and s.kind.counts_for_quota and s.cursor.backlog()
    ]
    if topic.replicators:
        found += (each for each in topic.replicators.values() if each.backlog())
    return found


def slowest(topic: Topic) -> Subscription | Replicator | None:
    """Returns the durable subscription, or replicator, that is farthest behind; None if none has a backlog
    that quotas count."""
    return min(counted(topic), key=lambda s: s.cursor.mark_delete, default=None)


def backlog_bytes(topic: Topic) -> int:
    """Returns the backlog of the slowest durable subscription in bytes, estimated if its position is inside a
    ledger."""
    return max((s.cursor.backlog_bytes() for s in counted(topic)), default=0)


async def oldest_published_ms(topic: Topic) -> int | None:
    """Returns the publish time of the oldest message that a durable subscription or replicator has not
    consumed, in ms since 1970; None if there is no backlog.

    :raises LedgerError: the message cannot be read
    """
    while (subscription := slowest(topic)) is not None:
        position = subscription.cursor.first_unconsumed()
        try:
            return await published_at(topic.managed_ledger, position)
        except NoSuchLedger:
            # The ledger was consumed and trimmed during the read; look for the oldest message again.
            if position[0] in topic.managed_ledger.ledgers:
                raise
    return None


def closed_ms_of_oldest(topic: Topic) -> int | None:
    """Returns the time when the ledger with the oldest unconsumed entry was closed, in ms since 1970; None if
    there is no backlog, or that ledger is open."""
    subscription = slowest(topic)
    if subscription is None:
        return None
    summary = topic.managed_ledger.ledgers.get(subscription.cursor.first_unconsumed()[0])
    return summary.closed_ms or None if summary is not None else None


def _oldest_is_offloaded(topic: Topic) -> bool:
    """Whether the oldest message that a durable subscription has not consumed is read from tiered storage."""
    subscription = slowest(topic)
    if subscription is None:
        return False
    reader = topic.managed_ledger.reader
    return reader.tiered_place(subscription.cursor.first_unconsumed()) is not None


def _end_of_bytes(ledgers: Iterable[LedgerSummary], start: Position, size: int) -> Position:
    """Returns the position up to which there are ``size`` bytes after ``start``, as if all entries of a
    ledger had the same size."""
    last = start
    for summary in ledgers:
        if summary.ledger_id < start[0] or not summary.entries:
            continue
        first = start[1] if summary.ledger_id == start[0] else 0
        left = summary.entries - first
        stored = summary.size * left // summary.entries
        if left <= 0:
            continue
        if stored >= size:
            return (summary.ledger_id, first + max(1, -(-left * size // stored)) - 1)
        size -= stored
        last = (summary.ledger_id, summary.entries - 1)
    return last


class BacklogQuotas:
    """Checks the quotas of all topics of a broker, and acts if they are exceeded."""

    def __init__(self, served: ServedTopics) -> None:
        self._served = served
        self._known: dict[str, Evictions] = {}
        self._all = Evictions()
        self._tasks = TaskScope(served.io.loop, "backlog quotas", owner_goes_on)
        self._closing: KeyedTasks[Topic, None] = KeyedTasks(self._tasks)
        """Tasks that close the producers of topics. They may wait for receipts, so no other task waits for
        them."""
        self.checks = Distribution(CHECK_BOUNDS)
        """The durations of checks of all topics, in seconds."""

    def of(self, topic: Topic) -> Evictions:
        """Returns the evictions of a topic since this broker loaded it."""
        return self._known.get(topic.full_name) or Evictions()

    @property
    def all(self) -> Evictions:
        """Returns the evictions of all topics since the start of the broker."""
        return self._all

    # Checking

    async def exceeded(self, topic: Topic) -> Quota | None:
        """Returns the quota that a topic's backlog exceeds now; None if the backlog exceeds no quota.

        :raises LedgerError: the age of the backlog is needed and cannot be read
        """
        size, age = topic.policies.storage_quota, topic.policies.age_quota
        if size.limit_bytes >= 0 and backlog_bytes(topic) >= size.limit_bytes and slowest(topic) is not None:
            return Quota.SIZE
        if age.limit_seconds <= 0:
            return None
        age_ms = await self._age_ms(topic)
        return Quota.TIME if age_ms is not None and age_ms > age.limit_seconds * 1000 else None

    async def _age_ms(self, topic: Topic) -> int | None:
        """Returns the age of the backlog in ms, as precisely as configured; None if there is no backlog, or
        its age is unknown."""
        if self._reads_ages(topic):
            since = await oldest_published_ms(topic)
        else:
            since = closed_ms_of_oldest(topic)
        return None if since is None else max(0, self._served.io.clock.wall_ms() - since)

    def _reads_ages(self, topic: Topic) -> bool:
        """Whether the age of a backlog is computed from publish times, not from the times when ledgers were
        closed. Publish times are not used if they would have to be read from tiered storage, because
        producers and other topics would wait.
        """
        return self._served.settings.precise_age_quota and not _oldest_is_offloaded(topic)

    async def check_producer(self, topic: AnyTopic) -> None:
        """Checks whether a producer may be created.

        :raises QuotaExceededHold: a quota is exceeded whose policy makes producers wait
        :raises QuotaExceeded: a quota is exceeded whose policy makes producers fail
        :raises LedgerError: the age of the backlog cannot be read
        """
        if not isinstance(topic, Topic) or not self._served.settings.backlog_quota_check:
            return
        quota = await self.exceeded(topic)
        if quota is None:
            return
        policy = self._policy(topic, quota)
        if policy != EVICTION:
            topic.hindered(Hindrance.BACKLOG_QUOTA, _REFUSAL)
        if policy == HOLD:
            raise QuotaExceededHold(_REFUSAL)
        if policy == EXCEPTION:
            raise QuotaExceeded(_REFUSAL)

    async def holding(self, topic: Topic) -> Quota | None:
        """Returns the quota because of which producers of a topic are refused now; None if no quota refuses
        them.

        :raises LedgerError: the age of the backlog cannot be read
        """
        if not self._served.settings.backlog_quota_check:
            return None
        quota = await self.exceeded(topic)
        return None if quota is None or self._policy(topic, quota) == EVICTION else quota

    @staticmethod
    def _policy(topic: Topic, quota: Quota) -> str:
        policies = topic.policies
        return (policies.storage_quota if quota is Quota.SIZE else policies.age_quota).policy

    async def run(self) -> None:
        """Checks all topics with quotas, one after another."""
        started = self._served.io.clock.monotonic()
        due: list[Topic] = []

        def look(topic: AnyTopic) -> None:
            if isinstance(topic, Topic) and _has_quota(topic) and slowest(topic) is not None:
                due.append(topic)
            else:
                self._known_age(topic, -1)

        topics: Mapping[str, AnyTopic] = self._served.loaded
        await each(self._served.io, "backlog quotas", list(topics.values()), look, pause=PAUSE_SECONDS)
        for name in self._known.keys() - topics.keys():
            del self._known[name]
        for topic in due:
            try:
                await self.enforce(topic)
            except (LedgerError, ManagedLedgerError) as error:
                log.warning(
                    "cannot determine the age of the backlog",
                    extra={"topic": topic.full_name, "error": str(error)},
                )
            await let_others(self._served.io.loop)
        self.checks.add(self._served.io.clock.monotonic() - started)

    def _known_age(self, topic: AnyTopic, seconds: int) -> None:
        known = self._known.get(topic.full_name)
        if known is not None:
            known.age_seconds = seconds
        elif seconds >= 0:
            self._known[topic.full_name] = Evictions(age_seconds=seconds)

    # Acting

    async def enforce(self, topic: Topic) -> None:
        """Acts on a topic if it exceeds a quota.

        :raises LedgerError: the age of the backlog cannot be read
        """
        await self._note_age(topic)
        quota = await self.exceeded(topic)
        if quota is None or topic.closing or topic.fenced:
            return
        policy = self._policy(topic, quota)
        if policy != EVICTION:
            if topic.producers:
                log.info(
                    "closing producers: a backlog quota is exceeded",
                    extra={"topic": topic.full_name, "quota": quota.value, "policy": policy},
                )
                topic.hindered(Hindrance.BACKLOG_QUOTA, _REFUSAL)
                self._close_producers(topic)
        elif quota is Quota.SIZE:
            self._evict_by_size(topic)
        else:
            await self._evict_by_time(topic)

    def _close_producers(self, topic: Topic) -> None:
        self._closing.start(topic, topic.producers.close_in_order, "closing producers")

    def stop(self) -> None:
        """Stops the closing of producers in the background."""
        self._tasks.cancel()

    async def _note_age(self, topic: Topic) -> None:
        if topic.policies.age_quota.limit_seconds <= 0:
            self._known_age(topic, -1)
            return
        age_ms = await self._age_ms(topic)
        self._known_age(topic, -1 if age_ms is None else age_ms // 1000)

    def _evict(
        self, topic: Topic, subscription: Subscription | Replicator, last: Position, quota: Quota
    ) -> int:
        count = subscription.skip_to(last)
        if count:
            log.info(
                "backlog evicted",
                extra={
                    "topic": topic.full_name,
                    "subscription": subscription.name,
                    "quota": quota.value,
                    "entries": count,
                },
            )
        return count

    def _count(self, topic: Topic, quota: Quota) -> None:
        known = self._known.setdefault(topic.full_name, Evictions())
        for counts in (known, self._all):
            if quota is Quota.SIZE:
                counts.by_size += 1
            else:
                counts.by_time += 1

    def _evict_by_size(self, topic: Topic) -> None:
        """Lets the subscriptions that are farthest behind skip messages, one subscription after another,
        until the backlog is at nine tenths of the quota."""
        target = int(topic.policies.storage_quota.limit_bytes * _DOWN_TO)
        self._count(topic, Quota.SIZE)
        while (size := backlog_bytes(topic)) > target:
            subscription = slowest(topic)
            if subscription is None:
                return
            start = subscription.cursor.first_unconsumed()
            last = _end_of_bytes(topic.managed_ledger.ledgers, start, size - target)
            if not self._evict(topic, subscription, last, Quota.SIZE):
                return

    async def _evict_by_time(self, topic: Topic) -> None:
        seconds = topic.policies.age_quota.limit_seconds
        now_ms = self._served.io.clock.wall_ms()
        self._count(topic, Quota.TIME)
        precise = self._reads_ages(topic)
        for subscription in counted(topic):
            start = subscription.cursor.mark_delete
            if precise:
                before_ms = now_ms - int(seconds * _DOWN_TO * 1000)
                last = await last_published_before(topic.managed_ledger, start, before_ms)
            else:
                last = self._end_of_closed(topic, start, now_ms - seconds * 1000)
            if last > start and subscription.cursor.mark_delete >= start and not subscription.closing:
                self._evict(topic, subscription, last, Quota.TIME)

    @staticmethod
    def _end_of_closed(topic: Topic, start: Position, before_ms: int) -> Position:
        """Returns the end of the last ledger that was closed before a time; ``start`` if no ledger after
        ``start`` was closed before this time.
        """
        last = start
        for summary in topic.managed_ledger.ledgers:
            if not summary.closed_ms or summary.closed_ms >= before_ms:
                break
            if summary.entries:
                last = max(last, (summary.ledger_id, summary.entries - 1))
        return last


class StorageGate:
    """Stops publishing while storage is full, so that consumers can drain the backlogs. The storage reports
    when it is full. Producers are treated as if a backlog quota were exceeded, which clients understand: the
    producers are closed, and get an error with the reason when they reconnect.

    A broker has one gate for all its persistent topics.
    """

    def __init__(self, served: ServedTopics) -> None:
        self.refused = 0
        """The number of producers that the gate has refused or closed since the start of the broker."""
        self._served = served
        self._reason = ""
        self._wanted = False
        """Whether the gate was shut after the current closing of producers began. Then producers are closed
        once more, because some may have connected while the gate was open."""
        self._tasks = TaskScope(served.io.loop, "the storage gate", owner_goes_on)
        self._closing: Task[None] | None = None

    @property
    def reason(self) -> str:
        """The reason why no message is stored; empty while there is room."""
        return self._reason

    def shut(self, reason: str) -> None:
        """Closes all producers of persistent topics, and refuses new producers."""
        self._reason = reason
        self._wanted = True
        self._begin_closing()

    def _begin_closing(self) -> None:
        if self._closing is None and self._wanted and self._reason:
            self._wanted = False
            self._closing = self._tasks.answer(self._close_producers())
            self._closing.add_done_callback(self._closed)

    def open(self) -> None:
        """Opens the gate; clients reconnect by themselves."""
        self._reason = ""

    def check_producer(self, topic: AnyTopic) -> None:
        """Checks that the disk has room for the messages of a producer.

        :raises QuotaExceeded: storage is full
        """
        if self._reason and isinstance(topic, Topic):
            self.refused += 1
            topic.hindered(Hindrance.STORAGE_FULL, self._reason)
            raise QuotaExceeded(self._reason)

    def stop(self) -> None:
        self._tasks.cancel()

    async def _close_producers(self) -> None:
        topics = self._served.loaded.values()
        for topic in [one for one in topics if isinstance(one, Topic) and one.producers]:
            if not self._reason:
                return
            if not topic.closing:
                self.refused += len(topic.producers)
                topic.hindered(Hindrance.STORAGE_FULL, self._reason)
                await topic.producers.close_in_order()
            await let_others(self._served.io.loop)

    def _closed(self, task: Task[None]) -> None:
        self._closing = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("closing producers on a full disk failed", exc_info=task.exception())
        self._begin_closing()
