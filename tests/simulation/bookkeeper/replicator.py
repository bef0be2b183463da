"""What BookKeeper's AutoRecovery does to ledgers of bookies that it misses, or that are taken out of service.

Entries of segments that nobody adds to are copied to another bookie, which takes the place of the missing one
in the metadata. A ledger that may still be written there is recovered first.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from simulated_bookkeeper import ROOT

from magnetar.io.waiting import outcome
from magnetar.ledger.bookkeeper.bookies import Use
from magnetar.ledger.bookkeeper.digests import Digest, master_key
from magnetar.ledger.bookkeeper.frames import Flag, Status
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, Segment
from magnetar.ledger.bookkeeper.question import (
    Question,
    ReadingMemory,
    RequestContext,
    StoredEntry,
    all_answered,
)
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore
from magnetar.ledger.interface import LedgerError, LedgerState
from magnetar.metadata.interface import BadVersion
from simulation.bookkeeper.actors import recovered
from simulation.bookkeeper.world import TROUBLE, Process, World

_TRIES = 5
"""Of a change to the metadata."""


class GivenUp(LedgerError):
    """The replicator comes back for the ledger another time."""


class Replicator:
    """The auditor, and a worker that copies."""

    def __init__(self, process: Process, random: Random) -> None:
        self._process = process
        self._world = process.world
        self._random = random

    async def run(self) -> None:
        process, world, random = self._process, self._world, self._random
        while True:
            await process.sleep(random.expovariate(1.0))
            if not world.chain or process.store is None or world.quiet:
                continue
            missed = self._missed()
            ledgers = [ledger_id for ledger_id in world.chain if self._has(ledger_id, missed)]
            if missed is None or not ledgers:
                continue
            ledger_id = random.choice(ledgers)
            assert isinstance(process.store, BookKeeperLedgerStore)
            world.copying.add(ledger_id)
            try:
                await _Copying(world, process, random, process.store, ledger_id, missed).run()
            except TROUBLE as error:
                world.trace.note(process.name, "does not copy", ledger_id, repr(error))
            world.copying.discard(ledger_id)

    def _has(self, ledger_id: int, bookie_id: str | None) -> bool:
        record = self._world.truth.record(ledger_id)
        return record is not None and any(bookie_id in segment.ensemble for segment in record.segments)

    def _missed(self) -> str | None:
        """A bookie that is not registered, or one that its operator takes out of service."""
        world, random = self._world, self._random
        nodes = world.servers.zookeeper.model.nodes
        ids = [bookie.bookie_id for bookie in world.servers.bookies]
        gone = [bookie_id for bookie_id in ids if f"{ROOT}/available/{bookie_id}" not in nodes]
        if gone:
            return random.choice(gone)
        return random.choice(ids) if random.random() < 0.2 else None


class _Copying:
    """One ledger, as far as one bookie is missed in it."""

    def __init__(
        self,
        world: World,
        process: Process,
        random: Random,
        store: BookKeeperLedgerStore,
        ledger_id: int,
        missed: str,
    ) -> None:
        self._world = world
        self._process = process
        self._random = random
        self._store = store
        self._ledger_id = ledger_id
        self._missed = missed

    async def run(self) -> None:
        """:raises LedgerError: not now"""
        record = (await self._store.records.read(self._ledger_id)).record
        if record.state is not LedgerState.CLOSED and self._missed in record.segments[-1].ensemble:
            # The writer may find out itself that it is gone.
            await self._process.sleep(2 * self._random.random())
            record = (await self._store.records.read(self._ledger_id)).record
            if record.state is not LedgerState.CLOSED and self._missed in record.segments[-1].ensemble:
                await recovered(self._world, self._process.name, self._store, self._ledger_id)
                record = (await self._store.records.read(self._ledger_id)).record
        reader = await self._store.open(self._ledger_id, recover=False)
        confirmed = await reader.last_add_confirmed()
        reader.close()
        for number, segment in enumerate(record.segments):
            last = record.end_of_segment(segment.first_entry_id)
            if number + 1 == len(record.segments):
                if record.state is not LedgerState.CLOSED:
                    return
                last = record.last_entry_id
            if self._missed in segment.ensemble:
                await self._copy(record, segment, last, confirmed)

    async def _copy(self, record: LedgerRecord, segment: Segment, last: int, confirmed: int) -> None:
        others = [each for each in self._store.bookies.writable if each not in segment.ensemble]
        if not others:
            raise GivenUp("there is no other bookie")
        instead = self._random.choice(others)
        index = segment.ensemble.index(self._missed)
        for entry_id in range(segment.first_entry_id, last + 1):
            if index in record.write_set(entry_id):
                await self._copy_entry(record, entry_id, confirmed, instead)
        ensemble = tuple(instead if each == self._missed else each for each in segment.ensemble)
        for _ in range(_TRIES):
            found = await self._store.records.read(self._ledger_id)
            if segment not in found.record.segments:
                raise GivenUp("the segment is another one now")
            copied = Segment(segment.first_entry_id, ensemble)
            segments = tuple(copied if each == segment else each for each in found.record.segments)
            try:
                await self._store.records.write(
                    self._ledger_id, replace(found.record, segments=segments), found.version
                )
            except BadVersion:
                continue
            self._world.trace.note(
                self._process.name, "copied", self._ledger_id, segment.first_entry_id, self._missed, instead
            )
            self._world.copied += 1
            return
        raise GivenUp("the metadata changes all the time")

    async def _copy_entry(self, record: LedgerRecord, entry_id: int, confirmed: int, instead: str) -> None:
        digest = Digest(record.digest, record.password)
        entry = await self._entry(record, digest, entry_id)
        loop = self._process.loop
        payload = memoryview(entry.data)[entry.said.start :]
        # It says that all is confirmed that the replicator knows of, the entry itself included.
        head = digest.head(self._ledger_id, entry_id, confirmed, entry.said.length, payload)
        stored = loop.create_future()
        self._store.bookies.bookie(instead, Use.RECOVERING).add(
            self._ledger_id,
            entry_id,
            master_key(record.password),
            (head, payload),
            lambda status, _bodies: stored.set_result(status),
            Flag.RECOVERY_ADD,
        )
        status = await outcome(loop, stored)
        if status != Status.OK:
            raise GivenUp(f"{instead} takes no entry: {status}")

    async def _entry(self, record: LedgerRecord, digest: Digest, entry_id: int) -> StoredEntry:
        ensemble = record.ensemble_of(entry_id)
        loop = self._process.loop
        asking = RequestContext(
            loop,
            self._ledger_id,
            digest,
            lambda bookie_id: self._store.bookies.bookie(bookie_id, Use.READING),
            ReadingMemory(self._process.clock),
        )
        question = Question(asking, [ensemble[index] for index in record.write_set(entry_id)], entry_id)
        await all_answered(loop, [question])
        if not question.entries:
            raise GivenUp(f"entry {entry_id}: {question.story()}")
        return question.entries[0]
