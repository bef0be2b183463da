"""One seed's story: a broker recovers a topic for so long that it loses it; the next owner creates it anew.

The former owner wakes up when the records of the new topic have the versions of those that it read.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from magnetar.broker.admin.all import Admin
from magnetar.broker.ownership.contract import Asked, Bundle
from magnetar.broker.service import BrokerService
from magnetar.client.exceptions import PulsarException, Timeout
from magnetar.client.message_id import MessageId
from magnetar.errors import BrokerError
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import TopicName
from simulation.brokers.deletions import Deletions
from simulation.brokers.member import Member
from simulation.brokers.world import World
from simulation.replacing import replaced
from simulation.trace import Violation

TOPIC = "persistent://public/default/again"
_NAME = TopicName.parse(TOPIC)
_ROUNDS = 3
_MOST_MESSAGES = 14
_PATIENCE_SECONDS = 0.5
"""In which a bundle is given up, whatever its topics do."""
_SETTLED_SECONDS = 3.0


class Recreations(Deletions):
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        super().__init__(seed, printing=printing)
        self._sleeps = False
        """Whether the next broker that recovers the topic falls asleep."""
        self._asleep: ManagedLedgerFactory | None = None
        self._wakes: Any = None
        self.slept = 0
        """How often a broker slept through the creation of the next topic."""

    def run(self) -> World:
        """:raises Violation: something happened that must not"""
        recover = ManagedLedgerFactory._recover_last
        story = self

        async def drowsy(managed: ManagedLedgerFactory, name: str, record: Any) -> int | None:
            found = await recover(managed, name, record)
            if story._sleeps and name == _NAME.path:
                story._sleeps, story._asleep = False, managed
                wakes = story._wakes = managed._io.loop.create_future()
                await wakes
            return found

        with replaced(ManagedLedgerFactory, "_recover_last", drowsy):
            return super().run()

    async def _rounds(self) -> None:
        for number in range(_ROUNDS):
            self.world.trace.note("round", number)
            await self._stored(1)
            await self._unload()
            former = await self._fall_asleep()
            await self._delete_topic(TOPIC)
            stored = await self._stored(self._random.randrange(1, _MOST_MESSAGES))
            await self._wake(former)
            await self.world.sleep(self._random.random() * _SETTLED_SECONDS)
            await self._unload()
            await self._check(stored)
            await self._delete_topic(TOPIC)

    # What brokers do

    async def _ask_service(self, member: Member, work: Awaitable[Any]) -> BaseException | None:
        async def done(_admin: Admin) -> None:
            await work

        return await self._ask("broker", done, member)

    def _owner(self) -> tuple[Member, Bundle] | None:
        """The broker that has the bundle of the topic."""
        for member in self.world.members:
            service = member.service
            held = service.ownership.held() if service is not None else ()
            for bundle in held:
                if _NAME in bundle:
                    return member, bundle
        return None

    async def _unload(self) -> None:
        while (found := self._owner()) is not None:
            member, bundle = found
            service = _service(member)
            service.topics.unloads.patience = lambda: _PATIENCE_SECONDS
            await self._ask_service(member, service.topics.unloads.unload(bundle))
            await self.world.sleep(0.1)

    async def _fall_asleep(self) -> Member:
        """A broker takes the bundle, falls asleep when it has read the record, and loses the bundle."""
        world = self.world
        self._sleeps = True
        while self._asleep is None:
            member = self._fate.serving()
            assert member is not None
            if self._owner() is None:
                await self._ask_service(member, _take(_service(member)))
            found = self._owner()
            if found is not None:
                member = found[0]
                member.ask(_load(_service(member)))
            await world.sleep(1.0)
        asleep, self._asleep = self._asleep, None
        former = next(each for each in world.members if _service(each).managed_ledgers is asleep)
        world.trace.note(former.name, "sleeps")
        while (found := self._owner()) is not None and found[0] is former:
            await self._unload()
        while self._owner() is None:
            other = self._random.choice([each for each in world.members if each is not former])
            await self._ask_service(other, _take(_service(other)))
        return former

    async def _wake(self, former: Member) -> None:
        self.world.trace.note(former.name, "wakes")
        self._wakes.set_result(None)
        self.slept += 1

    # What clients do

    async def _stored(self, count: int) -> list[bytes]:
        """Bodies that have receipts."""
        stored: list[bytes] = []

        async def work() -> None:
            while not stored:
                try:
                    producer = await self._client.client.create_producer(TOPIC, send_timeout_millis=20_000)
                    for number in range(count):
                        await producer.send(b"%d" % number)
                        stored.append(b"%d" % number)
                    await producer.close()
                except PulsarException as error:
                    self.world.trace.note("not published:", type(error).__name__)
                    await self._client.sleep(0.5)

        await self.world.finished(self._client.spawn(work()))
        return stored

    async def _check(self, stored: list[bytes]) -> None:
        """:raises Violation: something that has a receipt is not in the topic"""
        missing = set(stored)

        async def work() -> None:
            reader: Any = None
            while reader is None:
                try:
                    reader = await self._client.client.create_reader(TOPIC, MessageId.earliest)
                except PulsarException as error:
                    self.world.trace.note("not open:", type(error).__name__)
                    await self._client.sleep(0.5)
            while missing:
                try:
                    missing.discard((await reader.read_next(20_000)).data())
                except Timeout:
                    break
            await reader.close()

        await self.world.finished(self._client.spawn(work()))
        if missing:
            raise Violation(f"{len(missing)} of {len(stored)} messages that have receipts are lost")


def _service(member: Member) -> BrokerService:
    """No broker ends in this story."""
    assert member.service is not None
    return member.service


async def _take(service: BrokerService) -> None:
    await service.lookups.owner_of(_NAME, Asked.TAKE)


async def _load(service: BrokerService) -> None:
    try:
        await service.topics.load(_NAME, create=False)
    except (BrokerError, LedgerError, ManagedLedgerError, MetadataError):
        # Whoever wants it asks again.
        return
