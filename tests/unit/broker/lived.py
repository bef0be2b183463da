"""A simulated broker with topics whose entries have publish times; a week passes in seconds."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

from simulated_io import SimulatedDisk
from world import World

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.ownership.contract import Ownership
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.replication.clusters import Reach
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.persistent import Topic, TopicSettings
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.managed_ledger.tiered_storage import OpenDriver
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

NAME = TopicName.parse("persistent://public/default/t")
ROLLING = ManagedLedgerSettings(max_entries_per_ledger=10, min_rollover_ms=0)


class Lived:
    """:param policies: what counts for all topics
    :param open_driver: makes drivers of tiered storage
    """

    def __init__(
        self,
        policies: EffectivePolicies,
        ledgers: ManagedLedgerSettings = ROLLING,
        ownership: Ownership | None = None,
        disk: SimulatedDisk | None = None,
        topic: TopicSettings | None = None,
        reach: Reach | None = None,
        open_driver: OpenDriver | None = None,
        **settings: Any,
    ) -> None:
        self.world = World(disk, settings=ledgers, open_driver=open_driver)
        io = self.world.simulation.io
        self.clock = io.clock
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(self.world.metadata, "standalone", *urls, 4))
        topic = topic or TopicSettings(DispatchSettings(), batch_index_acks=True)
        known = BrokerSettings("standalone", urls[1], urls[0], topic, policies=policies, **settings)
        self.broker = BrokerService(
            io,
            TimerWheel(io.loop),
            self.world.metadata,
            self.world.managed,
            known,
            ownership=(lambda _own: ownership) if ownership is not None else None,
            reach=reach,
        )
        self.broker.upkeep.housekeeping.start()

    def topic(self, name: TopicName = NAME) -> Topic:
        return self.world.run(self.broker.topics.load(name, create=True))

    def subscribe(self, topic: Topic, name: str = "s") -> Subscription:
        return self.world.run(topic.subscriptions.subscribe(name, EARLIEST, {}, durable=True, create=True))

    def publish(self, topic: Topic, count: int, *, batch: int = 0, early_ms: int = 0, size: int = 10) -> None:
        """Stores entries; ``early_ms``: their producer's clock is that much behind."""
        metadata = MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=self.clock.wall_ms() - early_ms
        )
        if batch:
            metadata.num_messages_in_batch = batch
        entry = build_entry(metadata, bytes(size))
        for _ in range(count):
            topic.managed_ledger.append(entry, array("q", [0]), array("q", [len(entry)]), 1, len(entry), None)
        self.world.wait(0.5)

    def use(self, topic: Topic, **changes: Any) -> None:
        """Other policies for one topic, from now on."""
        topic.apply_policies(replace(topic.policies, **changes))
