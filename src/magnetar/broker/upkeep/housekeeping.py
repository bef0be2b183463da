"""The broker's periodic work: statistics, retention, expiry, quotas, replicators, inactive topics.

No topic has a timer of its own: each kind of work has one timer, and processes its topics in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

from magnetar.broker.flow.rates import ALL, LatencyHistory, Rate, RateHistory
from magnetar.broker.ownership.peers import Beside
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.any_topic import AnyBaseTopic, AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.shadow import ShadowTopic
from magnetar.broker.upkeep.backlog_quotas import BacklogQuotas, StorageGate
from magnetar.broker.upkeep.expiry import ExpiryCheck
from magnetar.broker.upkeep.inactivity import InactiveSubscriptionsCheck, InactiveTopicsCheck
from magnetar.io.interfaces import Cancellable
from magnetar.io.slices import PAUSE_SECONDS, each
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.managed_ledger.managed_ledger import ManagedLedger

T = TypeVar("T")

_INACTIVE_TOPICS = "inactive topics"
_MIGRATION = "migration"
_LOOP = "loop"
"""The name under which statistics list the delay of the event loop's timers, next to the kinds of slices."""


class Housekeeping:
    def __init__(
        self,
        served: ServedTopics,
        inactive_topics: InactiveTopicsCheck,
        expiry: ExpiryCheck,
        quotas: BacklogQuotas,
        inactive_subscriptions: InactiveSubscriptionsCheck,
    ) -> None:
        self._served = served
        self._expiry = expiry
        self._quotas = quotas
        self._io = served.io
        self._wheel = served.wheel
        self._inactive_topics = inactive_topics
        self._inactive_subscriptions = inactive_subscriptions
        self._timers: dict[str, Cancellable] = {}
        self._tasks = TaskScope(served.io.loop, "housekeeping", owner_goes_on)
        self._running: KeyedTasks[str, None] = KeyedTasks(self._tasks)
        self.cache_hits = Rate()
        self.cache_misses = Rate()
        self.history = RateHistory()
        self.latencies = LatencyHistory()

    def start(self) -> None:
        """Starts all timers; :meth:`stop` ends them."""
        settings = self._served.settings
        self._repeat("statistics", settings.stats_seconds, self._tick)
        self._repeat("retention", settings.retention_check_seconds, self._check_retention)
        self._repeat("deduplication", settings.deduplication_check_seconds, self._save_sequence_ids)
        self._repeat("expiry", settings.expiry_check_seconds, self._check_expiry)
        self._repeat("compaction", settings.compaction_check_seconds, self._check_compaction)
        if settings.backlog_quota_check:
            self._repeat("backlog quotas", settings.backlog_quota_check_seconds, self._check_quotas)
        self._repeat(
            "inactive subscriptions",
            settings.subscription_expiry_check_seconds,
            self._check_inactive_subscriptions,
        )
        if settings.replication.check_seconds:
            self._repeat("replication", settings.replication.check_seconds, self._check_replication)
        if settings.replication.migration_check_seconds:
            self._repeat(_MIGRATION, settings.replication.migration_check_seconds, self._check_migration)
        self._look_for_inactive_topics()

    def _look_for_inactive_topics(self) -> None:
        seconds = self._served.settings.inactive_topics_check_seconds
        self._repeat(_INACTIVE_TOPICS, seconds, self._check_inactive)

    def settings_changed(self, former: BrokerSettings) -> None:
        """Restarts the timer of the check for inactive topics if its interval has changed."""
        running = self._timers.get(_INACTIVE_TOPICS)
        now = self._served.settings
        if running is not None and now.inactive_topics_check_seconds != former.inactive_topics_check_seconds:
            running.cancel()
            self._look_for_inactive_topics()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._tasks.cancel()
        self._quotas.stop()
        self._expiry.stop()

    def longest_slices(self) -> dict[str, float]:
        """Returns the longest time in seconds that each kind of background work blocked the loop, and the
        longest delay of the loop (``loop``)."""
        self._io.slices.note(_LOOP, self._wheel.longest_delay)
        return self._io.slices.longest()

    def _repeat(self, kind: str, seconds: float, work: Callable[[], None]) -> None:
        def run() -> None:
            self._timers[kind] = self._wheel.schedule(seconds, run)
            work()

        self._timers[kind] = self._wheel.schedule(seconds, run)

    def _start_task(self, kind: str, items: Iterable[T], work: Callable[[T], object]) -> None:
        """Starts to process items in slices, unless the previous work of that kind is still in progress."""
        if kind in self._running:
            return
        self._start(kind, each(self._io, kind, items, work, pause=PAUSE_SECONDS))

    def _start(self, kind: str, work: Coroutine[object, None, None]) -> None:
        self._running.start(kind, lambda: work, kind)

    def _tick(self) -> None:
        """Updates the rates of the cache and of the topics that were in use in the last period; the rates of
        a topic that has become idle are updated once more."""
        seconds = self._served.settings.stats_seconds
        cache = self._served.managed_ledgers.cache
        self.cache_hits.messages, self.cache_hits.bytes = cache.hits, cache.hit_bytes
        self.cache_misses.messages, self.cache_misses.bytes = cache.misses, cache.missed_bytes
        self.cache_hits.tick(seconds)
        self.cache_misses.tick(seconds)
        self._io.slices.new_window()
        self._io.slices.note(_LOOP, self._wheel.longest_delay)
        self._wheel.longest_delay = 0.0
        if "statistics" in self._running:
            return
        self.history.new_window()
        self.history.add(ALL, 0.0, 0.0)
        self.latencies.new_window()
        self._start_task("statistics", list(self._served.busy), self._tick_topic)

    def _tick_topic(self, topic: AnyBaseTopic) -> None:
        if topic not in self._served.busy:
            return
        busy = topic.tick(self._served.settings.stats_seconds)
        rates = topic.rate_in.per_second, topic.rate_out.per_second
        self.history.add(ALL, *rates)
        if isinstance(topic, Topic):
            self.latencies.add(topic.full_name, topic.write_latency.tick())
        if busy:
            self.history.add(topic.full_name, *rates)
        else:
            topic.is_busy = False
            del self._served.busy[topic]

    def _check_retention(self) -> None:
        ledgers = list(self._served.managed_ledgers.opened.values())
        self._start_task("retention", ledgers, self._check_ledger)

    @staticmethod
    def _check_ledger(ledger: ManagedLedger) -> None:
        ledger.check_rollover()
        ledger.trimmer.schedule()

    def _save_sequence_ids(self) -> None:
        stored = [topic for topic in self._served.loaded.values() if isinstance(topic, Topic)]
        self._start_task("deduplication", stored, self._snapshot)

    @staticmethod
    def _snapshot(topic: Topic) -> None:
        known, now = topic.deduplication, topic.clock.monotonic()
        if known is not None and known.due(now, topic.policies.deduplication_snapshot_seconds):
            known.snapshot(now)

    def _check_expiry(self) -> None:
        if "expiry" not in self._running:
            self._start("expiry", self._expiry.run())

    def _check_compaction(self) -> None:
        stored = [topic for topic in self._served.loaded.values() if isinstance(topic, Topic)]
        self._start_task("compaction", stored, self._compact)

    @staticmethod
    def _compact(topic: Topic) -> None:
        # A shadow topic reads what its source has compacted.
        if not topic.closing and not topic.fenced and not isinstance(topic, ShadowTopic):
            topic.compaction.start_if_due()

    def _check_quotas(self) -> None:
        if "backlog quotas" not in self._running:
            self._start("backlog quotas", self._quotas.run())

    def _check_inactive_subscriptions(self) -> None:
        kind = "inactive subscriptions"
        if kind not in self._running:
            self._start(kind, self._inactive_subscriptions.run())

    def _check_replication(self) -> None:
        self._start_task("replication", list(self._served.loaded.values()), self._served.replicate)

    def _check_migration(self) -> None:
        if _MIGRATION not in self._running:
            self._start(_MIGRATION, self._migrate())

    async def _migrate(self) -> None:
        if self._served.replication is not None:
            for topic in list(self._served.loaded.values()):
                await self._served.replication.migration.check(topic)

    def _check_inactive(self) -> None:
        if _INACTIVE_TOPICS not in self._running:
            self._start(_INACTIVE_TOPICS, self._inactive_topics.run())


class Upkeep:
    """The periodic work of a broker, and the checks of producers that depend on it."""

    def __init__(self, topics: ServedTopics, beside: Beside | None) -> None:
        """:param beside: the other brokers of the cluster; None in a standalone broker"""
        self.quotas = BacklogQuotas(topics)
        self.storage_gate = StorageGate(topics)
        self.housekeeping = Housekeeping(
            topics,
            InactiveTopicsCheck(topics, beside),
            ExpiryCheck(topics),
            self.quotas,
            InactiveSubscriptionsCheck(topics),
        )

    async def check_producer(self, topic: AnyTopic) -> None:
        """Checks that neither a backlog quota nor a full disk prevents a producer from being created.

        :raises QuotaExceeded: a backlog quota is exceeded, or the disk is full
        :raises QuotaExceededHold: a backlog quota is exceeded, and its policy lets producers wait
        """
        self.storage_gate.check_producer(topic)
        await self.quotas.check_producer(topic)

    def stop(self) -> None:
        self.housekeeping.stop()
        self.storage_gate.stop()
