"""One seed's story of transactions: clients begin and end them while brokers and servers fail.

What topics are told is seen where it is said to them; messages are not sent. Whatever happens, a transaction
has one outcome, all its topics are told it, and its id is never given again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from simulated_bookkeeper import spread

from magnetar.broker.coordination.coordinators import ASSIGN
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.transactions import TxnId
from magnetar.client.connection import Connection
from magnetar.client.exceptions import PulsarException
from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, TxnAction
from simulation.brokers.faults import FAULTS, OF_SEVERAL, Fate
from simulation.brokers.world import World
from simulation.core import CoreClient
from simulation.trace import Violation

_TROUBLED_SECONDS = (5.0, 40.0)
_BOUND_SECONDS = 300.0
"""After the last fault everything has ended within it."""
_COORDINATORS = 3
"""Of 16, those that are used."""
_PATIENCE = 50.0
"""Seconds within which an ended transaction is remembered, with some to spare."""


class TransactionWorld(World):
    """Brokers with transactions."""

    def _settings(self, quorums: tuple[int, int, int]) -> dict[str, str]:
        batched = self.random.choice(("false", "true"))
        return super()._settings(quorums) | {
            "transactionCoordinatorEnabled": "true",
            "transactionLogBatchedWriteEnabled": batched,
        }


@dataclass
class Known:
    """What its client knows of a transaction."""

    commits: bool
    times_out_at: float
    added: set[str] = field(default_factory=set)
    """Topics whose addition was answered, or may have happened."""
    sure: set[str] = field(default_factory=set)
    """Topics whose addition was answered."""
    asked_at: float = -1.0
    """When END_TXN was sent first."""
    answered: bool = False
    """Whether END_TXN succeeded."""
    told: dict[str, set[bool]] = field(default_factory=dict)
    """What each topic was told, and has answered."""


class Coordinated:
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        self._random = random = Random(seed)
        self.world = world = TransactionWorld(Random(random.getrandbits(64)), printing=printing)
        spread(world.servers.zookeeper, seed)
        self.topics = [
            f"persistent://public/default/topic{number}" for number in range(random.randrange(2, 6))
        ]
        self.known: dict[TxnId, Known] = {}
        self.ended = 0

    def run(self) -> None:
        """:raises Violation: something happened that must not"""
        try:
            with _watched(self._told):
                self.world.drive(self._story())
        finally:
            for member in self.world.members:
                member.kill()
            self.world.loop.abandon()

    async def _story(self) -> None:
        world, random = self.world, self._random
        await world.set_up()
        for member in world.members:
            member.start()
        fate = Fate(world, Random(random.getrandbits(64)))
        keeper = world.spawn(fate.keep_alive())
        clients = [CoreClient(world, f"client{n}", Random(random.getrandbits(64))) for n in range(2)]
        for topic in self.topics:
            await world.finished(clients[0].spawn(_make(clients[0], topic)))
        at_work = [
            client.spawn(self._work(client, random.randrange(5, 25))) for client in clients for _ in range(3)
        ]
        until = world.loop.time() + random.uniform(*_TROUBLED_SECONDS)
        pause = random.choice((0.5, 2.0, 5.0))
        under_way = []
        faults = FAULTS | OF_SEVERAL if world.servers.zookeeper.model.several else FAULTS
        while world.loop.time() < until:
            fault = random.choices(list(faults), list(faults.values()))[0]
            under_way.append(world.spawn(fault(fate)))
            await world.sleep(random.expovariate(1 / pause))
        world.quiet = True
        for task in under_way:
            await world.finished(task)
        world.trace.note("quiet")
        for task in at_work:
            await world.finished(task)
        await self._all_over()
        self._judge()
        for client in clients:
            await client.close()
        for member in world.members:
            await member.stop()
        keeper.cancel()

    # Clients

    async def _work(self, client: CoreClient, count: int) -> None:
        random = client.random
        for _ in range(count):
            txn, known = await self._begin(client, random.randrange(_COORDINATORS))
            there = random.sample(self.topics, random.randrange(len(self.topics) + 1))
            found = True
            for topic in there:
                known.added.add(topic)
                found = await self._add(client, txn, topic)
                if not found:
                    break
                known.sure.add(topic)
                await client.sleep(random.random() * 0.2)
            if found and random.random() < 0.8:
                await self._end(client, txn, known)
            await client.sleep(random.random())

    async def _begin(self, client: CoreClient, coordinator: int) -> tuple[TxnId, Known]:
        milliseconds = client.random.choice((3_000, 20_000, 60_000))
        while True:
            command = BaseCommand(type=BaseCommand.NEW_TXN)
            command.newTxn.tc_id = coordinator
            command.newTxn.txn_ttl_seconds = milliseconds
            before = client.loop.time()
            answer = (await self._ask(client, coordinator, command)).newTxnResponse
            if answer.HasField("error"):
                self._check_error(answer.error, ServerErrorCode.TOO_MANY_REQUESTS)
                continue
            txn = (answer.txnid_most_bits, answer.txnid_least_bits)
            if txn in self.known:
                raise Violation(f"{txn} was given twice")
            commits = client.random.random() < 0.7
            known = self.known[txn] = Known(commits, before + milliseconds / 1000)
            client.world.trace.note(client.name, "began", txn)
            return txn, known

    async def _add(self, client: CoreClient, txn: TxnId, topic: str) -> bool:
        """Whether the transaction was still there."""
        command = BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN)
        adding = command.addPartitionToTxn
        adding.txnid_most_bits, adding.txnid_least_bits = txn
        adding.partitions.append(topic)
        while True:
            answer = (await self._ask(client, txn[0], command)).addPartitionToTxnResponse
            if not answer.HasField("error"):
                return True
            if answer.error in (ServerErrorCode.TRANSACTION_NOT_FOUND, ServerErrorCode.INVALID_TXN_STATUS):
                if client.loop.time() < self.known[txn].times_out_at:
                    raise Violation(f"{txn} is gone before its time: {answer.message}")
                return False
            self._check_error(answer.error)

    async def _end(self, client: CoreClient, txn: TxnId, known: Known) -> None:
        command = BaseCommand(type=BaseCommand.END_TXN)
        ending = command.endTxn
        ending.txnid_most_bits, ending.txnid_least_bits = txn
        ending.txn_action = TxnAction.COMMIT if known.commits else TxnAction.ABORT
        known.asked_at = client.loop.time()
        while True:
            answer = (await self._ask(client, txn[0], command)).endTxnResponse
            if not answer.HasField("error"):
                known.answered = True
                self.ended += 1
                client.world.trace.note(client.name, "ended", txn, known.commits)
                if known.commits and known.sure - known.told.keys():
                    raise Violation(f"{txn} is committed, and topics do not know: {known}")
                return
            if answer.error in (ServerErrorCode.TRANSACTION_NOT_FOUND, ServerErrorCode.INVALID_TXN_STATUS):
                timed_out = client.loop.time() >= known.times_out_at
                forgotten = client.loop.time() >= known.asked_at + _PATIENCE
                if not timed_out and not forgotten:
                    raise Violation(f"{txn} is gone before its time: {answer.message}")
                return
            self._check_error(answer.error)

    def _check_error(self, error: int, *others: int) -> None:
        if error not in (
            ServerErrorCode.TRANSACTION_COORDINATOR_NOT_FOUND,
            ServerErrorCode.PERSISTENCE,
            ServerErrorCode.METADATA,
            *others,
        ):
            raise Violation(f"a coordinator answers with error {error}")

    async def _ask(self, client: CoreClient, coordinator: int, command: BaseCommand) -> BaseCommand:
        """The answer of the coordinator, which the client connects to anew after every failure."""
        services = client.client.services
        while True:
            try:
                owner = await services.lookup.owner(str(ASSIGN.partition(coordinator)))
                connection = await services.pool.get(owner.broker, owner.through)
                connect = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_REQUEST)
                connect.tcClientConnectRequest.tc_id = coordinator
                connected = await _request(connection, connect, connect.tcClientConnectRequest)
                if not connected.tcClientConnectResponse.HasField("error"):
                    answer = await _request(connection, command, _body(command))
                    if _body(answer).error != ServerErrorCode.TRANSACTION_COORDINATOR_NOT_FOUND:
                        return answer
            except PulsarException as error:
                client.world.trace.note(client.name, "asks again:", repr(error))
            await client.sleep(0.2 + client.random.random())

    # What topics are told

    def _told(self, topic: str, txn: TxnId, commit: bool, low_water: int) -> None:
        known = self.known.get(txn)
        if known is None:
            # Its client never got its id: nobody can have committed it.
            if commit:
                raise Violation(f"{txn} is committed, and nobody knows it")
            return
        if commit and not (known.commits and known.asked_at >= 0):
            raise Violation(f"{txn} is committed at {topic}, and nobody wanted that")
        known.told.setdefault(topic, set()).add(commit)
        self._check_outcome(txn, known)
        for other, each in self.known.items():
            if other[0] == txn[0] and other[1] <= low_water and each.sure - each.told.keys():
                raise Violation(f"{other} has not ended everywhere: low-water mark {low_water} of {txn}")

    def _check_outcome(self, txn: TxnId, known: Known) -> None:
        outcomes = {outcome for told in known.told.values() for outcome in told}
        if len(outcomes) > 1:
            raise Violation(f"{txn} has two outcomes: {known.told}")
        if known.answered and outcomes and outcomes != {known.commits}:
            raise Violation(f"{txn} has another outcome than its client was told: {known.told}")

    # The end

    async def _all_over(self) -> None:
        world = self.world
        until = world.loop.time() + _BOUND_SECONDS
        while left := self._left():
            if world.loop.time() > until:
                raise Violation(f"not over {_BOUND_SECONDS} seconds after the last fault: {left}")
            await world.sleep(1.0)

    def _left(self) -> list[Any]:
        """Transactions that some coordinator has not ended, and coordinators that are nowhere."""
        left: list[Any] = []
        loaded = set()
        for member in self.world.members:
            service = member.service
            if service is None or service.coordinators is None:
                continue
            for number, coordinator in service.coordinators.loaded.items():
                if not coordinator.closed:
                    coordinator.check()
                    loaded.add(number)
                    left += [each.id for each in coordinator.transactions.values()]
        return left + [number for number in {txn[0] for txn in self.known} if number not in loaded]

    def _judge(self) -> None:
        for txn, known in self.known.items():
            self._check_outcome(txn, known)
            if known.sure - known.told.keys():
                raise Violation(f"{txn} has ended, and topics do not know: {known}")


def _body(command: BaseCommand) -> Any:
    return next(value for field, value in command.ListFields() if field.name != "type")


async def _request(connection: Connection, command: BaseCommand, body: Any) -> BaseCommand:
    body.request_id = connection.wire.new_request_id()
    answer: BaseCommand = await connection.ask(body.request_id, command, 5.0)
    return answer


async def _make(client: CoreClient, topic: str) -> None:
    while True:
        try:
            producer = await client.client.create_producer(topic)
            await producer.close()
        except PulsarException:
            await client.sleep(0.5)
        else:
            return


@contextmanager
def _watched(told: Callable[[str, TxnId, bool, int], None]) -> Iterator[None]:
    """Calls ``told`` when a topic has taken the end of a transaction."""
    real = Topic.end_transaction

    async def watched(self: Topic, txn: TxnId, *, commit: bool, low_water: int) -> None:
        await real(self, txn, commit=commit, low_water=low_water)
        told(self.full_name, txn, commit, low_water)

    Topic.end_transaction = watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        Topic.end_transaction = real  # type: ignore[method-assign]
