"""Random use of managed ledgers with cursors - publish, acknowledge, roll, trim - and a memory of it."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from ledger_workload import MINIATURE as MINIATURE_STORE
from simulated_io import Simulation

from magnetar.io.wheel import TimerWheel
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings, RetentionSettings
from magnetar.metadata.embedded import EmbeddedMetadataStore

MINIATURE = ManagedLedgerSettings(
    max_entries_per_ledger=7,
    min_rollover_ms=0,
    cursor_max_entries_per_ledger=5,
    max_unacked_ranges_to_persist=2,
    max_unacked_ranges_in_metadata=2,
    read_max_entries=3,
    read_ahead_bytes=2048,
)
MINIATURE_CACHE = EntryCacheSettings(max_bytes=16 << 10)
_DEFAULT_STORE = EmbeddedSettings(segment_bytes=1 << 20, first_segment_bytes=64 << 10, reserve_bytes=0)
_CURSORS = ("a", "b")


@dataclass
class CursorMemory:
    """What is known of one cursor."""

    exists: bool = False
    """Its creation was answered."""
    acknowledged: set[bytes] = field(default_factory=set)
    """Entries acknowledged, durably or not."""
    certain: set[bytes] = field(default_factory=set)
    """Entries that must never come again: acknowledged when the state was known to be durable."""
    batches: dict[bytes, int] = field(default_factory=dict)
    """Remaining bits of batches acknowledged in part, when the state was known to be durable."""


@dataclass
class LedgerMemory:
    """What is known of one managed ledger."""

    sent: dict[bytes, int] = field(default_factory=dict)
    """Every entry ever appended, numbered in the order of the appends."""
    stored: set[bytes] = field(default_factory=set)
    """Those whose append was acknowledged."""
    cursors: dict[str, CursorMemory] = field(
        default_factory=lambda: {name: CursorMemory() for name in _CURSORS}
    )


class Topic:
    """One managed ledger under work."""

    def __init__(self, name: str, memory: LedgerMemory, random: Random) -> None:
        self.name = name
        self.memory = memory
        self.random = random
        self.ledger: ManagedLedger
        self.positions: dict[bytes, Position] = {}
        self.last_confirmed: Position = (-1, -1)

    def on_durable(self, appends: Sequence[Append]) -> None:
        for operation in appends:
            for index in range(operation.count):
                slot = operation.first + index
                entry = operation.buffer[operation.starts[slot] : operation.ends[slot]]
                position = (operation.ledger_id, operation.first_entry_id + index)
                assert position > self.last_confirmed, f"{position} acknowledged after {self.last_confirmed}"
                self.last_confirmed = position
                self.memory.stored.add(entry)
                self.positions[entry] = position

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        """Nothing is known of them: they may be there or not."""

    def on_fenced(self) -> None:
        raise AssertionError("nobody else is there")

    def fail(self, error: BaseException) -> None:
        raise error

    def append(self) -> None:
        """A run of entries in a buffer that holds other bytes, too."""
        buffer = b""
        starts, ends = array("q"), array("q")
        for _ in range(self.random.choice((1, 1, 2, 5, 12))):
            entry = f"{self.name}-{len(self.memory.sent)}-".encode() + bytes(self.random.randrange(200))
            self.memory.sent[entry] = len(self.memory.sent)
            buffer += b"??"
            starts.append(len(buffer))
            buffer += entry
            ends.append(len(buffer))
        self.ledger.append(buffer, starts, ends, len(starts), sum(ends) - sum(starts), None)


class ManagedLedgerWorkload:
    """A ``Workload`` (see power_cut.py)."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._miniature = bool(seed % 2)
        self._memories = {f"t/n/persistent/{i}": LedgerMemory() for i in range(2)}
        self._managed: ManagedLedgerFactory
        self._store: EmbeddedLedgerStore
        self._metadata: EmbeddedMetadataStore
        self._topics: list[Topic] = []
        self.checked_entries = 0
        self.rolled = 0

    async def begin(self, simulation: Simulation) -> None:
        io = simulation.io
        store_settings = MINIATURE_STORE if self._miniature else _DEFAULT_STORE
        self._store = await EmbeddedLedgerStore.open_store(io, "ledgers", store_settings)
        io.disk.make_directory("metadata")
        self._metadata = await EmbeddedMetadataStore.open_store(io, "metadata/metadata.sqlite")
        settings = MINIATURE if self._miniature else ManagedLedgerSettings(retention=RetentionSettings())
        cache = MINIATURE_CACHE if self._miniature else EntryCacheSettings()
        wheel = TimerWheel(io.loop)
        self._managed = ManagedLedgerFactory(io, wheel, self._store, self._metadata, settings, cache)
        await self._managed.orphaned_ledgers(0).look(await self._store.ledger_ids())
        self._topics = []
        for name, memory in self._memories.items():
            topic = Topic(name, memory, self._random)
            topic.ledger = await self._managed.open(name, create=True)
            topic.ledger.listener = topic
            topic.last_confirmed = topic.ledger.last_confirmed
            await self._open_cursors(topic)
            self._topics.append(topic)

    async def _open_cursors(self, topic: Topic) -> None:
        expected = {name for name, known in topic.memory.cursors.items() if known.exists}
        missing = expected - set(topic.ledger.cursors)
        assert not missing, f"{topic.name}: cursors {missing} are gone"
        for name, known in topic.memory.cursors.items():
            cursor = topic.ledger.cursors.get(name)
            if cursor is not None:
                await self._check(topic, cursor, known)
        for name, known in topic.memory.cursors.items():
            if name not in topic.ledger.cursors:
                await self._managed.open_cursor(topic.ledger, name, EARLIEST, {})
                known.exists = True

    async def _check(self, topic: Topic, cursor: Cursor, known: CursorMemory) -> None:
        """Reads everything a cursor has left, and compares."""
        delivered: list[bytes] = []
        while cursor.has_more():
            run = await cursor.read(100, 1 << 20)
            assert run is not None
            for first, end in cursor.unconsumed_parts(run):
                for index in range(first, end):
                    delivered.append(run.entry(index))
                    topic.positions[delivered[-1]] = (run.ledger_id, run.first_entry_id + index)
        cursor.rewind()
        memory = topic.memory
        numbers = [memory.sent.get(entry, -1) for entry in delivered]
        assert -1 not in numbers, f"{topic.name}: an entry that was never sent"
        assert numbers == sorted(set(numbers)), f"{topic.name}: out of order or twice: {numbers}"
        got = set(delivered)
        lost = memory.stored - known.acknowledged - got
        assert not lost, f"{topic.name} {cursor.name}: {len(lost)} acknowledged entries are missing"
        again = got & known.certain
        assert not again, f"{topic.name} {cursor.name}: {len(again)} entries again that were durably consumed"
        # With miniature limits a batch acknowledged to its end may find no place among the ranges: nothing
        # is known of it then.
        forgotten = known.acknowledged & got if self._miniature else set[bytes]()
        known.batches = {e: bits for e, bits in known.batches.items() if e in got and e not in forgotten}
        for entry, bits in known.batches.items():
            left = cursor.remaining_bits(*topic.positions[entry])
            assert left is not None, f"{topic.name}: the state of a batch is gone"
            assert left & ~bits == 0, f"{topic.name}: messages of a batch came back"
        known.acknowledged -= got
        known.certain -= got
        # An entry whose append was cut short and that is there now will stay.
        memory.stored |= got
        self.checked_entries += len(delivered)

    async def work(self) -> None:
        await asyncio.gather(*(self._act(topic) for topic in self._topics for _ in range(2)))

    async def _act(self, topic: Topic) -> None:
        while True:
            await asyncio.sleep(self._random.random() * 0.004)
            choice = self._random.random()
            if choice < 0.5:
                topic.append()
            else:
                cursor = topic.ledger.cursors[self._random.choice(_CURSORS)]
                known = topic.memory.cursors[cursor.name]
                if choice < 0.9:
                    await self._consume(topic, cursor, known)
                elif choice < 0.97:
                    await self._make_certain(topic, cursor, known)
                else:
                    cursor.rewind()

    async def _consume(self, topic: Topic, cursor: Cursor, known: CursorMemory) -> None:
        run = await cursor.read(self._random.randrange(1, 12), 1 << 16)
        if run is None:
            return
        entries = {run.first_entry_id + i: run.entry(i) for i in range(run.count)}
        style = self._random.random()
        if style < 0.4:
            cursor.mark_delete_to((run.ledger_id, run.last_entry_id))
            self._note_prefix(topic, cursor, known)
        elif style < 0.85:
            chosen = [e for e in entries if self._random.random() < 0.7]
            self._random.shuffle(chosen)
            ids = array("q", chosen)
            cursor.delete_run(array("q", [run.ledger_id] * len(chosen)), ids, len(chosen))
            known.acknowledged.update(entries[e] for e in chosen)
        else:
            entry_id = self._random.choice(list(entries))
            cursor.consume_batch_indexes(run.ledger_id, entry_id, self._random.getrandbits(8) | 1, 8)

    def _note_prefix(self, topic: Topic, cursor: Cursor, known: CursorMemory) -> None:
        for entry, position in topic.positions.items():
            if position <= cursor.mark_delete:
                known.acknowledged.add(entry)

    async def _make_certain(self, topic: Topic, cursor: Cursor, known: CursorMemory) -> None:
        """What is consumed now and what the limits let be written stays consumed for ever."""
        state = cursor.state.copy()
        # With miniature limits a later, lower range may take a written one's place: only the prefix is
        # certain.
        limit = 0 if self._miniature else 10_000
        kept = {
            (ledger, entry)
            for ledger, start, end in state.ranges_in_order(limit)
            for entry in range(start, end)
        }
        batches = dict(state.batches_in_order(10_000))
        await cursor.flush()
        for entry, position in topic.positions.items():
            if position <= state.mark_delete or position in kept:
                known.certain.add(entry)
            if position in batches:
                known.batches[entry] = batches[position]

    async def end(self) -> None:
        """A clean stop: nothing acknowledged comes again, as far as the limits let it be written."""
        for topic in self._topics:
            for cursor in topic.ledger.cursors.values():
                await self._make_certain(topic, cursor, topic.memory.cursors[cursor.name])
            self.rolled += len(topic.ledger.ledgers)
            await self._managed.close(topic.ledger)
        await self._store.close()
        await self._metadata.close()
