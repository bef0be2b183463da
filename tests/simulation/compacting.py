"""A topic with keys: published to, compacted again and again, and what is read compared with a dictionary."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from magnetar.errors import BrokerError
from magnetar.io.waiting import sleep
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import build_batch, build_entry, parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    SingleMessageMetadata,
)
from simulation.client import Client
from simulation.connection import Connection, Gone, Refused, command
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulated_io import Simulation

    from simulation.world import World

TOPIC = "persistent://public/default/compacted"
_EARLIEST = MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
_PATIENCE = 20.0
Message = tuple[str, bytes]
Position = tuple[int, int]


class Compacting:
    """One producer, one who compacts, one who reads; whatever is refused or lost is tried again."""

    def __init__(self, client: Client, random: Random, killing: Random) -> None:
        self._client = client
        self._world: World = client.world
        self._random = random
        self._wanted = random.randrange(10, 60)
        self._sent: list[list[Message]] = []
        """What was published, an entry each; the last one perhaps not yet."""
        self._stored = 0
        """Entries that have their receipt: all but the last, or all."""
        self._began = 0
        """Compactions that were begun."""
        self._producing: _Producing | None = None
        self._killing = killing
        self.killed = 0
        """Processes that compacted and were killed."""
        self.done = False
        """What is read in the end is what was published."""

    def __str__(self) -> str:
        return f"compacting: {self._stored} of {self._wanted} entries stored"

    # Publishing

    async def publish(self) -> None:
        """Until everything is stored, one entry after another."""
        while self._backlog() < 0:
            # Before anything was compacted nothing holds back what nobody has subscribed to.
            await self._compact()
            await self._world.sleep(self._random.random())
        while self._stored < self._wanted:
            if self._stored == len(self._sent):
                self._sent.append(self._entry())
            try:
                await self._publish_one(await self._client.connection())
                self._stored += 1
            except (Gone, Refused) as error:
                self._world.trace.note("keyed producer:", error)
                self._producing = None
                await self._world.sleep(self._random.random())
            await self._world.sleep(self._random.random() * 0.1)

    def _entry(self) -> list[Message]:
        random = self._random
        return [
            (f"k{random.randrange(7)}", random.choice((b"", b"%d" % len(self._sent), random.randbytes(300))))
            for _ in range(random.choice((1, 1, 4)))
        ]

    async def _publish_one(self, connection: Connection) -> None:
        producing = self._producing
        if producing is None or producing.connection is not connection or producing.closed:
            producing = _Producing(connection, connection.next_id(), self._world.loop.create_future())
            connection.producers[producing.number] = producing
            await connection.ask(
                BaseCommand.PRODUCER,
                topic=TOPIC,
                producer_id=producing.number,
                producer_name="keyed",
                user_provided_producer_name=True,
                epoch=len(connection.producers),
            )
            self._producing = producing
        producing.receipt = self._world.loop.create_future()
        number, messages = self._stored, self._sent[self._stored]
        connection.send(
            command(
                BaseCommand.SEND, producer_id=producing.number, sequence_id=number, num_messages=len(messages)
            ),
            self._packed(number, messages),
        )
        timer = self._world.loop.call_later(_PATIENCE, connection.abort)
        try:
            await producing.receipt
        finally:
            timer.cancel()

    def _packed(self, number: int, messages: list[Message]) -> bytes:
        metadata = MessageMetadata(
            producer_name="keyed", sequence_id=number, publish_time=self._world.clock.wall_ms()
        )
        if len(messages) == 1:
            metadata.partition_key, payload = messages[0]
            return build_entry(metadata, payload)
        singles = [
            (SingleMessageMetadata(partition_key=key, payload_size=0), value) for key, value in messages
        ]
        metadata.num_messages_in_batch = len(messages)
        return build_entry(metadata, build_batch(singles))

    # Compacting

    async def compact(self) -> None:
        """Now and then, until the faults are over."""
        while not self._world.quiet:
            await self._world.sleep(self._random.random() * 2)
            await self._compact()

    async def _compact(self) -> None:
        """Compacts once, if the broker is there to do so; returns when it is through."""
        broker = self._world.broker
        service, simulation = broker.service, broker.simulation
        if service is None or simulation is None:
            return
        self._began += 1
        began = simulation.loop.create_task(self._start(service))
        while simulation is broker.simulation and not began.done():
            await self._world.sleep(0.05)
            if not self._world.quiet and self._killing.random() < 0.1:
                self._kill(simulation)

    def _kill(self, simulation: Simulation) -> None:
        """Nobody but the compaction that it is for minds that the process is gone."""
        for process in simulation.processes:
            if not process.ended:
                self._world.trace.note("keyed: the process that compacts is killed")
                process.die()
                self.killed += 1

    async def _start(self, service: Any) -> None:
        try:
            topic = await service.topics.load(TopicName.parse(TOPIC), create=True)
            topic.compaction.start()
            while topic.compaction.running:
                await sleep(service.io.loop, 0.05)
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
            self._world.trace.note("not compacted:", error)

    # Reading

    async def read(self) -> None:
        """Reads all of it again and again; in the end what is read is what was published."""
        while not self.done:
            quiet = self._world.quiet and self._stored == self._wanted
            if quiet:
                await self._compact()
            stored, began, current = self._stored, self._began, self._current_id()
            try:
                view = await self._view(await self._client.connection())
            except (Gone, Refused) as error:
                self._world.trace.note("compacted reader:", error)
                await self._world.sleep(self._random.random())
                continue
            # Who was in the middle when another compaction ended may have missed that a key went: what told
            # so was trimmed before it was read.
            if began == self._began and current == self._current_id():
                self._check(view, stored)
                self.done = quiet and self._backlog() == 0
            await self._world.sleep(self._random.random())

    def _backlog(self) -> int:
        service = self._world.broker.service
        topic = service.topics.loaded.get(TOPIC) if service is not None else None
        cursor = topic.compaction.cursor if topic is not None else None
        return cursor.backlog() if cursor is not None else -1

    def _current(self) -> Any:
        """What the last compaction left."""
        service = self._world.broker.service
        topic = service.topics.loaded.get(TOPIC) if service is not None else None
        return topic.compaction.current if topic is not None else None

    def _current_id(self) -> int:
        """The ledger that the last compaction left; -1 for none."""
        current = self._current()
        return -1 if current is None else int(current.ledger_id)

    def _check(self, view: dict[str, bytes], stored: int) -> None:
        """:raises Violation: it is not what there was at any moment from then on"""
        possible: dict[str, set[bytes | None]] = {f"k{number}": set() for number in range(7)}
        newest: dict[str, bytes] = {}
        for number in range(len(self._sent) + 1):
            if number >= stored:
                for key, values in possible.items():
                    values.add(newest.get(key))
            if number < len(self._sent):
                for key, value in self._sent[number]:
                    newest.pop(key, None)
                    if value:
                        newest[key] = value
                    if number >= stored:
                        possible[key].add(newest.get(key))
        for key, values in possible.items():
            if view.get(key) not in values:
                raise Violation(f"{TOPIC}: {key} is read as {view.get(key)!r} and was one of {values}")

    async def _view(self, connection: Connection) -> dict[str, bytes]:
        """The newest of each key, as a table view has it."""
        number = connection.next_id()
        compacted = self._current()
        reading = _Reading(self._world)
        connection.consumers[number] = reading
        try:
            await connection.ask(
                BaseCommand.SUBSCRIBE,
                topic=TOPIC,
                subscription=f"table-{self._random.getrandbits(30)}",
                subType=CommandSubscribe.Exclusive,
                consumer_id=number,
                durable=False,
                read_compacted=True,
                start_message_id=_EARLIEST,
            )
            answer = await connection.ask(BaseCommand.GET_LAST_MESSAGE_ID, consumer_id=number)
            last = answer.last_message_id.ledgerId, answer.last_message_id.entryId
            end = self._world.loop.time() + _PATIENCE
            while last[1] < 2**63 and reading.last < last:
                if reading.closed or self._world.loop.time() > end:
                    if not reading.closed:
                        # A connection that a fault has made silent shows that here, and is gone.
                        await connection.ask(BaseCommand.GET_LAST_MESSAGE_ID, consumer_id=number)
                    # What one more compaction left out meanwhile does not come any more.
                    is_as_before = self._current() is compacted and reading.last < last
                    if self._world.quiet and not reading.closed and is_as_before:
                        raise Violation(f"{TOPIC}: read up to {reading.last} of {last}")
                    raise Gone("not read to its end")
                connection.send(command(BaseCommand.FLOW, consumer_id=number, messagePermits=10))
                await self._world.sleep(0.1)
            await connection.ask(BaseCommand.CLOSE_CONSUMER, consumer_id=number)
        finally:
            connection.consumers.pop(number, None)
        return reading.newest


class _Producing:
    def __init__(self, connection: Connection, number: int, receipt: Any) -> None:
        self.connection = connection
        self.number = number
        self.receipt = receipt
        self.closed = False

    def received(self, kind: int, _message: Any, _entry: bytes) -> None:
        if kind == BaseCommand.SEND_RECEIPT:
            if not self.receipt.done():
                self.receipt.set_result(None)
            return
        self.disconnected()
        if kind == BaseCommand.SEND_ERROR:
            # As official clients do: the producer is still open at the broker.
            self.connection.abort()

    def disconnected(self) -> None:
        self.closed = True
        if not self.receipt.done():
            self.receipt.set_exception(Gone("closed"))
            self.receipt.exception()


class _Reading:
    def __init__(self, world: World) -> None:
        self._world = world
        self.newest: dict[str, bytes] = {}
        self.last: Position = (-1, -1)
        self.closed = False

    def received(self, kind: int, message: Any, entry: bytes) -> None:
        if kind != BaseCommand.MESSAGE:
            self.closed = True
            return
        position = message.message_id.ledgerId, message.message_id.entryId
        self._world.trace.note("compacted", position)
        if position <= self.last:
            raise Violation(f"{TOPIC}: {position} after {self.last}")
        self.last = position
        for key, value in _messages(entry):
            self.newest.pop(key, None)
            if value:
                self.newest[key] = value

    def disconnected(self) -> None:
        self.closed = True


def _messages(data: bytes) -> list[Message]:
    entry = parse_entry(data)
    if entry.batch_size is None:
        return [(entry.metadata.partition_key, entry.payload)]
    singles = split_batch(entry.payload, entry.batch_size)
    return [
        (each.metadata.partition_key, each.payload) for each in singles if not each.metadata.compacted_out
    ]
