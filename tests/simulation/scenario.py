"""A seed's story: what is set up, what goes wrong, and what must be true in the end."""

from __future__ import annotations

from random import Random
from typing import Any

from simulated_io import Conditions

from simulation import limits, offloading
from simulation.client import Client, Producer, ProducerPlan
from simulation.compacting import Compacting
from simulation.consumer import Consumer, ConsumerPlan
from simulation.core import CoreClient, CoreConsumer, CoreProducer, CoreTopic
from simulation.damage import flip_and_read
from simulation.ending import Ending
from simulation.faults import Fate, keep_alive, run_faults
from simulation.guard import Guard
from simulation.leading import Leading
from simulation.model import TopicModel
from simulation.reader import Reader
from simulation.trace import Violation
from simulation.transacting import Transacting, transacting
from simulation.world import World

_PATIENCE = 300.0
"""Virtual seconds after the last fault by which all must be delivered."""


class Scenario:
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        random = Random(seed)
        self._random = random
        # Drawn beside the rest, so that the stories of the other seeds stay what they are.
        self._once = Random(f"once {seed}")
        self.limits = limits.deduplicating(limits.draw(random), self._once)
        self.limits = limits.rated(self.limits, Random(f"rates {seed}"))
        self.limits = limits.indebted(self.limits, Random(f"debts {seed}"))
        delays = Random(f"delays {seed}")
        self._delays = delays if delays.random() < 0.35 else None
        if self._delays is not None:
            self.limits = limits.delaying(self.limits, self._delays)
        tiered = offloading.tiered(seed)
        if tiered is not None:
            self.limits = tiered.limits(self.limits)
        guarding = Random(f"guard {seed}")
        guard = Guard(guarding) if guarding.random() < 0.3 else None
        drawn = transacting(seed)
        if drawn is not None:
            self.limits = limits.transactional(self.limits, drawn)
        self.world = World(random, self.limits, guard, tiered=tiered, printing=printing)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.readers: list[Reader] = []
        self.core_producers: list[CoreProducer] = []
        self.core_consumers: list[CoreConsumer] = []
        self._core_clients: list[CoreClient] = []
        self._clients: list[Client] = []
        # Beside the rest, too.
        compacting = Random(f"compacting {seed}")
        self._compacting: Compacting | None = None
        if compacting.random() < 0.25:
            keyed = Client(self.world, "keyed")
            self._compacting = Compacting(keyed, compacting, Random(f"killing {seed}"))
        self._transacting = Transacting(self.world, drawn) if drawn is not None else None
        leading = Random(f"leading {seed}")
        self._leading = Leading(self.world, leading) if leading.random() < 0.2 else None
        ending = Random(f"ending {seed}")
        self._ending: Ending | None = None
        if ending.random() < 0.2:
            self._ending = Ending(Client(self.world, "ending"), ending)

    def run(self) -> World:
        """Runs the story; returns its world, which is closed.

        :raises Violation: something happened that must not
        """
        try:
            with limits.in_effect(self.limits, self.world.tiered):
                self.world.drive(self._story())
                self.world.check()
        finally:
            self.world.close()
        return self.world

    async def _story(self) -> None:
        world, random = self.world, self._random
        if not await world.broker.start():
            raise Violation(f"the broker does not start: {world.broker.start_error}")
        world.network.conditions = self._conditions()
        world.spawn(keep_alive(world, Random(random.getrandbits(64))))
        self._people()
        for producer in self.producers:
            world.spawn(producer.run())
        readers: list[Consumer | Reader] = [*self.consumers, *self.readers]
        for consumer in readers:
            world.spawn(consumer.run())
        core: list[CoreProducer | CoreConsumer] = [*self.core_producers, *self.core_consumers]
        for each in core:
            each.client.spawn(each.run())
        if self._compacting is not None:
            for work in (self._compacting.publish(), self._compacting.compact(), self._compacting.read()):
                world.spawn(work)
        for person in self._leading.people if self._leading is not None else ():
            world.spawn(person.run())
        if self._ending is not None:
            world.spawn(self._ending.publish())
            world.spawn(self._ending.terminate())
        if self._transacting is not None:
            self._transacting.start()
            self._clients += self._transacting.clients
        fate = Fate(world, Random(random.getrandbits(64)), self._clients)
        faults = world.spawn(run_faults(fate, random.randrange(6), random.choice((0.2, 1.0, 3.0))))
        if world.guard is not None:
            await world.finished(world.spawn(world.guard.bans(world, self._clients)))
        if world.model.once:
            await world.finished(world.spawn(self._kills()))
        await world.finished(faults)
        await self._until_done()
        if random.random() < 0.5:
            # What was acknowledged must not come again after a clean stop.
            await world.broker.stop()
            await world.sleep(2.0)
            await self._until_done()
        await self._end()

    async def _kills(self) -> None:
        """Lives in a row that are cut short, while everybody publishes."""
        for _ in range(self._once.randrange(8)):
            await self.world.sleep(self._once.random() ** 2)
            self.world.broker.kill()

    def _conditions(self) -> Conditions:
        random = self._random
        if random.random() < 0.3:
            return Conditions()
        return Conditions(
            latency=random.choice((0.0001, 0.002, 0.1)),
            window=random.choice((2_000, 64 << 10)),
            send_buffer=random.choice((0, 64 << 10)),
            pieces=random.choice((1, 1, 4, 20, 0)),
            refused=random.choice((0.0, 0.1)),
            unanswered=random.choice((0.0, 0.0, 0.05)),
            cut=random.choice((0.0, 0.0, 0.3)),
        )

    def _people(self) -> None:
        random = self._random
        for number in range(random.choice((1, 1, 2))):
            topic = self.world.model.topic(f"persistent://public/default/t{number}")
            waits = random.random() < 0.15
            for index in range(random.randrange(1, 4)):
                self._producer(topic, f"p{number}-{index}", waits=waits)
            if topic.once and not waits:
                self._crowd(topic, f"q{number}")
            for index in range(random.randrange(1, 3)):
                self._subscription(topic, f"s{number}-{index}")
            if random.random() < 0.3:
                self.readers.append(
                    Reader(self._client(), topic, f"r{number}", Random(random.getrandbits(64)))
                )

        if random.random() < 0.4:
            self._core_people()

    def _crowd(self, topic: TopicModel, name: str) -> None:
        """More producers, so fast that commits hold entries of several; each life ends among them."""
        random = self._once
        for index in range(random.randrange(4)):
            plan = ProducerPlan(
                f"{name}-{index}",
                entries=random.randrange(20, 150),
                own_name=True,
                window=random.choice((5, 100)),
                pause=random.choice((0.002, 0.05)),
                largest=20,
                batches=random.random() < 0.5,
                mischief=0.0,
                waits=False,
            )
            self.producers.append(Producer(self._client(), topic, plan, Random(random.getrandbits(64))))

    def _core_people(self) -> None:
        """Users of Magnetar's own client, on a topic that they share with nobody else."""
        random = self._random
        topic = CoreTopic("persistent://public/default/core", once=self.world.model.once)
        for number in range(random.randrange(1, 3)):
            name = f"core{number}"
            self._core_clients.append(CoreClient(self.world, name, Random(random.getrandbits(64))))
        for number in range(random.randrange(1, 3)):
            self.core_producers.append(CoreProducer(random.choice(self._core_clients), topic, f"cp{number}"))
        for number in range(random.randrange(1, 3)):
            client = random.choice(self._core_clients)
            self.core_consumers.append(CoreConsumer(client, topic, f"cc{number}", f"cs{number}"))

    def _client(self) -> Client:
        """A process of its own, or one that has others, too."""
        if self._clients and self._random.random() < 0.4:
            return self._random.choice(self._clients)
        self._clients.append(Client(self.world, f"client{len(self._clients)}"))
        return self._clients[-1]

    def _producer(self, topic: TopicModel, name: str, *, waits: bool) -> None:
        random = self._random
        plan = ProducerPlan(
            name,
            entries=random.randrange(10, 60),
            own_name=random.random() < 0.5,
            window=random.choice((1, 5, 100)),
            pause=random.choice((0.001, 0.05, 0.3)),
            largest=random.choice((20, 200, 8000)),
            batches=random.random() < 0.5,
            mischief=random.choice((0.0, 0.05)),
            waits=waits,
            delays=None if self._delays is None else Random(self._delays.getrandbits(64)),
        )
        self.producers.append(Producer(self._client(), topic, plan, Random(random.getrandbits(64))))

    def _subscription(self, topic: TopicModel, name: str) -> None:
        random = self._random
        shared = random.random() < 0.6
        cumulative = not shared and random.random() < 0.5
        mischief = random.choice((0.0, 0.05, 0.2))
        alternates = random.random() < 0.25
        for index in range(random.randrange(1, 4) if shared and not alternates else 1):
            plan = ConsumerPlan(
                f"{name}-c{index}",
                name,
                shared,
                queue=random.choice((1, 5, 100)),
                cumulative=cumulative,
                receipts=random.choice((0.0, 0.3, 1.0)),
                pause=random.choice((0.0001, 0.01, 0.3)),
                mischief=mischief,
                patience=random.choice((0.01, 0.1, 3.0)),
                alternates=alternates,
                batch_acks=self.limits.settings.acknowledgment_at_batch_index_level_enabled,
            )
            self.consumers.append(Consumer(self._client(), topic, plan, Random(random.getrandbits(64))))

    async def _until_done(self) -> None:
        """Faults are over: everything must come to its end."""
        world = self.world
        world.quiet = True
        world.broker.disk.mend()
        if world.tiered is not None:
            world.tiered.mend()
        if self._delays is not None and world.broker.simulation is not None:
            # Else what waits might wait for a day.
            world.broker.simulation.clock.offset_ms = 0
        world.network.conditions = Conditions()
        if world.guard is not None:
            world.guard.be_patient()
        world.trace.note("all faults are over")
        end = world.loop.time() + _PATIENCE
        left = self._left()
        while left:
            if world.loop.time() > end:
                raise Violation(f"{_PATIENCE} s after the last fault there is still {'; '.join(left)}")
            await world.sleep(1.0)
            left = self._left()

    def _left(self) -> list[str]:
        world = self.world
        service = world.broker.service
        if service is None:
            return ["no broker"]
        left = [str(producer) for producer in self.producers if not producer.done]
        left += [str(producer) for producer in self.core_producers if not producer.done]
        left += [
            str(each)
            for each in (self._compacting, self._leading, self._ending, self._transacting)
            if each is not None and not each.done
        ]
        readers: list[Consumer | Reader | CoreConsumer] = [
            *self.consumers,
            *self.readers,
            *self.core_consumers,
        ]
        left += [str(each) for each in readers if not each.idle]
        left += world.invariants.settled(service)
        for topic in world.model.topics.values():
            for subscription in topic.subscriptions.values():
                missing = [*sorted(subscription.missing()), *subscription.missing_unplaced()]
                if missing:
                    left.append(f"{subscription.name}: {len(missing)} undelivered, {missing[:5]}")
        return left

    async def _end(self) -> None:
        """Everybody goes; the broker stops cleanly."""
        world = self.world
        for reader in self.readers:
            reader.check()
        if self._transacting is not None:
            self._transacting.check()
        readers: list[Consumer | Reader | CoreConsumer] = [
            *self.consumers,
            *self.readers,
            *self.core_consumers,
        ]
        for each in readers:
            each.stopping = True
        await world.sleep(5.0)
        for client in self._core_clients:
            await client.close()
        service = world.broker.service
        if service is not None:
            world.invariants.look(service)
        if not await world.broker.stop():
            raise Violation("the broker ended before its clean stop did")
        world.stay_dead = True
        if self._random.random() < 0.25:
            await flip_and_read(world, Random(self._random.getrandbits(64)))


def run_seed(seed: int, *, printing: bool = False) -> Any:
    """Runs one seed; returns its world."""
    return Scenario(seed, printing=printing).run()
