"""One seed's story of a topic and its shadows, which different brokers of a cluster serve most of the time.

In each round a few messages are published while brokers, servers and connections between brokers fail, topics
and bundles are unloaded, and shadows lose their place in the source's list. Then everything is quiet, and
each shadow has to deliver what its source has, up to the last message, although nothing else is published. At
the end the source is terminated or deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

from magnetar.broker.admin.all import Admin
from magnetar.broker.ownership.contract import Asked, Bundle
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.persistent import Topic
from magnetar.client.message_id import MessageId
from magnetar.errors import BrokerError
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.records import ROOT, decode_managed_ledger
from magnetar.metadata.interface import MetadataError
from magnetar.naming.replicators import SHADOW_SOURCE
from magnetar.naming.topic_name import TopicName
from simulation.brokers import faults
from simulation.brokers.faults import Fate, Fault
from simulation.brokers.member import Member
from simulation.brokers.world import World
from simulation.core import CoreClient, CoreProducer, CoreTopic
from simulation.trace import Violation
from simulation.watcher import SUBSCRIPTION, Id, Watcher, read_topic

SOURCE = "persistent://public/default/source"
SHADOWS = ("persistent://public/default/shadow-0", "persistent://public/default/shadow-1")
"""The source and its shadows are in different bundles."""
_SEVERAL = 0.7
"""Of the seeds have a ZooKeeper of several servers, some of which hear of changes late."""
_RECREATED = 0.2
"""Of the rounds begin with a new source."""
_ROUNDS = (1, 4)
_TROUBLED_SECONDS = (1.0, 12.0)
_MOST_MESSAGES = 30
_BOUND_SECONDS = 200.0
"""After the last fault of a round each shadow has delivered what its source has within this time."""
_END_SECONDS = 1500.0
_MOST_STEPS = 20_000
"""In one instant of virtual time."""

Asks = Callable[[Admin], Awaitable[Any]]


class ShadowWorld(World):
    """Ledgers are short. The source keeps everything, or only what its consumer has not acknowledged."""

    trims = False

    def _settings(self, quorums: tuple[int, int, int]) -> dict[str, str]:
        random = self.random
        self.trims = random.random() < 0.5
        kept = "0" if self.trims else "-1"
        return super()._settings(quorums) | {
            # A consumer of a shadow that was just deleted would otherwise create an ordinary topic.
            "allowAutoTopicCreation": "false",
            "brokerDeleteInactiveTopicsEnabled": "false",
            "defaultRetentionTimeInMinutes": kept,
            "defaultRetentionSizeInMB": kept,
            "managedLedgerMaxEntriesPerLedger": random.choice(("1", "2", "5", "30")),
            "replicationProducerQueueSize": random.choice(("1", "3", "1000")),
            "retentionCheckIntervalInSeconds": "1",
        }


class Publisher(CoreProducer):
    """Publishes a few messages; whatever happens, each gets a receipt."""

    def __init__(self, client: CoreClient, topic: CoreTopic, name: str) -> None:
        super().__init__(client, topic, name)
        self._count = client.random.randrange(1, _MOST_MESSAGES)
        self._pause = client.random.choice((0.0005, 0.05, 0.5))
        self._largest = client.random.choice((20, 300))
        self._options["batching_enabled"] = client.random.random() < 0.2


class ClusterShadows:
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        self._random = random = Random(f"shadows of brokers {seed}")
        self.world = world = ShadowWorld(Random(random.getrandbits(64)), printing=printing)
        if random.random() < _SEVERAL:
            world.servers.zookeeper.model.spread(Random(random.getrandbits(64)))
        self._fate = Fate(world, Random(random.getrandbits(64)))
        self._client = CoreClient(world, "client0", Random(random.getrandbits(64)))
        self.topics = SHADOWS[: random.choice((1, 2))]
        self._source = CoreTopic(SOURCE, once=world.deduplicates)
        contents: dict[Id, bytes] = {}
        own = (SOURCE,) if world.trims or random.random() < 0.5 else ()
        self._watchers = [
            Watcher(world, topic, contents, Random(random.getrandbits(64))) for topic in (*self.topics, *own)
        ]
        self._watching: list[Any] = []
        self._published = 0
        self._moved = 0.0, 0
        """When time went on last, and the number of steps until then."""
        self.delivered = 0
        """Messages that shadows have delivered."""

    def run(self) -> World:
        """:raises Violation: something happened that must not"""
        world = self.world
        world.loop.timeline.after_step = self._after_step
        try:
            world.drive(self._story())
        finally:
            world.loop.timeline.after_step = None
            for member in world.members:
                member.kill()
            world.loop.abandon()
        return world

    def _after_step(self) -> None:
        """:raises Violation: a broker does one thing after another, and time stands still"""
        now, steps = self.world.loop.time(), self.world.steps()
        if now > self._moved[0]:
            self._moved = now, steps
        elif steps - self._moved[1] > _MOST_STEPS:
            raise Violation(f"a broker is busy without end: {_MOST_STEPS} steps at {now:.3f}")

    async def _story(self) -> None:
        world, random = self.world, self._random
        await world.set_up()
        for member in world.members:
            member.start()
        keeper, watch = world.spawn(self._fate.keep_alive()), world.spawn(self._watch())
        await self._make_all()
        self._watch_all()
        for number in range(random.randint(*_ROUNDS)):
            if random.random() < _RECREATED:
                await self._recreate()
            await self._round(number)
        await self._compare()
        await self._end()
        await self._stop_watching()
        await self._client.close()
        for member in world.members:
            await member.stop()
        keeper.cancel()
        watch.cancel()

    def _watch_all(self) -> None:
        for each in self._watchers:
            each.done = False
            self._watching.append(self.world.spawn(each.consume()))

    async def _stop_watching(self) -> None:
        for each in self._watchers:
            each.done = True
        for task in self._watching:
            await self.world.finished(task)
        self._watching.clear()

    async def _watch(self) -> None:
        await self.world.sleep(_END_SECONDS)
        raise Violation(f"the story has not ended after {_END_SECONDS} seconds")

    async def _round(self, number: int) -> None:
        world, random = self.world, self._random
        world.quiet = False
        world.trace.note("round", number)
        publishing = self._publish()
        until = world.loop.time() + random.uniform(*_TROUBLED_SECONDS)
        pause = random.choice((0.3, 1.0, 3.0))
        likely = self._faults()
        under_way = []
        while world.loop.time() < until:
            fault = random.choices(list(likely), list(likely.values()))[0]
            under_way.append(world.spawn(fault(self._fate)))
            await world.sleep(random.expovariate(1 / pause))
        world.quiet = True
        world.trace.note("quiet")
        for task in (*under_way, publishing):
            await world.finished(task)
        await self._make_all()
        await self._until_all_is_delivered()

    def _publish(self) -> Any:
        self._published += 1
        publisher = Publisher(self._client, self._source, f"producer{self._published}")
        return self._client.spawn(publisher.run())

    # What an operator does

    def _owner(self, topic: str) -> tuple[Member, BrokerService, Bundle] | None:
        name = TopicName.parse(topic)
        for member in self.world.members:
            service = member.service
            if service is None or member.paused:
                continue
            for bundle in service.ownership.held():
                if name in bundle:
                    return member, service, bundle
        return None

    async def _ask_owner(self, topic: str, work: Asks) -> bool:
        """Asks the broker of a topic, if there is one; returns whether it has done the work. Otherwise
        another broker takes the topic."""
        found = self._owner(topic)
        if found is not None:
            member = found[0]
            assert member.broker is not None
            return await self._ask(member, work(member.broker.admin))
        other = self._fate.serving()
        if other is not None:
            assert other.service is not None
            await self._ask(other, other.service.lookups.owner_of(TopicName.parse(topic), Asked.TAKE))
        return False

    async def _ask(self, member: Member, work: Awaitable[Any]) -> bool:
        done: list[bool] = []

        async def asked() -> None:
            try:
                await work
            except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
                self.world.trace.note("operator:", member.name, repr(error))
            else:
                done.append(True)

        await self._fate.through(member, asked())
        return bool(done)

    async def _make_all(self) -> None:
        """Creates what is missing of the source and its shadows, and lists all shadows in the source."""
        for topic in (SOURCE, *self.topics):
            await self._make(topic)
        await self._list(self.topics)

    async def _make(self, topic: str) -> None:
        async def make(admin: Admin) -> None:
            if not await admin.topics._broker.topics.creation.exists(TopicName.parse(topic)):
                await admin.topics.create(topic, {} if topic == SOURCE else {SHADOW_SOURCE: SOURCE})

        while not await self._ask_owner(topic, make):
            await self.world.sleep(0.5)

    async def _list(self, topics: tuple[str, ...]) -> None:
        def set_list(admin: Admin) -> Awaitable[None]:
            return admin.topic_policies.set_policy(
                SOURCE, {"shadowTopics": list(topics) or None}, everywhere=False, field="shadowTopics"
            )

        while not await self._ask_owner(SOURCE, set_list):
            await self.world.sleep(0.5)

    # What goes wrong

    def _faults(self) -> Mapping[Fault, int]:
        several = self.world.servers.zookeeper.model.several
        return {
            faults.kill: 4,
            faults.stop: 2,
            faults.pause: 2,
            faults.cut_off_metadata: 4,
            faults.cut_off_bookie: 2,
            faults.break_connections: 3,
            faults.crash_bookie: 2,
            faults.slow_bookie: 1,
            faults.crash_zookeeper: 1,
            faults.lose_answers: 2 if several else 0,
            self._cut_brokers: 6,
            self._move: 8,
            self._unload: 8,
            self._unlist: 1,
            self._delete_shadow: 1,
        }

    def _some(self, fate: Fate) -> str:
        return fate.random.choice((SOURCE, *self.topics))

    async def _cut_brokers(self, fate: Fate) -> None:
        """Two brokers do not reach each other."""
        await faults.cut_off(fate, fate.somebody().name, fate.somebody().name)

    async def _move(self, fate: Fate) -> None:
        """The bundle of a topic is given up, towards somebody or nobody."""
        found = self._owner(self._some(fate))
        if found is not None:
            member, service, bundle = found
            towards = fate.random.choice((None, fate.somebody().name + ":8080"))
            self.world.trace.note("move", member.name, bundle, towards)
            await self._ask(member, service.topics.unloads.unload(bundle, towards))

    async def _unload(self, fate: Fate) -> None:
        topic = self._some(fate)
        found = self._owner(topic)
        if found is not None:
            member, service, _bundle = found
            loaded = service.topics.loaded.get(topic)
            if loaded is not None:
                self.world.trace.note("unload", topic)
                await self._ask(member, service.topics.unload_topic(loaded))

    async def _unlist(self, fate: Fate) -> None:
        """The source does not list one of its shadows for a while."""
        left = tuple(topic for topic in self.topics if fate.random.random() < 0.5)
        self.world.trace.note("list", left)
        await self._list(left)
        await fate.while_it_lasts(4)

    async def _delete_shadow(self, fate: Fate) -> None:
        """A shadow is deleted, and created again after a while."""
        topic = fate.random.choice(self.topics)
        self.world.trace.note("delete", topic)
        await self._ask_owner(topic, lambda admin: admin.topics.delete(topic, force=True))
        await fate.while_it_lasts(4)
        await self._make(topic)

    # What must be so

    async def _until(self, what: str, left: Callable[[], object]) -> None:
        """Waits until ``left`` returns nothing.

        :raises Violation: something is left after the bound
        """
        world = self.world
        until = world.loop.time() + _BOUND_SECONDS
        while found := left():
            if world.loop.time() > until:
                raise Violation(f"{what} within {_BOUND_SECONDS} seconds after the last fault: {found}")
            await world.sleep(0.5)

    async def _until_all_is_delivered(self) -> None:
        for watcher in self._watchers:
            await self._until(
                f"{watcher.topic} does not deliver all", lambda each=watcher: self._missing(each)
            )
        for topic in self.topics:
            await self._until(f"{topic} is not as its source", lambda each=topic: self._differs(each))

    def _missing(self, watcher: Watcher) -> list[Any]:
        """Messages with a receipt that are still in the source and were not delivered."""
        kept = self._kept()
        return [
            (key, place)
            for key, place in self._source.stored.items()
            if self._source.sent[key][0] not in watcher.bodies and self._is_kept(place, kept)
        ][:5]

    def _is_kept(self, place: MessageId, kept: set[int]) -> bool:
        # A duplicate has no position: its ledger may be gone.
        return place.ledger_id() in kept if place.ledger_id() >= 0 else not self.world.trims

    def _kept(self) -> set[int]:
        """The ledgers of the source, according to the metadata."""
        path = f"{ROOT}/{TopicName.parse(SOURCE).path}"
        node = self.world.servers.zookeeper.model.nodes.get(path)
        return (
            set()
            if node is None
            else {each.ledger_id for each in decode_managed_ledger(node.value, path).ledgers}
        )

    def _loaded(self, topic: str) -> Topic | None:
        found = self._owner(topic)
        loaded = found[1].topics.loaded.get(topic) if found is not None else None
        return loaded if isinstance(loaded, Topic) and not (loaded.closing or loaded.fenced) else None

    def _differs(self, topic: str) -> str:
        """Returns how a shadow differs from its source, or what its subscription or replicator has left."""
        source, shadow = self._loaded(SOURCE), self._loaded(topic)
        if source is None or shadow is None:
            return "not loaded"
        there, here = (
            [(each.ledger_id, each.entries) for each in loaded.managed_ledger.ledgers]
            for loaded in (source, shadow)
        )
        if there != here:
            return f"it has {here}, and the source {there}"
        ends = source.managed_ledger.terminated, shadow.managed_ledger.terminated
        if ends[0] != ends[1]:
            return f"the source is terminated at {ends[0]}, and it at {ends[1]}"
        return self._unannounced(source, topic) or self._unfinished(shadow)

    def _unannounced(self, source: Topic, topic: str) -> str:
        replicator = source.shadow_replicators.get(topic)
        if replicator is None:
            return "the source has no replicator for it"
        if replicator.backlog() or replicator.hindrance:
            return f"the replicator has a backlog of {replicator.backlog()}: {replicator.hindrance}"
        return ""

    def _unfinished(self, shadow: Topic) -> str:
        cursor = shadow.subscriptions[SUBSCRIPTION].cursor if SUBSCRIPTION in shadow.subscriptions else None
        if cursor is None:
            return "it has no subscription"
        if cursor.backlog() or cursor.has_more():
            return f"it has a backlog of {cursor.backlog()} behind {cursor.mark_delete}"
        return ""

    async def _compare(self) -> None:
        """:raises Violation: a reader finds other messages in a shadow than in its source"""
        for watcher in self._watchers:
            if watcher.topic in self.topics:
                await self._compare_one(watcher.topic)
                self.delivered += len(watcher.got)

    async def _compare_one(self, topic: str) -> None:
        until = self.world.loop.time() + _BOUND_SECONDS
        while True:
            there, found = await read_topic(self.world, SOURCE), await read_topic(self.world, topic)
            if there == found:
                return
            # The source may have been trimmed between the two.
            if self.world.loop.time() > until:
                different = sorted({place for place, _body in there.items() ^ found.items()})
                raise Violation(
                    f"{topic} has {len(found)} messages, its source {len(there)}: {different[:5]}"
                )
            await self.world.sleep(1.0)

    async def _end(self) -> None:
        """The source is terminated while brokers fail, or deleted while its shadows have messages left."""
        if self._random.random() < 0.4:
            self.world.quiet = False
            faults_of_end = (self._cut_brokers, self._cut_brokers, self._move, self._unload, faults.kill)
            under_way = [self.world.spawn(each(self._fate)) for each in self._random.sample(faults_of_end, 2)]
            publishing = self._publish()
            await self.world.sleep(self._random.random())
            await self.world.finished(publishing)
            await self._terminate()
            self.world.quiet = True
            for task in under_way:
                await self.world.finished(task)
            await self._until_all_end()
            return
        await self._stop_watching()
        await self.world.finished(self._publish())
        await self._delete_source()
        self._watch_all()
        await self._until_all_end()

    async def _recreate(self) -> None:
        """The source is deleted, perhaps terminated before, and created again."""
        if self._random.random() < 0.3:
            await self._terminate()
        await self._delete_source()
        await self._until_all_end()
        await self._make_all()

    async def _terminate(self) -> None:
        self.world.trace.note("terminate")
        while not await self._ask_owner(SOURCE, lambda admin: admin.topics.terminate(SOURCE)):
            await self.world.sleep(0.5)

    async def _delete_source(self) -> None:
        self.world.trace.note("delete source")
        while not await self._ask_owner(SOURCE, lambda admin: admin.topics.delete(SOURCE, force=True)):
            await self.world.sleep(0.5)
        self._source = CoreTopic(SOURCE, once=self.world.deduplicates)

    async def _until_all_end(self) -> None:
        for topic in self.topics:
            await self._until(f"{topic} does not end with its source", lambda each=topic: self._goes_on(each))

    def _goes_on(self, topic: str) -> str:
        shadow = self._loaded(topic)
        if shadow is None:
            return "not loaded"
        if shadow.managed_ledger.ledgers.last() is not None and not shadow.terminated:
            return "it is neither empty nor terminated"
        source = self._loaded(SOURCE)
        return (self._unannounced(source, topic) if source is not None else "") or self._unfinished(shadow)
