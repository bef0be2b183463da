"""What processes do with ledgers: write a chain of them, recover, read what others write."""

from __future__ import annotations

from array import array
from itertools import count
from random import Random

from magnetar.ledger.bookkeeper.ledger_record import MetadataFailed
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies
from magnetar.ledger.interface import (
    LedgerError,
    LedgerFenced,
    LedgerReader,
    LedgerState,
    LedgerStore,
    LedgerWriter,
    NoSuchLedger,
)
from simulation.bookkeeper.world import TROUBLE, Process, World
from simulation.trace import Violation

_MOST_UNACKNOWLEDGED = 300
_READ_BYTES = 1 << 16
_ENDS = (LedgerFenced, MetadataFailed, NoSuchLedger, NotEnoughBookies)
"""What may end a writer."""
_TRIES = 10
"""Of the judge."""


class Writing:
    """A ledger that a process writes; a ``LedgerListener``."""

    def __init__(self, world: World, name: str, writer: LedgerWriter) -> None:
        self.writer = writer
        self.ledger_id = writer.ledger_id
        self.appended = 0
        self.last = -1
        self.failed: LedgerError | None = None
        self._world = world
        self._name = name
        writer.set_listener(self)

    def append(self, payloads: list[bytes]) -> None:
        buffer = bytearray()
        starts, ends = array("q"), array("q")
        for each in payloads:
            buffer += b"<"
            starts.append(len(buffer))
            buffer += each
            ends.append(len(buffer))
        first = self.writer.append(bytes(buffer), starts, ends, 0, len(payloads))
        self._world.truth.appended(self.ledger_id, first, payloads)
        self.appended += len(payloads)

    def on_durable(self, ledger_id: int, last_entry_id: int) -> None:
        self._world.trace.note(self._name, "durable", ledger_id, last_entry_id)
        if ledger_id != self.ledger_id or self.failed is not None:
            raise Violation(f"ledger {ledger_id}: durable after {self.failed!r}")
        self.last = last_entry_id
        self._world.truth.was_acknowledged(ledger_id, last_entry_id)

    def on_failed(self, ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        self._world.trace.note(self._name, "failed", ledger_id, first_entry_id, repr(reason))
        if ledger_id != self.ledger_id or self.failed is not None or first_entry_id != self.last + 1:
            raise Violation(f"ledger {ledger_id} failed from {first_entry_id} on, after {self.last}")
        if not isinstance(reason, _ENDS):
            raise Violation(f"ledger {ledger_id} was ended by {reason!r}")
        record = self._world.truth.record(ledger_id)
        if isinstance(reason, LedgerFenced) and record is not None and record.state is LedgerState.OPEN:
            raise Violation(f"ledger {ledger_id}: {reason}, and nobody recovers it")
        self.failed = reason


class Owner:
    """Writes the chain while it believes that it should."""

    def __init__(self, process: Process, random: Random) -> None:
        self._process = process
        self._world = process.world
        self._random = random
        self.writing: Writing | None = None

    async def run(self) -> None:
        process, world = self._process, self._world
        while True:
            await process.sleep(0.05 + self._random.random() / 2)
            if world.owner != process.name or process.store is None or world.quiet:
                continue
            try:
                await self._own(process.store)
            except TROUBLE as error:
                world.trace.note(process.name, "gives up", repr(error))
            self.writing = None

    async def _own(self, store: LedgerStore) -> None:
        world, name = self._world, self._process.name
        known = list(world.chain)
        if known:
            await recovered(world, name, store, known[-1])
        writer = await store.create(world.quorums, {"component": b"simulation"})
        world.truth.created(writer.ledger_id)
        writing = self.writing = Writing(world, name, writer)
        if world.chain != known:
            # Somebody else was faster.
            await store.delete(writer.ledger_id)
            world.truth.ledgers[writer.ledger_id].deleted = True
            return
        world.chain.append(writer.ledger_id)
        world.trace.note(name, "writes", writer.ledger_id)
        for _ in range(self._random.randrange(1, 80)):
            if writing.failed is not None:
                return
            if writing.appended - writing.last < _MOST_UNACKNOWLEDGED and not world.quiet:
                writing.append(self._payloads(writing.appended))
            await self._process.sleep(self._random.expovariate(1 / 0.03))
        while world.quiet:
            # It is looked at how its entries lie.
            await self._process.sleep(1)
        if self._random.random() < 0.7:
            last, length = await writer.close()
            world.trace.note(name, "closed", writer.ledger_id, last)
            world.truth.was_closed(writer.ledger_id, last, length)

    def _payloads(self, first: int) -> list[bytes]:
        random = self._random
        many = random.choice((1, 1, 2, 5, 30))
        size = random.choice((0, 10, 100, 100, 3000))
        return [
            b"%s %d " % (self._process.name.encode(), first + number) + b"x" * size for number in range(many)
        ]


async def recovered(world: World, name: str, store: LedgerStore, ledger_id: int) -> None:
    """Opens a ledger for recovery, and says what came of it."""
    world.trace.note(name, "recovers", ledger_id)
    reader = await store.open(ledger_id, recover=True)
    metadata = reader.metadata
    world.trace.note(name, "recovered", ledger_id, metadata.last_entry_id)
    world.truth.was_closed(ledger_id, metadata.last_entry_id, metadata.length)
    reader.close()


class Onlooker:
    """Reads what is written, and now and then recovers what somebody writes."""

    def __init__(self, process: Process, random: Random) -> None:
        self._process = process
        self._world = process.world
        self._random = random

    async def run(self) -> None:
        process, world, random = self._process, self._world, self._random
        while True:
            await process.sleep(random.expovariate(1 / 0.4))
            if not world.chain or process.store is None:
                continue
            ledger_id = world.chain[-1] if random.random() < 0.7 else random.choice(world.chain)
            asked_at = world.loop.time()
            try:
                if random.random() < 0.04 and not world.quiet:
                    await recovered(world, process.name, process.store, ledger_id)
                else:
                    await self._look(process.store, ledger_id)
            except NoSuchLedger:
                truth = world.truth
                if not truth.ledgers[ledger_id].deleted and truth.is_known(ledger_id, asked_at):
                    raise Violation(f"ledger {ledger_id} is gone") from None
            except TROUBLE as error:
                world.trace.note(process.name, "cannot read", ledger_id, repr(error))

    async def _look(self, store: LedgerStore, ledger_id: int) -> None:
        reader = await store.open(ledger_id, recover=False)
        try:
            for _ in range(self._random.randrange(1, 4)):
                last = await reader.last_add_confirmed()
                self._world.trace.note(self._process.name, "sees", ledger_id, last)
                self._world.truth.was_confirmed(ledger_id, last)
                if last >= 0:
                    await self._read(reader, ledger_id, self._random.randrange(last + 1))
                await self._process.sleep(self._random.random() / 5)
        finally:
            reader.close()

    async def _read(self, reader: LedgerReader, ledger_id: int, first: int) -> None:
        last = first + self._random.choice((0, 5, 1000))
        runs = await reader.read(first, last, self._random.choice((1, 1000, _READ_BYTES)))
        if not runs or runs[0].first_entry_id != first or runs[-1].last_entry_id > last:
            raise Violation(f"ledger {ledger_id}: {runs} for {first} to {last}")
        self._world.truth.was_read(ledger_id, runs)


async def judge(process: Process) -> None:
    """Recovers and reads all there is, when nothing goes wrong any more."""
    world = process.world
    for ledger_id in world.chain:
        if world.truth.ledgers[ledger_id].deleted:
            continue
        for tries in count():
            try:
                await _judge(process, ledger_id)
                break
            except TROUBLE as error:
                # Connections still end now and then.
                if tries == _TRIES:
                    raise Violation(f"ledger {ledger_id} cannot be recovered and read: {error!r}") from error
                await process.sleep(1)


async def _judge(process: Process, ledger_id: int) -> None:
    world, store = process.world, process.store
    assert store is not None
    await recovered(world, process.name, store, ledger_id)
    closed = world.truth.ledgers[ledger_id].closed
    assert closed is not None
    reader = await store.open(ledger_id, recover=False)
    first = 0
    while first <= closed[0]:
        runs = await reader.read(first, closed[0], _READ_BYTES)
        world.truth.was_read(ledger_id, runs)
        first = runs[-1].last_entry_id + 1
    reader.close()
    record = world.truth.record(ledger_id)
    assert record is not None
    for entry_id in range(closed[0] + 1):
        if world.truth.holders(record, ledger_id, entry_id) < record.quorums.ack:
            raise Violation(f"entry {entry_id} of ledger {ledger_id} ended below its ack quorum")
