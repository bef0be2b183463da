"""Several brokers' sessions with one model of a ZooKeeper server, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any, TypeVar

from model_zookeeper import ModelZooKeeper
from simulated_io import Simulation, simulated_io

from magnetar.broker.ownership.brokers import BROKERS, LiveBrokers
from magnetar.io.interfaces import Io
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

T = TypeVar("T")

TIMEOUT = 6.0


class SeveralSessions:
    def __init__(self) -> None:
        self.simulation: Simulation = simulated_io(1)
        self.loop = self.simulation.loop
        self.io: Io = self.simulation.io
        self.server = ModelZooKeeper(self.loop)
        self.run(self.simulation.host.listen("", 2181, self.server.factory))
        self.stores: list[ZooKeeperMetadataStore] = []

    def run(self, work: Awaitable[T]) -> T:
        return self.loop.run_until(work)

    def session(self) -> ResolvingStore:
        """One more; what is made by it goes with it."""
        outside = Outside(self.io.loop, self.io.clock, self.io.randomness, self.io.network)
        address = ensemble_address("zk:localhost:2181/root")
        settings = SessionSettings(int(TIMEOUT * 1000))
        store = self.run(ZooKeeperMetadataStore.open_store(outside, address, settings, wait_seconds=10))
        self.stores.append(store)
        return ResolvingStore(store, self.io.loop)

    def expire(self, number: int) -> None:
        """Ends the session that was made as the given one, at the server."""
        self.server.end_session(self.server.sessions[self.stores[number].session.session_id])

    def live_brokers(self, store: ResolvingStore) -> LiveBrokers:
        found = LiveBrokers(self.io, store)
        self.run(found.start())
        return found

    def register(self, store: ResolvingStore, name: str, **fields: Any) -> None:
        record = {
            "webServiceUrl": f"http://{name}",
            "pulsarServiceUrl": f"pulsar://{name.partition(':')[0]}:6650",
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
            **fields,
        }
        self.run(store.put(f"{BROKERS}/{name}", json.dumps(record).encode(), ephemeral=True))
        self.loop.run_for(0.1)
