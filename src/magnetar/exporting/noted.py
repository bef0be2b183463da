"""The ledgers that an export has created for a topic, each recorded before entries are written to it.

Each record is a metadata node below the node of the topic's export note, and is named after the source
ledger. So an interrupted export can continue with the complete copies, and delete the incomplete ones.
"""

from __future__ import annotations

import json
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.exporting.stored_topics import OpenStores
from magnetar.io.interfaces import Future, Loop
from magnetar.io.slices import let_others
from magnetar.io.waiting import fail, settle
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import (
    EntryRun,
    LedgerError,
    LedgerReader,
    LedgerState,
    LedgerStore,
    LedgerWriter,
    NoSuchLedger,
    Quorums,
)
from magnetar.managed_ledger.errors import MetadataDamaged
from magnetar.managed_ledger.exports import ExportNote, ExportState, encode_note, note_path
from magnetar.metadata.interface import NodeMissing

if TYPE_CHECKING:
    from magnetar.ledger.embedded.ledger_reader import EmbeddedReadPlans


_COMPONENT = b"magnetar-export"
_EXPORT = "magnetar/export"
_COPY = "copy-"
_STATE = "state-"
_MOST_IN_DOUBT = 10_000
"""The maximum number of ids that are checked to find ledgers that were created but not recorded."""
_READ_BYTES = 1 << 20
_MOST_ON_WAY = 8 << 20
"""The maximum number of bytes in flight to the target store."""
Rewrite = Callable[[bytes], bytes]
"""Returns an entry in its form for the target store."""


@dataclass(frozen=True)
class NotedLedger:
    new: int
    contents: LedgerContents | None = None
    """The verified contents; None: the copy may be incomplete."""
    gone: bool = False
    """Whether the ledger is only a placeholder: an empty ledger whose id replaces the id of a deleted
    ledger.
    """
    topic: str = ""
    """The managed ledger whose messages the ledger contains; empty: the ledger has no messages."""


class NotedLedgers:
    """The recorded ledgers of one topic, in the metadata of the target.

    :param names: a ledger belongs to this topic if its custom metadata contains one of these values
    """

    def __init__(self, side: OpenStores, unit: str, note: ExportNote, names: frozenset[bytes]) -> None:
        self._side = side
        self._path = note_path(unit)
        self._placeholder = {"application": b"pulsar", "component": _COMPONENT, _EXPORT: unit.encode()}
        self._names = names | {unit.encode()}
        self.note = note
        self.copies: dict[int, NotedLedger] = {}
        """Copies by the id of their source ledger."""
        self.states: set[int] = set()
        """The ids of ledgers that the export created for the states of cursors."""

    async def begin(self) -> None:
        """Creates the topic's note, with a ledger id that is lower than the ids of all ledgers that the
        export creates.
        """
        await self._write()
        self.note = replace(self.note, after=await self._probe())
        await self._write()

    async def resume(self) -> None:
        """Reads the notes of an earlier run, and deletes ledgers that the earlier run created but did not
        record.

        :raises MetadataDamaged: a note cannot be read
        """
        await self.read()
        probe = await self._probe()
        known = [self.note.after, *(each.new for each in self.copies.values()), *self.states]
        for ledger_id in range(max(max(known) + 1, probe - _MOST_IN_DOUBT), probe):
            await self._delete_if_ours(ledger_id)
        self.note = replace(self.note, after=probe)
        await self._write()

    async def read(self) -> None:
        """Reads the notes of earlier runs.

        :raises MetadataDamaged: a note cannot be read
        """
        metadata = self._side.metadata
        for name in await metadata.children(self._path):
            node = await metadata.get(f"{self._path}/{name}")
            if node is None:
                continue
            try:
                if name.startswith(_STATE):
                    self.states.add(int(name.removeprefix(_STATE)))
                else:
                    self.copies[int(name.removeprefix(_COPY))] = _decoded(json.loads(node.value))
            except (ValueError, KeyError, TypeError) as error:
                raise MetadataDamaged(
                    f"{node.path} is not the record of an exported ledger: {error}"
                ) from error

    async def _probe(self) -> int:
        """Creates and deletes a ledger to get a new id; ledgers that are created later have higher ids."""
        writer = await self._side.ledgers.create(self._side.managed.settings.quorums, self._placeholder)
        await writer.close()
        await self._side.ledgers.delete(writer.ledger_id)
        return writer.ledger_id

    async def _delete_if_ours(self, ledger_id: int) -> None:
        try:
            reader = await self._side.ledgers.open(ledger_id, recover=False)
        except NoSuchLedger:
            return
        ours = not self._names.isdisjoint(reader.metadata.custom.values())
        reader.close()
        if ours:
            await self._side.ledgers.delete(ledger_id)

    async def become(self, state: ExportState) -> None:
        """Records the new state of the export."""
        self.note = replace(self.note, state=state)
        await self._write()

    async def _write(self) -> None:
        await self._side.metadata.put(self._path, encode_note(self.note))

    # Copies

    async def create(
        self, old: int, quorums: Quorums, custom: Mapping[str, bytes], topic: str = ""
    ) -> LedgerWriter:
        """Creates the ledger for the copy of the source ledger with the id ``old``.

        :param topic: the managed ledger whose messages the ledger gets; empty: the ledger gets no messages
        """
        writer = await self._side.ledgers.create(quorums, custom)
        await self._note(old, NotedLedger(writer.ledger_id, topic=topic))
        return writer

    async def create_placeholder(self, old: int, quorums: Quorums, topic: str) -> None:
        """Creates an empty ledger, whose id replaces the id ``old`` of a deleted source ledger."""
        await (await self.create(old, quorums, self._placeholder, topic)).close()

    async def finish(self, old: int, contents: LedgerContents | None) -> None:
        """Records that the copy of a ledger is complete.

        :param contents: the verified contents; None: the source no longer has the ledger, so there is no copy
        """
        await self._note(old, replace(self.copies[old], contents=contents, gone=contents is None))

    async def _note(self, old: int, ledger: NotedLedger) -> None:
        record: dict[str, object] = {"new": ledger.new, "topic": ledger.topic}
        if ledger.contents is not None:
            record |= {"contents": list(ledger.contents)}
        if ledger.gone:
            record["gone"] = True
        await self._side.metadata.put(f"{self._path}/{_COPY}{old}", json.dumps(record).encode())
        self.copies[old] = ledger

    async def is_there(self, ledger: NotedLedger) -> bool:
        """Whether the copy of a ledger exists with the recorded number of entries and size.

        A ledger that was recorded as gone needs no copy, so the answer is true.
        """
        if ledger.gone:
            return True
        if ledger.contents is None:
            return False
        try:
            reader = await self._side.ledgers.open(ledger.new, recover=False)
        except NoSuchLedger:
            return False
        found = reader.metadata
        reader.close()
        closed = found.state is LedgerState.CLOSED
        return closed and (found.last_entry_id + 1, found.length) == ledger.contents[:2]

    async def drop(self, old: int) -> None:
        """Deletes the copy of the source ledger ``old``, because the copy is not needed."""
        await self._side.ledgers.delete(self.copies[old].new)
        await self._forget(f"{_COPY}{old}")
        del self.copies[old]

    # States of cursors

    async def drop_states(self) -> None:
        """Deletes the ledgers that the export created for the states of cursors."""
        for ledger_id in sorted(self.states):
            await self._side.ledgers.delete(ledger_id)
            await self._forget(f"{_STATE}{ledger_id}")
        self.states.clear()

    async def note_state(self, ledger_id: int) -> None:
        await self._side.metadata.put(f"{self._path}/{_STATE}{ledger_id}", b"")
        self.states.add(ledger_id)

    async def _forget(self, name: str) -> None:
        try:
            await self._side.metadata.delete(f"{self._path}/{name}")
        except NodeMissing:
            return

    async def remove(self) -> None:
        """Removes the notes, at the end of the export."""
        for name in await self._side.metadata.children(self._path):
            await self._forget(name)
        try:
            await self._side.metadata.delete(self._path)
        except NodeMissing:
            return


def _decoded(record: Any) -> NotedLedger:
    found = record.get("contents")
    contents = None if found is None else LedgerContents(int(found[0]), int(found[1]), str(found[2]))
    return NotedLedger(int(record["new"]), contents, bool(record.get("gone")), str(record["topic"]))


class CursorLedgers:
    """A ``LedgerStore`` for the states of a topic's cursors that records the ledgers it creates."""

    def __init__(self, store: LedgerStore, noted: NotedLedgers) -> None:
        self.cursor_write_interval = store.cursor_write_interval
        self._store = store
        self._noted = noted

    @property
    def read_plans(self) -> EmbeddedReadPlans | None:
        return None

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> LedgerWriter:
        writer = await self._store.create(quorums, custom, high_priority=high_priority)
        await self._noted.note_state(writer.ledger_id)
        return writer

    async def open(self, ledger_id: int, *, recover: bool) -> LedgerReader:
        return await self._store.open(ledger_id, recover=recover)

    def may_be_written(self, ledger_id: int) -> bool:
        return self._store.may_be_written(ledger_id)

    async def delete(self, ledger_id: int) -> None:
        await self._store.delete(ledger_id)

    async def ledger_ids(self) -> Sequence[int]:
        return await self._store.ledger_ids()

    async def close(self) -> None:
        """Does nothing, because the caller owns the store."""


class LedgerContents(NamedTuple):
    """The size and digest of a ledger's entries."""

    entries: int
    size: int
    """The total size of all entries, in bytes."""
    digest: str
    """The SHA-256, in hexadecimal digits, of all entries, each preceded by its size in 8 bytes."""


class _Digest:
    def __init__(self) -> None:
        self._hash = sha256()
        self.entries = 0
        self.size = 0

    def add(self, entry: bytes | memoryview) -> None:
        self._hash.update(len(entry).to_bytes(8, "big"))
        self._hash.update(entry)
        self.entries += 1
        self.size += len(entry)

    def contents(self) -> LedgerContents:
        return LedgerContents(self.entries, self.size, self._hash.hexdigest())


class _Filling:
    """Appends entries with a ledger writer, and limits the number of bytes that are not durable yet."""

    def __init__(self, loop: Loop, writer: LedgerWriter) -> None:
        self._loop = loop
        self._writer = writer
        self._on_way: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._waiter: Future[None] | None = None
        self._failure: LedgerError | None = None
        writer.set_listener(self)

    async def append(
        self, buffer: bytes, starts: array[int], ends: array[int], count: int, size: int
    ) -> None:
        """Appends ``count`` entries to the copy; then waits while too many bytes are not durable yet.

        :param starts: the index in ``buffer`` of each entry's first byte; ``ends`` has the index after the
            last byte
        :param size: the total size of the entries, in bytes
        :raises LedgerError: the ledger accepts no more entries
        """
        first = self._writer.append(buffer, starts, ends, 0, count)
        self._on_way.append((first + count - 1, size))
        self._bytes += size
        while self._bytes > _MOST_ON_WAY:
            if self._failure is not None:
                raise self._failure
            self._waiter = self._loop.create_future()
            await self._waiter

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        while self._on_way and self._on_way[0][0] <= last_entry_id:
            self._bytes -= self._on_way.popleft()[1]
        if self._waiter is not None:
            settle(self._waiter)

    def on_failed(self, _ledger_id: int, _first_entry_id: int, reason: LedgerError) -> None:
        self._failure = reason
        if self._waiter is not None:
            fail(self._waiter, reason)


async def fill(
    loop: Loop, reader: LedgerReader, last: int, writer: LedgerWriter, rewrite: Rewrite | None = None
) -> LedgerContents:
    """Copies entries 0 … ``last`` of a ledger to a new ledger and closes the new ledger; on return, the copy
    is durable.

    :raises LedgerError: an entry cannot be read or written
    """
    filling, digest = _Filling(loop, writer), _Digest()
    at = 0
    while at <= last:
        for run in await reader.read(at, last, _READ_BYTES):
            if run.first_entry_id != at:
                raise LedgerError(
                    f"the ledger returned entry {run.ledger_id}:{run.first_entry_id} instead of entry {at}"
                )
            if rewrite is None:
                _add(digest, run)
                await filling.append(run.buffer, run.starts, run.ends, run.count, run.size())
            else:
                buffer, ends = _rewritten(digest, run, rewrite)
                starts = array("q", (0, *ends[:-1]))
                await filling.append(buffer, starts, ends, run.count, len(buffer))
            at += run.count
        await let_others(loop)
    end, length = await writer.close()
    contents = digest.contents()
    if (end + 1, length) != contents[:2]:
        raise LedgerError(
            f"ledger {writer.ledger_id} has {end + 1} entries with {length} bytes in total, but "
            f"{contents.entries} entries with {contents.size} bytes were written"
        )
    return contents


def _add(digest: _Digest, run: EntryRun) -> None:
    view = memoryview(run.buffer)
    for index in range(run.count):
        digest.add(view[run.starts[index] : run.ends[index]])


def _rewritten(digest: _Digest, run: EntryRun, rewrite: Rewrite) -> tuple[bytes, array[int]]:
    pieces, ends, size = [], array("q"), 0
    for index in range(run.count):
        piece = rewrite(run.entry(index))
        digest.add(piece)
        pieces.append(piece)
        size += len(piece)
        ends.append(size)
    return b"".join(pieces), ends


async def contents_of(loop: Loop, reader: LedgerReader) -> LedgerContents:
    """Reads all entries of a closed ledger; returns their number, size and digest.

    :raises LedgerError: the ledger cannot be read
    """
    digest = _Digest()
    last = reader.metadata.last_entry_id
    while digest.entries <= last:
        for run in await reader.read(digest.entries, last, _READ_BYTES):
            _add(digest, run)
        await let_others(loop)
    return digest.contents()
