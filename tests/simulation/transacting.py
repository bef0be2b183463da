"""Programs that read, process and write in transactions, while everything goes wrong around them.

Workers consume from one topic and publish to two others, in transactions that they commit, abort, or leave to
their time-out. Whatever is lost or refused on the way: each input leads to one visible output.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    Subscription,
    TxnAction,
)
from simulation.client import Client
from simulation.connection import Connection, Gone, Refused, command
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.world import World

INPUT = "persistent://public/default/txn-in"
OUTPUTS = ("persistent://public/default/txn-out-a", "persistent://public/default/txn-out-b")
_WORK, _AUDIT = "work", "audit"
_EARLIEST = MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
_PATIENCE = 20.0
_SHARE = 0.3
"""Of the seeds that have transactions."""
Position = tuple[int, int]
Txn = tuple[int, int]


class Transacting:
    """The programs of one seed, and what they know."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.wanted = random.randrange(5, 40)
        """Inputs."""
        self.inputs: set[Position] = set()
        """Inputs with a receipt."""
        self.began: set[Txn] = set()
        self.committing: set[Txn] = set()
        """Transactions whose commit was asked for."""
        self.committed: set[Txn] = set()
        """Transactions whose commit was answered; likewise :attr:`aborted`."""
        self.aborted: set[Txn] = set()
        self.sent: dict[Txn, set[tuple[str, bytes]]] = {}
        """What was stored in each transaction: the topic and the payload."""
        self.stopping = False
        """Everybody goes."""
        self.subscribed: set[str] = set()
        """Topics with a subscription, before which nothing is published."""
        self._feeder = _Feeder(self, Client(world, "feeder"), random)
        workers = random.choice((1, 2, 3))
        kind = random.choice((CommandSubscribe.Shared, CommandSubscribe.Key_Shared))
        self._workers = [
            _Worker(self, Client(world, f"worker{number}"), Random(random.getrandbits(64)), kind)
            for number in range(workers)
        ]
        self._auditors = [
            _Auditor(self, Client(world, f"auditor{n}"), topic) for n, topic in enumerate(OUTPUTS)
        ]

    @property
    def clients(self) -> list[Client]:
        people = (self._feeder, *self._workers, *self._auditors)
        return [each.client for each in people]

    def start(self) -> None:
        for each in (self._feeder, *self._workers, *self._auditors):
            self.world.spawn(each.run())

    @property
    def done(self) -> bool:
        """Whether all inputs are processed, and no transaction is open any more."""
        return not self._left()

    def __str__(self) -> str:
        return f"transactions: {'; '.join(self._left())}"

    def _left(self) -> list[str]:
        if not self.world.quiet or len(self.inputs) < self.wanted:
            return [f"{len(self.inputs)} of {self.wanted} inputs stored"]
        seen = [payload for each in self._auditors for payload in each.seen.values()]
        outputs = {_input_of(payload) for payload in seen}
        left = [f"input {each} has no output" for each in sorted(self.inputs - outputs)[:3]]
        service = self.world.broker.service
        if service is None:
            return ["no broker"]
        for coordinator in service.coordinators.loaded.values():
            if coordinator.transactions:
                left.append(f"open: {list(coordinator.transactions)[:3]}")
        return left

    def check(self) -> None:
        """Compares what the auditors saw with what the workers know; then everybody goes."""
        self.stopping = True
        visible: dict[Position, bytes] = {}
        shown: set[tuple[str, bytes]] = set()
        for auditor in self._auditors:
            shown |= {(auditor.topic, payload) for payload in auditor.seen.values()}
            for payload in auditor.seen.values():
                found = _input_of(payload)
                if found in visible:
                    raise Violation(f"input {found} has two outputs: {visible[found]!r} and {payload!r}")
                visible[found] = payload
        for txn in self.committed:
            missing = self.sent.get(txn, set()) - shown
            if missing:
                raise Violation(f"transaction {txn} is committed, and {missing} is not visible")

    def saw(self, topic: str, payload: bytes) -> None:
        """:raises Violation: a message is visible that must not be"""
        txn = _txn_of(payload)
        if txn in self.aborted:
            raise Violation(f"{topic}: {payload!r} is visible, and its transaction was aborted")
        if txn not in self.committing:
            raise Violation(f"{topic}: {payload!r} is visible, and its transaction was not committed")


def _input_of(payload: bytes) -> Position:
    ledger_id, entry_id = payload.split()[0].split(b":")
    return int(ledger_id), int(entry_id)


def _txn_of(payload: bytes) -> Txn:
    most, least = payload.split()[1].split(b",")
    return int(most), int(least)


class _Person:
    """A client that tries again until all is done."""

    def __init__(self, story: Transacting, client: Client) -> None:
        self.story = story
        self.client = client
        self.world = story.world

    async def _look(self, connection: Connection) -> None:
        """Now and then asks for an answer, without which a silent connection would not be noticed.

        :raises Gone: the connection was lost
        """
        if self.story.random.random() < 0.05:
            await connection.ping()

    async def _pause(self, most: float) -> None:
        await self.world.sleep(self.story.random.random() * most)


class _Sending:
    """A producer on one connection, with one message in flight at a time."""

    def __init__(self, world: World, connection: Connection, topic: str, name: str) -> None:
        self._world = world
        self._connection = connection
        self._name = name
        self.topic = topic
        self.number = connection.next_id()
        self.closed = False
        self._sequence = 0
        self._receipt: Any = None

    async def open(self) -> None:
        self._connection.producers[self.number] = self
        await self._connection.ask(
            BaseCommand.PRODUCER, topic=self.topic, producer_id=self.number, txn_enabled=True
        )

    async def send(self, payload: bytes, txn: Txn | None = None, key: str = "") -> Position:
        """:raises Gone: it is not known whether the message is stored

        :raises Refused: it is not
        """
        if self.closed or self._connection.closed:
            raise Gone("the producer is closed")
        metadata = MessageMetadata(
            producer_name=self._name, sequence_id=self._sequence, publish_time=self._world.clock.wall_ms()
        )
        fields: dict[str, int] = {}
        if key:
            metadata.partition_key = key
        if txn is not None:
            fields = {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}
            metadata.txnid_most_bits, metadata.txnid_least_bits = txn
        receipt = self._receipt = self._world.loop.create_future()
        self._connection.send(
            command(BaseCommand.SEND, producer_id=self.number, sequence_id=self._sequence, **fields),
            build_entry(metadata, payload),
        )
        self._sequence += 1
        timer = self._world.loop.call_later(_PATIENCE, self._connection.abort)
        try:
            found: Position = await receipt
        finally:
            timer.cancel()
        return found

    def received(self, kind: int, message: Any, _entry: bytes) -> None:
        if kind == BaseCommand.SEND_RECEIPT:
            where = message.message_id
            if self._receipt is not None and not self._receipt.done():
                self._receipt.set_result((where.ledgerId, where.entryId))
        elif kind == BaseCommand.SEND_ERROR:
            self._fail(Refused(message.error, message.message))
        else:
            self.disconnected()

    def disconnected(self) -> None:
        self.closed = True
        self._fail(Gone("closed"))

    def _fail(self, error: Exception) -> None:
        if self._receipt is not None and not self._receipt.done():
            self._receipt.set_exception(error)
            self._receipt.exception()


class _Receiving:
    """A consumer on one connection."""

    def __init__(self, world: World, connection: Connection, topic: str, subscription: str) -> None:
        self._world = world
        self.connection = connection
        self.topic = topic
        self.subscription = subscription
        self.number = connection.next_id()
        self.closed = False
        self.waiting: list[tuple[Position, bytes]] = []

    async def open(self, kind: int, permits: int) -> None:
        self.connection.consumers[self.number] = self
        await self.connection.ask(
            BaseCommand.SUBSCRIBE,
            topic=self.topic,
            subscription=self.subscription,
            subType=kind,
            consumer_id=self.number,
            initialPosition=CommandSubscribe.Earliest,
        )
        self.flow(permits)

    def flow(self, permits: int) -> None:
        self.connection.send(command(BaseCommand.FLOW, consumer_id=self.number, messagePermits=permits))

    def received(self, kind: int, message: Any, entry: bytes) -> None:
        if kind == BaseCommand.MESSAGE:
            where = message.message_id
            self.waiting.append(((where.ledgerId, where.entryId), bytes(parse_entry(entry).payload)))
        elif kind == BaseCommand.CLOSE_CONSUMER:
            self.closed = True

    def disconnected(self) -> None:
        self.closed = True

    async def acknowledge(self, positions: list[Position], txn: Txn | None = None) -> None:
        """:raises Gone: it is not known whether they are acknowledged

        :raises Refused: they are not
        """
        fields: dict[str, int] = {}
        if txn is not None:
            fields = {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}
        answer = await self.connection.ask(
            BaseCommand.ACK,
            consumer_id=self.number,
            ack_type=CommandAck.Individual,
            message_id=[MessageIdData(ledgerId=each[0], entryId=each[1]) for each in positions],
            **fields,
        )
        _check(answer)


def _check(answer: Any) -> None:
    if answer.HasField("error"):
        raise Refused(answer.error, answer.message)


class _Feeder(_Person):
    """Publishes the inputs, in no transaction."""

    def __init__(self, story: Transacting, client: Client, random: Random) -> None:
        super().__init__(story, client)
        self._random = random

    async def run(self) -> None:
        producer: _Sending | None = None
        while len(self.story.inputs) < self.story.wanted:
            await self._pause(0.2)
            if len(self.story.subscribed) < 1 + len(OUTPUTS):
                continue
            try:
                connection = await self.client.connection()
                if producer is None or producer.closed or connection.closed:
                    producer = _Sending(self.world, connection, INPUT, "feeder")
                    await producer.open()
                key = f"k{self._random.randrange(5)}"
                self.story.inputs.add(await producer.send(b"input", key=key))
            except (Gone, Refused) as error:
                self.world.trace.note("feeder:", error)
                producer = None


class _Worker(_Person):
    """Consumes, publishes and acknowledges in one transaction after the other."""

    def __init__(self, story: Transacting, client: Client, random: Random, kind: int) -> None:
        super().__init__(story, client)
        self._random = random
        self._kind = kind
        self._consumer: _Receiving | None = None
        self._producers: list[_Sending] = []

    async def run(self) -> None:
        while not self.story.stopping:
            try:
                await self._work(await self.client.connection())
            except (Gone, Refused) as error:
                self.world.trace.note(self.client.name, error)
                if self._random.random() < 0.3:
                    self.client.cut()
            await self.world.sleep(self._random.random() * 0.5)

    async def _ready(self, connection: Connection) -> _Receiving:
        """Returns the consumer, once everything is open on the connection."""
        consumer = self._consumer
        open_here = consumer is not None and not consumer.closed and consumer.connection is connection
        if open_here and not any(each.closed for each in self._producers):
            return consumer
        if consumer is not None and not consumer.closed:
            await consumer.connection.ask(BaseCommand.CLOSE_CONSUMER, consumer_id=consumer.number)
        self._consumer = None
        _check(await connection.ask(BaseCommand.TC_CLIENT_CONNECT_REQUEST, tc_id=0))
        self._producers = [
            _Sending(self.world, connection, topic, f"{self.client.name}-{topic[-1]}") for topic in OUTPUTS
        ]
        for each in self._producers:
            await each.open()
        consumer = _Receiving(self.world, connection, INPUT, _WORK)
        await consumer.open(self._kind, self._random.choice((1, 5, 100)))
        self.story.subscribed.add(INPUT)
        self._consumer = consumer
        return consumer

    async def _work(self, connection: Connection) -> None:
        random, story = self._random, self.story
        consumer = await self._ready(connection)
        while not consumer.closed and not self.story.stopping:
            await self.world.sleep(random.random() * 0.3)
            if not consumer.waiting:
                await self._look(connection)
                continue
            count = random.choice((1, 1, 2, 5))
            taken, consumer.waiting = consumer.waiting[:count], consumer.waiting[count:]
            consumer.flow(len(taken))
            positions = [position for position, _payload in taken]
            quiet = self.world.quiet
            answer = await connection.ask(
                BaseCommand.NEW_TXN, tc_id=0, txn_ttl_seconds=30_000 if quiet else random.choice((500, 3000))
            )
            if answer.HasField("error"):
                self._again(consumer, positions)
                _check(answer)
            txn = (answer.txnid_most_bits, answer.txnid_least_bits)
            if txn in story.began:
                raise Violation(f"transaction {txn} was begun twice")
            story.began.add(txn)
            try:
                await self._process(connection, consumer, txn, positions)
            except Refused as error:
                # The inputs come again, like those of a transaction that is left to its time-out.
                self.world.trace.note(self.client.name, txn, error)
                await self._end(connection, txn, commit=False)
                self._again(consumer, positions)

    def _again(self, consumer: _Receiving, positions: list[Position]) -> None:
        ids = [MessageIdData(ledgerId=each[0], entryId=each[1]) for each in positions]
        consumer.connection.send(
            command(
                BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=consumer.number, message_ids=ids
            )
        )

    async def _process(
        self, connection: Connection, consumer: _Receiving, txn: Txn, positions: list[Position]
    ) -> None:
        random, story = self._random, self.story
        most, least = txn
        ids = {"txnid_most_bits": most, "txnid_least_bits": least}
        _check(
            await connection.ask(
                BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
                subscription=[Subscription(topic=INPUT, subscription=_WORK)],
                **ids,
            )
        )
        used = self._producers if random.random() < 0.5 else [random.choice(self._producers)]
        _check(
            await connection.ask(BaseCommand.ADD_PARTITION_TO_TXN, partitions=[p.topic for p in used], **ids)
        )
        # An entry that came twice is there twice, and its second acknowledgement is refused.
        left = list(positions)
        for position in positions:
            producer = random.choice(used)
            payload = b"%d:%d %d,%d" % (*position, most, least)
            await producer.send(payload, txn)
            story.sent.setdefault(txn, set()).add((producer.topic, payload))
            if random.random() < 0.5:
                await consumer.acknowledge([position], txn)
                left.remove(position)
        if left:
            await consumer.acknowledge(left, txn)
        fate = 1.0 if self.world.quiet else random.random()
        if fate < 0.08:
            # Its time-out ends it.
            return
        if fate < 0.12:
            self.client.cut()
            return
        await self._end(connection, txn, commit=fate >= 0.25)

    async def _end(self, connection: Connection, txn: Txn, *, commit: bool) -> None:
        story = self.story
        if commit:
            story.committing.add(txn)
        for _again in range(1 if self._random.random() < 0.9 else 2):
            answer = await connection.ask(
                BaseCommand.END_TXN,
                txnid_most_bits=txn[0],
                txnid_least_bits=txn[1],
                txn_action=TxnAction.COMMIT if commit else TxnAction.ABORT,
            )
            if not answer.HasField("error"):
                (story.committed if commit else story.aborted).add(txn)


class _Auditor(_Person):
    """Reads one output topic: it remembers what it sees, and acknowledges it."""

    def __init__(self, story: Transacting, client: Client, topic: str) -> None:
        super().__init__(story, client)
        self.topic = topic
        self.seen: dict[Position, bytes] = {}

    async def run(self) -> None:
        while not self.story.stopping:
            try:
                await self._read(await self.client.connection())
            except Gone as error:
                self.world.trace.note(self.client.name, error)
            except Refused as error:
                self.world.trace.note(self.client.name, error)
                # Its consumer may still be there, and is the only one.
                self.client.cut()
            await self._pause(1.0)

    async def _read(self, connection: Connection) -> None:
        consumer = _Receiving(self.world, connection, self.topic, _AUDIT)
        await consumer.open(CommandSubscribe.Exclusive, 10)
        self.story.subscribed.add(self.topic)
        last = (-1, -1)
        while not consumer.closed and not self.story.stopping:
            await self.world.sleep(0.1)
            if not self.world.quiet and self.story.random.random() < 0.02:
                # What is still stored comes again, behind it all that is new.
                await connection.ask(BaseCommand.SEEK, consumer_id=consumer.number, message_id=_EARLIEST)
            taken, consumer.waiting = consumer.waiting, []
            for position, payload in taken:
                if position <= last:
                    raise Violation(f"{self.topic}: {position} after {last}")
                last = position
                if self.seen.setdefault(position, payload) != payload:
                    raise Violation(
                        f"{self.topic}: {position} was {self.seen[position]!r}, and is {payload!r}"
                    )
                self.story.saw(self.topic, payload)
            if taken:
                consumer.flow(len(taken))
                await consumer.acknowledge([position for position, _payload in taken])
            else:
                await self._look(connection)


def transacting(seed: int) -> Random | None:
    """Returns what draws the transactions of a seed; None: it has none."""
    random = Random(f"transactions {seed}")
    return random if random.random() < _SHARE else None
