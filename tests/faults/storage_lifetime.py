"""A broker whose topics live for weeks, and what has to be true of their storage at every moment.

The model knows each entry that was acknowledged to its producer and what subscriptions acknowledged. From
that, policies and time follow which ledgers have to be there, which may be, and which have to be gone; the
rules are those of https://pulsar.apache.org/docs/4.0.x/cookbooks-retention-expiry/.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from simulated_io import SimulatedDisk
from world import World

from magnetar.broker.admin.all import Admin
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.base import TopicSettings
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import EVICTION
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

CHECK_SECONDS = 300.0
"""Between two looks at retention, at expiry, and at quotas."""
DELAY_SECONDS = 2 * CHECK_SECONDS + 60
"""So long after it is past everything at the latest an entry is consumed, or a closed ledger gone: a look
that was under way may miss it, the next does not."""
ROLL_SECONDS = 4 * 3600.0
ENTRIES_OF_A_LEDGER = 10
STORE = EmbeddedSettings(
    segment_bytes=64 << 10,
    first_segment_bytes=16 << 10,
    reserve_bytes=0,
    gc_wait_seconds=60.0,
    minor_compaction_interval=600.0,
    major_compaction_interval=3600.0,
)
SLACK_SEGMENTS = 14
"""Of the store, besides what is wanted over the threshold of compaction: the active segment and the next, two
that are kept, eight small ones that are merged, and one that is read and written."""
OTHER_BYTES = 3 << 20
"""Metadata, with what SQLite keeps beside it."""
LEDGERS = ManagedLedgerSettings(
    max_entries_per_ledger=ENTRIES_OF_A_LEDGER, min_rollover_ms=0, max_rollover_ms=int(ROLL_SECONDS * 1000)
)
_NUMBER = struct.Struct("<q")


@dataclass
class Entry:
    """One that was acknowledged to its producer."""

    position: Position
    size: int
    published_ms: int
    number: int


@dataclass
class TopicModel:
    """What is known of a topic.

    :ivar acknowledged: by subscription, up to which position it was
    """

    name: TopicName
    policies: EffectivePolicies
    entries: list[Entry] = field(default_factory=list)
    acknowledged: dict[str, Position] = field(default_factory=dict)
    closed_ms: dict[int, int] = field(default_factory=dict)
    """Of each ledger that was seen closed."""
    free_since: dict[int, float] = field(default_factory=dict)
    """When the ledgers that nothing keeps were first seen so."""
    stale_since: dict[tuple[str, int], float] = field(default_factory=dict)
    """When a subscription was first seen at an entry that has expired, or that is too much."""


class Lifetime:
    """One life of the process after the other on one disk."""

    def __init__(self, models: list[TopicModel]) -> None:
        self.models = models
        self._numbers = 0
        self._wanted: deque[tuple[float, int]] = deque()
        self._behind_ms = 0
        """How long the lives before this one lasted."""
        self._open(SimulatedDisk(1), first=True)

    def _use(self, model: TopicModel) -> None:
        """Makes the namespace have the topic's policies."""
        policies, quotas = model.policies, {}
        if policies.storage_quota.limit_bytes >= 0:
            quota = policies.storage_quota
            quotas["destination_storage"] = {"limitSize": quota.limit_bytes, "policy": quota.policy}

        def change(record: dict[str, Any]) -> None:
            record["retention_policies"] = policies.retention.json()
            record["message_ttl_in_seconds"] = policies.message_ttl_seconds
            record["backlog_quota_map"] = quotas

        self.world.run(self.broker.policies.change_namespace(model.name.namespace_name, change))

    def _open(self, disk: SimulatedDisk, *, first: bool) -> None:
        self.world = World(disk, settings=LEDGERS, store=STORE)
        # The clock of a new simulation begins where the last one ended.
        self.world.simulation.clock.offset_ms = self._behind_ms
        io = self.world.simulation.io
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(self.world.metadata, "standalone", *urls, 4))
        topic = TopicSettings(DispatchSettings(), batch_index_acks=True)
        known = BrokerSettings(
            "standalone",
            urls[1],
            urls[0],
            topic,
            stats_seconds=3600.0,
            retention_check_seconds=CHECK_SECONDS,
            expiry_check_seconds=CHECK_SECONDS,
            backlog_quota_check_seconds=CHECK_SECONDS,
            inactive_topics_check_seconds=1e9,
        )
        self.broker = BrokerService(io, TimerWheel(io.loop), self.world.metadata, self.world.managed, known)
        self.broker.upkeep.housekeeping.start()
        self.topics: list[Topic] = []
        for model in self.models:
            if first:
                self.world.run(Admin(self.broker).namespaces.create(str(model.name.namespace_name), {}))
                self._use(model)
            self.topics.append(self.world.run(self.broker.topics.load(model.name, create=True)))

    @property
    def now_ms(self) -> int:
        return self.world.simulation.io.clock.wall_ms()

    # What happens

    def subscribe(self, index: int, name: str) -> None:
        topic, model = self.topics[index], self.models[index]
        found = self.world.run(topic.subscriptions.subscribe(name, EARLIEST, {}, durable=True, create=True))
        model.acknowledged.setdefault(name, found.cursor.mark_delete)

    def unsubscribe(self, index: int, name: str) -> None:
        self.world.run(self.topics[index].subscriptions.unsubscribe(name))
        del self.models[index].acknowledged[name]
        self.models[index].stale_since.clear()

    def publish(self, index: int, count: int, size: int) -> None:
        """Stores entries, one after the other, and waits until they are durable."""
        topic, model = self.topics[index], self.models[index]
        for _ in range(count):
            before = topic.managed_ledger.last_confirmed
            published_ms = self.now_ms
            metadata = MessageMetadata(
                producer_name="p", sequence_id=self._numbers, publish_time=published_ms
            )
            entry = build_entry(metadata, _NUMBER.pack(self._numbers) + bytes(size))
            topic.managed_ledger.append(entry, array("q", [0]), array("q", [len(entry)]), 1, len(entry), None)
            for _ in range(200):
                if topic.managed_ledger.last_confirmed > before:
                    break
                self.world.wait(0.01)
            position = topic.managed_ledger.last_confirmed
            assert position > before, "an append never became durable"
            model.entries.append(Entry(position, len(entry), published_ms, self._numbers))
            self._numbers += 1

    def acknowledge(self, index: int, name: str, share: float) -> None:
        """Consumes a share of what a subscription has left."""
        model = self.models[index]
        left = [each for each in model.entries if each.position > model.acknowledged[name]]
        count = int(share * len(left))
        if count:
            subscription = self.topics[index].subscriptions[name]
            assert isinstance(subscription, Subscription)
            position = left[count - 1].position
            subscription.skip_to(position)
            model.acknowledged[name] = max(model.acknowledged[name], position)

    def change(self, index: int, policies: EffectivePolicies) -> None:
        self.check()
        self.models[index].policies = policies
        self.models[index].free_since.clear()
        self.models[index].stale_since.clear()
        self._use(self.models[index])

    def wait(self, seconds: float) -> None:
        """Lets time pass; looks every now and then whether everything is as it must be."""
        while seconds > 0:
            step = min(seconds, 1800.0)
            self.world.wait(step)
            seconds -= step
            self.check()

    def crash(self, *, cleanly: bool) -> None:
        """Ends the process and starts it again; after a crash acknowledgements may be forgotten."""
        self._behind_ms += int(self.world.simulation.loop.time() * 1000)
        if cleanly:
            self.world.run(self.broker.stop())
            disk = self.world.stop()
        else:
            disk = self.world.crash()
        self._open(disk, first=False)
        for model, topic in zip(self.models, self.topics, strict=True):
            model.free_since.clear()
            model.stale_since.clear()
            for name in model.acknowledged:
                recovered = topic.subscriptions[name].cursor.mark_delete
                if not cleanly:
                    model.acknowledged[name] = min(model.acknowledged[name], recovered)
        self._wanted.clear()

    # What must be so

    def check(self) -> None:
        for model, topic in zip(self.models, self.topics, strict=True):
            self._check_subscriptions(model, topic)
            self._check_ledgers(model, topic)
        self._check_disk()

    def _check_subscriptions(self, model: TopicModel, topic: Topic) -> None:
        """What was consumed for a subscription had expired, or was evicted; what has expired is consumed."""
        now, ttl, quota = self.now_ms, model.policies.message_ttl_seconds, model.policies.storage_quota
        evicts = quota.policy == EVICTION and quota.limit_bytes >= 0
        for name, acknowledged in model.acknowledged.items():
            reached = topic.subscriptions[name].cursor.mark_delete
            skipped = [each for each in model.entries if acknowledged < each.position <= reached]
            left = [each for each in model.entries if each.position > max(reached, acknowledged)]
            size = sum(each.size for each in left)
            of_a_ledger = ENTRIES_OF_A_LEDGER * max((each.size for each in model.entries), default=0)
            for each in skipped:
                expired = ttl > 0 and each.published_ms < now - ttl * 1000 + 1
                # Eviction leaves nine tenths of the quota; inside a ledger sizes are estimates.
                evicted = evicts and size >= 0.9 * quota.limit_bytes - of_a_ledger
                assert expired or evicted, (
                    f"{model.name} {name}: {each} was consumed for no reason: ttl {ttl}, quota "
                    f"{quota.limit_bytes}, {size} bytes left, from {acknowledged} to {reached}, now {now}"
                )
            model.acknowledged[name] = max(acknowledged, reached)
            old = ttl > 0 and bool(left) and left[0].published_ms < now - ttl * 1000
            much = evicts and size >= quota.limit_bytes + of_a_ledger
            if old or much:
                what = f"{model.name} {name}: {left[0]}, {size} bytes left, {model.policies}"
                self._within_delay(model.stale_since, (name, left[0].number), True, what)

    def _check_ledgers(self, model: TopicModel, topic: Topic) -> None:
        now = self.now_ms
        listed = {summary.ledger_id: summary for summary in topic.managed_ledger.ledgers}
        by_ledger: dict[int, list[Entry]] = {}
        for each in model.entries:
            by_ledger.setdefault(each.position[0], []).append(each)
        for ledger_id, summary in listed.items():
            if summary.closed_ms:
                model.closed_ms[ledger_id] = summary.closed_ms
        after = sum(each.size for each in model.entries)
        needed: list[Entry] = []
        for ledger_id, entries in sorted(by_ledger.items()):
            after -= sum(each.size for each in entries)
            consumed = all(reached >= entries[-1].position for reached in model.acknowledged.values())
            free = consumed and self._is_past_retention(model, ledger_id, after, now)
            if ledger_id not in listed:
                assert free, (
                    f"{model.name}: ledger {ledger_id} is gone and was needed: {entries[-1]}, closed "
                    f"{model.closed_ms.get(ledger_id)}, {after} bytes behind it, {model.acknowledged}, "
                    f"{model.policies.retention}, now {now}"
                )
                model.free_since.pop(ledger_id, None)
                model.entries = [each for each in model.entries if each.position[0] != ledger_id]
                continue
            assert listed[ledger_id].entries >= len(entries)
            needed += [] if free else entries
            closed = listed[ledger_id].closed_ms
            self._within_delay(
                model.free_since, ledger_id, free and bool(closed), f"{model.name}: ledger {ledger_id}"
            )
            age = now - entries[0].published_ms
            assert closed or age < (ROLL_SECONDS + DELAY_SECONDS) * 1000, (
                f"ledger {ledger_id} is open for {age} ms"
            )
        self._read_one(topic, needed)

    @staticmethod
    def _is_past_retention(model: TopicModel, ledger_id: int, after: int, now: int) -> bool:
        retention = model.policies.retention
        if not retention.minutes or not retention.megabytes:
            return True
        closed = model.closed_ms.get(ledger_id, now)
        old = 0 < retention.minutes * 60_000 < now - closed
        return old or 0 < retention.megabytes << 20 <= after

    def _within_delay(self, since: dict[Any, float], key: object, due: bool, what: str) -> None:
        """What is due may last for the delay, and not longer."""
        if not due:
            since.pop(key, None)
            return
        began = since.setdefault(key, self.now_ms / 1000)
        assert self.now_ms / 1000 - began <= DELAY_SECONDS + 1800, f"{what} is past everything since {began}"

    def _read_one(self, topic: Topic, needed: list[Entry]) -> None:
        """One of the entries that have to be there is the one that was published."""
        if not needed:
            return
        chosen = needed[self._numbers * 7919 % len(needed)]
        run = self.world.run(topic.managed_ledger.reader.read_one(chosen.position))
        assert _NUMBER.unpack_from(parse_entry(run.entry(0)).payload)[0] == chosen.number

    def _check_disk(self) -> None:
        space = self.world.store.space()
        kept = sum(topic.managed_ledger.ledgers.total_size() for topic in self.topics)
        entries = sum(topic.managed_ledger.ledgers.total_entries() for topic in self.topics)
        # Four bytes an entry, and ledgers of cursors; what was deleted a moment ago may still count.
        now = self.now_ms / 1000
        self._wanted.append((now, kept + 64 * entries + (512 << 10)))
        while self._wanted[0][0] < now - STORE.major_compaction_interval - 3600:
            self._wanted.popleft()
        most = max(wanted for _, wanted in self._wanted)
        assert space.wanted_bytes <= most, (space, most)
        bound = most / STORE.major_compaction_threshold + SLACK_SEGMENTS * STORE.segment_bytes
        assert space.stored_bytes <= bound, (space, bound)
        disk = self.world.simulation.disk
        used = disk.total_bytes() - disk.free_bytes()
        assert used <= bound + OTHER_BYTES, (used, bound)


def with_policies(**values: object) -> EffectivePolicies:
    """Pulsar's defaults but for these."""
    return replace(EffectivePolicies(), **values)  # type: ignore[arg-type]
