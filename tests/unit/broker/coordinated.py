"""A transaction coordinator in a simulated world, with participants that answer as a test wants."""

from __future__ import annotations

from collections.abc import Coroutine

from simulated_io import SimulatedDisk
from world import World

from magnetar.broker.coordination.coordinator import Coordinator
from magnetar.broker.coordination.transaction import Participant
from magnetar.broker.transactions import BatchedWrites, TxnId
from magnetar.broker.transactions.log import COORDINATOR_RECORDS, open_log
from magnetar.broker.transactions.records_pb2 import TransactionMetadataEntry, TransactionStatus
from magnetar.errors import ServiceNotReady
from magnetar.io.interfaces import Future
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.settings import ManagedLedgerSettings

Told = tuple[str, TxnId, bool, int]
"""The participant, the transaction, whether it was committed, and the low-water mark."""


class Coordinated:
    """One life of a coordinator; a test begins the next with the disk of this one."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        settings: ManagedLedgerSettings | None = None,
        writes: BatchedWrites | None = None,
        most_active: int = 0,
    ) -> None:
        self.world = World(disk, settings or ManagedLedgerSettings())
        self.writes = writes or BatchedWrites()
        self.most_active = most_active
        self.told: list[Told] = []
        """What participants were told, in order, whether they answered or not."""
        self.durable_when_told: list[int] = []
        """How many records were durable then."""
        self.silent: set[str] = set()
        """Topics that cannot be told anything."""
        self.lost: list[BaseException] = []
        self.wheel = TimerWheel(self.world.simulation.loop)
        self.coordinator = self.open()

    def open(self) -> Coordinator:
        return self.world.run(self._open())

    async def _open(self) -> Coordinator:
        io = self.world.simulation.io
        log = await open_log(
            io,
            self.world.managed,
            "pulsar/system/persistent/__transaction_log_0",
            "transaction.subscription",
            COORDINATOR_RECORDS,
            self.writes,
            self.lost.append,
            properties={"max_local_txn_id": "-1"},
        )

        def failed(work: str, error: BaseException) -> None:
            raise AssertionError(work) from error

        coordinator = Coordinator(io, self.wheel, 0, log, self._tell, lambda: self.most_active, failed)
        await coordinator.recover()
        return coordinator

    async def _tell(self, participant: Participant, transaction: TxnId, commit: bool, low_water: int) -> None:
        self.durable_when_told.append(self.coordinator.log.managed_ledger.ledgers.total_entries())
        self.told.append((str(participant), transaction, commit, low_water))
        if participant.topic in self.silent:
            raise ServiceNotReady(f"{participant.topic} is away")

    # Requests

    def begin(self, timeout_ms: int = 600_000, owner: str | None = None) -> int:
        most, least = self.world.run(self.coordinator.begin(timeout_ms, owner))
        assert most == 0
        return least

    def add(self, least: int, *topics: str) -> None:
        self.world.run(self.coordinator.add_partitions(least, topics))

    def add_subscription(self, least: int, topic: str, name: str) -> None:
        self.world.run(self.coordinator.add_subscriptions(least, [(topic, name)]))

    def end(self, least: int, *, commit: bool = True) -> None:
        self.world.run(self.coordinator.end(least, commit=commit))

    def start(self, work: Coroutine[object, None, None]) -> Future[None]:
        """Starts a request; the caller looks at its outcome."""
        return self.world.simulation.loop.create_task(work)

    # What is there

    def records(self) -> list[str]:
        """Everything in the log, in short: ``NEW 0``, ``UPDATE 0 COMMITTING``."""
        found: list[str] = []
        ledger = self.coordinator.log.managed_ledger
        for summary in ledger.ledgers:
            for entry_id in range(summary.entries):
                run = self.world.run(ledger.reader.read_one((summary.ledger_id, entry_id)))
                for record in COORDINATOR_RECORDS.parse(run.entry(0)):
                    text = f"{TransactionMetadataEntry.Operation.Name(record.metadata_op)}"
                    text += f" {record.txnid_least_bits}"
                    if record.metadata_op == TransactionMetadataEntry.UPDATE:
                        text += f" {TransactionStatus.Name(record.new_status)}"
                    found.append(text)
        return found

    def crash(self) -> SimulatedDisk:
        return self.world.crash()

    def stop(self) -> SimulatedDisk:
        self.world.run(self.coordinator.close())
        return self.world.stop()
