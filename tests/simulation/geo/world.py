"""One seed's world: a standalone broker a cluster, the network between them, and what is published where."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from simulated_io import Conditions, SimulatedNetwork

from simulation import limits
from simulation.broker import BrokerProcess, End, LogWatch
from simulation.core import CoreTopic
from simulation.driven import Driven, logging_to
from simulation.limits import BROKER_PORT, FOREVER, Limits
from simulation.trace import Trace, Violation

NAMESPACE = "geo/orders"
_TENANT = "geo"


@dataclass
class Published:
    """One producer's messages, as far as they concern other clusters."""

    site: str
    topic: str
    wanted: dict[int, frozenset[str]] = field(default_factory=dict)
    """By the number of a message: the other clusters that are to get it."""


class Site:
    """A cluster, seen by its clients."""

    def __init__(self, world: World, name: str, targets: Sequence[str]) -> None:
        """:param targets: clusters that its namespace is replicated to, besides itself"""
        self.world = world
        self.name = name
        self.targets = tuple(targets)
        self.loop = world.loop
        self.network = world.network
        self.trace = world.trace
        self.topics: dict[str, CoreTopic] = {}
        """What its own producers published, by the name of the topic."""
        settings = replace(world.limits.settings, cluster_name=name)
        self.broker = BrokerProcess(
            world.loop,
            world.network,
            replace(world.limits, settings=settings),
            Random(world.random.getrandbits(64)),
            world.trace,
            self._ended,
            host=name,
        )

    def _ended(self, _end: End) -> None:
        """What was acknowledged to producers must be there however a life ends."""

    @property
    def quiet(self) -> bool:
        return self.world.quiet

    @property
    def service_url(self) -> str:
        return f"pulsar://{self.name}:{BROKER_PORT}"

    def steps(self) -> int:
        return self.loop.timeline.steps

    async def sleep(self, seconds: float) -> None:
        await self.world.sleep(seconds)

    async def finished(self, task: Any) -> None:
        await self.world.finished(task)

    async def set_up(self) -> None:
        """What an operator does once."""
        if not await self.broker.start():
            raise Violation(f"{self.name} does not start: {self.broker.start_error!r}")
        broker, simulation = self.broker.broker, self.broker.simulation
        assert broker is not None
        assert simulation is not None
        admin, sites = broker.admin, self.world.names

        async def work() -> None:
            for other in sites:
                if other != self.name:
                    await admin.clusters.create(other, self.world.record_of(other))
            await admin.tenants.create(_TENANT, {"allowedClusters": list(sites)})
            policies = {"replication_clusters": [self.name, *self.targets], **self.world.policies()}
            await admin.namespaces.create(NAMESPACE, policies)

        task = simulation.loop.create_task(work())
        await self.finished(task)
        task.result()

    def topic(self, name: str) -> CoreTopic:
        return self.topics.setdefault(name, CoreTopic(name, once=self.world.once))


class World(Driven):
    """:param random: draws what belongs to the world and to nobody in it"""

    def __init__(self, random: Random, *, printing: bool = False) -> None:
        super().__init__()
        self.random = random
        self.once = random.random() < 0.5
        """Whether the namespace is deduplicated, in all clusters."""
        self.limits = self._limits(Random(random.getrandbits(64)))
        self.trace = Trace(self.loop.time, printing=printing)
        latency = random.choice((0.001, 0.01, 0.1))
        self.network = SimulatedNetwork(self.loop, random.getrandbits(64), Conditions(latency=latency))
        self.network.conditions.pieces = random.choice((1, 1, 3))
        self.network.conditions.window = random.choice((2_000, 64 << 10))
        self.network.conditions.refused = random.choice((0.0, 0.0, 0.1))
        self.quiet = False
        """Nothing goes wrong any more."""
        self.log = LogWatch()
        self.published: dict[str, Published] = {}
        """By the name of the producer."""
        self.names = self._names()
        self.sites = {name: Site(self, name, targets) for name, targets in self._targets().items()}

    def calm(self) -> None:
        """Ends the faults. The network becomes fast, as a broker closes a connection over which a large batch
        takes longer than the keep-alive interval: the client's PONG waits behind the batch."""
        self.quiet = True
        self.network.conditions.window = 64 << 10

    def _names(self) -> Sequence[str]:
        return ("east", "west", "north")[: self.random.choice((2, 3, 3))]

    def policies(self) -> dict[str, Any]:
        """Of the namespace, in all clusters alike."""
        return {
            "deduplicationEnabled": self.once,
            "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        }

    def _limits(self, random: Random) -> Limits:
        """A seed in three runs as shipped; nothing is trimmed, so that all can be read at the end."""
        drawn = limits.draw(random)
        settings = replace(
            drawn.settings,
            replication_start_at="earliest",
            replication_producer_queue_size=random.choice((1, 3, 50, 1000)),
            broker_deduplication_entries_interval=random.choice((1, 5, 1000)),
            broker_delete_inactive_topics_enabled=False,
        )
        return replace(drawn, settings=settings, ledgers=replace(drawn.ledgers, retention=FOREVER))

    def _targets(self) -> Mapping[str, Sequence[str]]:
        """A mesh, a chain or a ring, or what comes; a message goes one hop in all of them."""
        random, names = self.random, self.names
        following = dict(zip(names, (*names[1:], names[0]), strict=True))
        kind = random.choice(("mesh", "mesh", "ring", "chain", "any"))
        self.mesh = kind == "mesh"
        if kind == "mesh":
            return {name: [other for other in names if other != name] for name in names}
        if kind == "ring":
            return {name: [following[name]] for name in names}
        if kind == "chain":
            return {name: [following[name]] * (name != names[-1]) for name in names}
        return {name: [other for other in names if other != name and random.random() < 0.6] for name in names}

    def record_of(self, site: str) -> dict[str, str]:
        return {"serviceUrl": f"http://{site}:8080", "brokerServiceUrl": f"pulsar://{site}:{BROKER_PORT}"}

    def drive(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs all until ``work`` is done.

        :raises Violation: something happened that must not
        """
        with logging_to(self.log), limits.in_effect(self.limits):
            self.loop.run_until(self.loop.create_task(work))
        self.check_log()

    def check_log(self) -> None:
        """:raises Violation: a broker has met an error that no fault explains"""
        for line in (*self.log.unexpected, *self.log.errors):
            raise Violation(f"a broker met an error that it did not expect: {line}")

    def close(self) -> None:
        """Ends everything that is left."""
        for site in self.sites.values():
            if site.broker.simulation is not None:
                site.broker.simulation.abandon()
        self.loop.abandon()
