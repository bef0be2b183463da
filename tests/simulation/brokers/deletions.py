"""One seed's story: an operator deletes topics and a namespace, used or not, and creates them again.

Answers of ZooKeeper get lost, and the broker that was asked is killed at any moment of a deletion.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from simulated_bookkeeper import spread

from magnetar.broker.admin.all import Admin
from magnetar.broker.ownership.peers import PeerRefused
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.client.exceptions import PulsarException
from magnetar.errors import AlreadyExists, BrokerError, HasChildren, TopicNotFound
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import TopicName
from simulation.brokers.faults import Fate, lose_answers
from simulation.brokers.member import Member
from simulation.brokers.world import World
from simulation.core import CoreClient
from simulation.replacing import replaced
from simulation.trace import Violation

NAMESPACE = "public/gone"
FREE = f"non-persistent://{NAMESPACE}/free"
PARTITIONED = f"persistent://{NAMESPACE}/parts"
_PARTITIONS = 3
_POLICIES, _LOCAL = f"/admin/policies/{NAMESPACE}", f"/admin/local-policies/{NAMESPACE}"
_ROUNDS = 3
_END_SECONDS = 900.0

Asked = Callable[[Admin], Awaitable[Any]]


class Deletions:
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        self._random = random = Random(seed)
        self.world = world = World(Random(random.getrandbits(64)), printing=printing, http=True)
        spread(world.servers.zookeeper, seed)
        self._fate = Fate(world, Random(random.getrandbits(64)))
        self._client = CoreClient(world, "client0", Random(random.getrandbits(64)))
        self.refused = self.deleted = 0
        """Deletions, of what is used and of what is not."""

    def run(self) -> World:
        """:raises Violation: something happened that must not"""
        world = self.world
        delete = ServedTopics.delete_topic

        async def watched(served: ServedTopics, topic: AnyTopic) -> None:
            # All deletions of this story are without force.
            if not topic.closing and (topic.producers or topic.subscriptions.consumer_count()):
                world.loop.halt(Violation(f"{topic.full_name} is deleted while clients use it"))
            await delete(served, topic)

        try:
            with replaced(ServedTopics, "delete_topic", watched):
                world.drive(self._story())
        finally:
            for member in world.members:
                member.kill()
            world.loop.abandon()
        return world

    async def _story(self) -> None:
        world = self.world
        await world.set_up()
        for member in world.members:
            member.start()
        while not all(member.serving for member in world.members):
            await world.sleep(0.1)
        keeper, watch = world.spawn(self._fate.keep_alive()), world.spawn(self._watch())
        losing = world.spawn(self._lose_answers())
        await self._rounds()
        world.quiet = True
        await world.finished(losing)
        await self._client.close()
        for member in world.members:
            await member.stop()
        keeper.cancel()
        watch.cancel()

    async def _rounds(self) -> None:
        for number in range(_ROUNDS):
            self.world.trace.note("round", number)
            await self._create()
            await self._delete_what_is_held()
            await self._delete_while_a_producer_comes()
            await self._delete_namespace()

    async def _watch(self) -> None:
        await self.world.sleep(_END_SECONDS)
        raise Violation(f"the story has not ended after {_END_SECONDS} seconds")

    async def _lose_answers(self) -> None:
        while self.world.servers.zookeeper.model.several and not self.world.quiet:
            await self.world.sleep(self._random.expovariate(1 / 5))
            await lose_answers(self._fate)

    # What the operator does

    async def _ask(self, what: str, work: Asked, member: Member | None = None) -> BaseException | None:
        """What a broker answers; a MetadataError, too, when it is killed meanwhile."""
        world = self.world
        while member is None:
            member = self._fate.serving()
            if member is None:
                await world.sleep(0.5)
        if member.broker is None or member.service is None:
            return MetadataError("there is no such broker now")
        lives, admin = member.lives, member.broker.admin
        asked = member.ask(_outcome(work(admin)))
        while not asked.done() and member.lives == lives and member.simulation is not None:
            await world.sleep(0.01)
        found = asked.result() if asked.done() and not asked.cancelled() else MetadataError("killed")
        world.trace.note(what, "at", member.name, repr(found))
        assert found is None or isinstance(found, BaseException)
        return found

    async def _until(self, what: str, work: Asked, *good: type[BaseException]) -> None:
        """Asks one broker after the other until one says that it is done, or was before."""
        while True:
            found = await self._ask(what, work)
            if found is None or isinstance(found, good):
                return
            await self.world.sleep(1.0)

    async def _create(self) -> None:
        bundles = self._random.randrange(1, 6)
        given = {"bundles": {"numBundles": bundles}}
        while not self._exists():
            # A broker whose server of ZooKeeper lags behind may say that it is still there.
            await self._until(
                "create", lambda admin: admin.namespaces.create(NAMESPACE, given), AlreadyExists
            )
            await self.world.sleep(0.1)
        if _LOCAL not in self._nodes():
            raise Violation("a new namespace has lost its local policies")
        own, local = (json.loads(self._nodes()[path].value) for path in (_POLICIES, _LOCAL))
        if local != {"bundles": own["bundles"], "migrated": False}:
            raise Violation(f"a new namespace of {bundles} bundles inherits {local}")
        await self._until(
            "mark",
            lambda admin: admin.namespaces.set_local_policy(NAMESPACE, "namespaceAntiAffinityGroup", "old"),
        )

    def _nodes(self) -> Mapping[str, Any]:
        """Of ZooKeeper, as they are now."""
        nodes: Mapping[str, Any] = self.world.servers.zookeeper.model.nodes
        return nodes

    def _exists(self) -> bool:
        return _POLICIES in self._nodes()

    async def _delete_what_is_held(self) -> None:
        """A namespace with a non-persistent topic that a consumer of any broker uses."""
        consumer = await self._opened(lambda client: client.subscribe(FREE, "s"))
        for _ in range(3):
            holder = self._holder()
            found = await self._ask(
                "delete held", lambda admin: admin.namespaces.delete(NAMESPACE, force=False)
            )
            self.refused += found is not None
            if found is None and holder is not None and self._still(*holder):
                raise Violation(
                    f"the namespace was deleted while {holder[0].name} served {FREE} to a consumer"
                )
        await self._closed(consumer)
        await self._delete_topic(FREE)

    async def _delete_topic(self, name: str) -> None:
        def work(admin: Admin) -> Awaitable[Any]:
            here = partial(admin.topics.delete, name, force=False)
            return admin.partitions.at_owner(TopicName.parse(name), here, "DELETE")

        await self._until("delete topic", work, TopicNotFound, PeerRefused)

    def _holder(self) -> tuple[Member, int] | None:
        """The broker that serves the topic to its consumer, and which of its lives it is."""
        for member in self.world.members:
            topic = member.service.topics.loaded.get(FREE) if member.service is not None else None
            if topic is not None and topic.subscriptions.consumer_count() and not topic.fenced:
                return member, member.lives
        return None

    def _still(self, member: Member, lives: int) -> bool:
        """Whether it has run on with its session: what it served was its own all the time."""
        alive = member.lives == lives and member.service is not None
        return alive and member.session in self.world.servers.zookeeper.model.sessions

    async def _delete_while_a_producer_comes(self) -> None:
        work: Asked = lambda admin: admin.partitions.create(PARTITIONED, _PARTITIONS, {})  # noqa: E731
        await self._until("partitions", work, AlreadyExists)
        await self._until(
            "missing", lambda admin: admin.partitions.create_missing(PARTITIONED), TopicNotFound
        )
        pause = self._random.choice((0.0, 0.02, 0.1, 0.3)) * self._random.random()
        deleting = self.world.spawn(self._ask("delete", self._delete_partitions))
        await self.world.sleep(pause)
        partition = f"{PARTITIONED}-partition-{self._random.randrange(_PARTITIONS)}"
        coming = self._client.spawn(self._published(partition))
        await self.world.finished(deleting)
        await self.world.finished(coming)
        await self._until("delete", self._delete_partitions, TopicNotFound)

    @staticmethod
    def _delete_partitions(admin: Admin) -> Awaitable[None]:
        return admin.partitions.delete(PARTITIONED, force=False)

    async def _published(self, partition: str) -> None:
        """One message, if its partition is there and stays."""
        try:
            producer = await self._client.client.create_producer(partition, send_timeout_millis=5000)
            await producer.send(b"x")
            await self._client.sleep(self._random.random())
            await producer.close()
        except PulsarException as error:
            self.world.trace.note("not published:", type(error).__name__)

    async def _delete_namespace(self) -> None:
        """Whoever deletes it may be killed; it is gone in the end."""
        while True:
            member = self._fate.serving()
            if member is None:
                await self.world.sleep(0.5)
                continue
            if self._random.random() < 0.6:
                self.world.spawn(self._kill_soon(member, member.lives))
            found = await self._ask(
                "delete namespace", lambda admin: admin.namespaces.delete(NAMESPACE, force=False), member
            )
            if not self._exists():
                break
            await self.world.sleep(2.0)
            if isinstance(found, HasChildren):
                # Of a producer that came when its topic was gone, or of a server that lagged behind.
                await self._until("delete", self._delete_partitions, TopicNotFound)
                for index in range(_PARTITIONS):
                    await self._delete_topic(f"{PARTITIONED}-partition-{index}")
        self.deleted += 1

    async def _kill_soon(self, member: Member, lives: int) -> None:
        await self.world.sleep(self._random.choice((0.05, 0.3, 1.5)) * self._random.random())
        if member.lives == lives:
            member.kill()

    # What clients do

    async def _opened(self, open_it: Callable[[Any], Awaitable[Any]]) -> Any:
        found: list[Any] = []

        async def work() -> None:
            while not found:
                try:
                    found.append(await open_it(self._client.client))
                except PulsarException as error:
                    self.world.trace.note("not open:", type(error).__name__)
                    await self._client.sleep(0.5)

        await self.world.finished(self._client.spawn(work()))
        return found[0]

    async def _closed(self, consumer: Any) -> None:
        async def work() -> None:
            try:
                await consumer.close()
            except PulsarException as error:
                self.world.trace.note("closed with", type(error).__name__)

        await self.world.finished(self._client.spawn(work()))


async def _outcome(work: Awaitable[Any]) -> BaseException | None:
    try:
        await work
    except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
        return error
    return None
