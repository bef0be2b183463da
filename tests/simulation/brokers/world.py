"""One seed's world: servers, brokers, clients, and the loop that drives them all."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from random import Random
from typing import Any

from simulated_bookkeeper import ROOT, SimulatedServers
from simulated_io import (
    Conditions,
    ProcessStopped,
    SimulatedNetwork,
    simulated_io,
)
from simulated_io.loop import SimulatedClock

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, decoded, ledger_path
from magnetar.ledger.interface import LedgerState
from magnetar.metadata.zookeeper.address import EnsembleAddress, ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore
from magnetar.server.cluster_setup import ClusterSetup, set_up_cluster
from simulation.brokers.member import PORT, Member
from simulation.core import CoreTopic
from simulation.driven import Driven, logging_to
from simulation.trace import Trace, Violation

CLUSTER = "simulated"
SESSION_SECONDS = 6.0
_QUORUMS = ((3, 3, 2), (3, 2, 2), (2, 2, 2), (1, 1, 1))


class World(Driven):
    """:param random: draws what belongs to the world and to nobody in it

    :param http: brokers serve HTTP
    """

    def __init__(
        self, random: Random, brokers: int = 3, *, printing: bool = False, http: bool = False
    ) -> None:
        super().__init__()
        self.random = random
        self.clock = SimulatedClock(self.loop)
        self.trace = Trace(self.loop.time, printing=printing)
        latency = random.choice((0.001, 0.005, 0.03))
        self.network = SimulatedNetwork(self.loop, random.getrandbits(32), Conditions(latency=latency))
        self.network.conditions.pieces = random.choice((1, 1, 3))
        self.network.conditions.refused = random.choice((0.0, 0.0, 0.05))
        quorums = random.choice(_QUORUMS)
        self.servers = SimulatedServers(self.network, quorums[0] + random.randrange(1, 3))
        for bookie in self.servers.bookies:
            self._give_journal(bookie, Random(random.getrandbits(32)))
        self.deduplicates = random.random() < 0.3
        settings = self._settings(quorums)
        self.members = [
            Member(
                self.loop,
                self.network,
                f"broker{number}",
                settings,
                Random(random.getrandbits(64)),
                self.trace,
                self._stops,
                http=http,
            )
            for number in range(1, brokers + 1)
        ]
        self.topics: list[CoreTopic] = []
        self.quiet = False
        """Nothing goes wrong any more."""
        self._stopping: Member | None = None
        self._records: dict[int, tuple[bytes, LedgerRecord]] = {}

    def _settings(self, quorums: tuple[int, int, int]) -> dict[str, str]:
        random = self.random
        ensemble, write, ack = map(str, quorums)
        return {
            "clusterName": CLUSTER,
            "metadataStoreUrl": "zk:zookeeper:2181",
            "metadataStoreSessionTimeoutMillis": str(int(SESSION_SECONDS * 1000)),
            "brokerServicePort": str(PORT),
            "managedLedgerDefaultEnsembleSize": ensemble,
            "managedLedgerDefaultWriteQuorum": write,
            "managedLedgerDefaultAckQuorum": ack,
            "bookkeeperClientTimeoutInSeconds": "3",
            "brokerDeduplicationEnabled": str(self.deduplicates).lower(),
            "defaultRetentionTimeInMinutes": "-1",
            "defaultRetentionSizeInMB": "-1",
            "managedLedgerMaxEntriesPerLedger": random.choice(("5", "30", "50000")),
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        }

    def _give_journal(self, bookie: Any, random: Random) -> None:
        typical = random.choice((0.0005, 0.002, 0.02))
        bookie.model.journal_delay = lambda: typical * random.expovariate(1.0)

    @property
    def service_url(self) -> str:
        """For clients: all brokers."""
        return "pulsar://" + ",".join(f"{member.name}:{PORT}" for member in self.members)

    # Work of the world

    async def set_up(self) -> None:
        """What an operator does once."""
        simulation = simulated_io(self.random.getrandbits(32), network=self.network, name="operator")
        io = simulation.io
        done = self.loop.create_future()

        async def work() -> None:
            outside = Outside(io.loop, io.clock, io.randomness, io.network)
            store = await ZooKeeperMetadataStore.open_store(
                outside,
                ensemble_address("zk:zookeeper:2181"),
                SessionSettings(int(SESSION_SECONDS * 1000)),
                wait_seconds=30,
            )
            hosts = EnsembleAddress(ensemble_address("zk:zookeeper:2181").hosts, ROOT)
            setup = ClusterSetup(CLUSTER, {"serviceUrl": "http://broker1:8080"}, bundles=4)
            await set_up_cluster(store, store, setup, hosts, io.randomness)
            await store.close()

        simulation.loop.create_task(work()).add_done_callback(done.set_result)
        (await done).result()
        simulation.abandon()

    async def finished(self, task: Any) -> None:
        """Waits for somebody else's task, however it ends."""
        while not task.done():
            await self.sleep(0.05)

    def _stops(self, member: Member) -> None:
        self._stopping = member

    def drive(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs all until ``work`` is done.

        :raises Violation: something happened that must not
        """
        log = _Log(self.trace)
        task = self.spawn(work)
        with logging_to(log):
            while True:
                try:
                    self.loop.run_until(task)
                except ProcessStopped:
                    member, self._stopping = self._stopping, None
                    if member is None:
                        raise
                    member.kill()
                else:
                    return
                finally:
                    if log.unexpected:
                        raise Violation(f"a broker met an error it did not expect: {log.unexpected[0]}")

    # What is known

    def record(self, ledger_id: int) -> LedgerRecord | None:
        """What the metadata says of a ledger now; None: it is deleted."""
        path = ROOT + ledger_path(ledger_id)
        node = self.servers.zookeeper.model.nodes.get(path)
        if node is None:
            return None
        known = self._records.get(ledger_id)
        if known is None or known[0] != node.value:
            known = self._records[ledger_id] = (node.value, decoded(node.value, path))
        return known[1]

    def check_receipt(self, ledger_id: int, entry_id: int) -> None:
        """A client was told that this is stored.

        :raises Violation: whoever recovered the ledger does not have it
        """
        record = self.record(ledger_id)
        if record is None:
            raise Violation(f"{ledger_id}:{entry_id} has a receipt, and its ledger is gone")
        if record.state is LedgerState.CLOSED and entry_id > record.last_entry_id:
            raise Violation(
                f"{ledger_id}:{entry_id} has a receipt, and its ledger ended with {record.last_entry_id}"
            )


class _Log(logging.Handler):
    """Errors that brokers swallowed after writing them to their logs: none may be unexpected."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self.unexpected: list[str] = []
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        told = f"{record.name}: {record.getMessage()} {record.__dict__.get('error', '')}"
        self._trace.note("log:", told)
        # An error of a broker that HTTP answers with is one that the operator meets.
        told_to_somebody = record.name == "magnetar.http" and record.levelno < logging.ERROR
        if record.exc_info and not told_to_somebody:
            self.unexpected.append(f"{told} ({record.exc_info[1]!r})")
