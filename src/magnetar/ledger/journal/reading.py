"""Finds the metadata journals of a ledger store, and reads a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import field

from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import DataDamaged, LedgerReader
from magnetar.ledger.journal.records import (
    COMPONENT,
    CONTINUES,
    Header,
    Record,
    RecordKind,
    decode_header,
    decode_record,
)
from magnetar.metadata.interface import Node
from magnetar.metadata.progress import Numbered, Tally

_READ_BYTES = 1 << 20


@dataclass
class Journal:
    """A chain of ledgers, each the continuation of the one before; the first begins with a snapshot."""

    ledgers: list[int]
    """The ids of the journal's ledgers, in their order."""
    whole: bool
    """Whether the first ledger of the journal exists. If not, the journal lacks metadata, and only the
    generation in its last entry is used."""
    last: Header | None = None
    """The header of the last entry; None: the journal has no entries."""

    def ends_at(self, generation: int, tally: Tally) -> bool:
        """Whether the journal contains all metadata as of a generation, so that it can be continued.

        :param tally: the number and the checksum of the metadata's nodes at this generation
        """
        last = self.last
        if last is None or not self.whole or not last.complete or last.kind is RecordKind.MORE_EDITS:
            return False
        return (last.generation, last.tally) == (generation, tally)


async def find_journals(store: EmbeddedLedgerStore) -> list[Journal]:
    """Returns all journals, the oldest first.

    :raises DataDamaged: a journal's last entry cannot be read
    """
    found: list[Journal] = []
    by_last: dict[int, Journal] = {}
    for known in store.ledgers_of(COMPONENT):
        told = known.custom.get(CONTINUES)
        journal = by_last.pop(int(told), None) if told is not None else None
        if journal is None:
            journal = Journal([], whole=told is None)
            found.append(journal)
        journal.ledgers.append(known.ledger_id)
        by_last[known.ledger_id] = journal
        last = await _last_header(store, known.ledger_id)
        if last is not None:
            journal.last = last
    return found


def newest(journals: list[Journal]) -> Header | None:
    """Returns the header of the newest generation in any journal; None if there are no entries."""
    known = [journal.last for journal in journals if journal.last is not None]
    return max(known, key=lambda header: header.generation, default=None)


async def _last_header(store: EmbeddedLedgerStore, ledger_id: int) -> Header | None:
    reader = await store.open(ledger_id, recover=False)
    try:
        last = reader.metadata.last_entry_id
        if last < 0:
            return None
        runs = await reader.read(last, last, 1)
        return decode_header(runs[0].entry(0), f"entry {last} of ledger {ledger_id}")
    finally:
        reader.close()


@dataclass
class Tree:
    """The metadata in a journal."""

    nodes: dict[str, Node] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    """The number of the next sequential child of each node, by the parent's path."""
    _edited: set[str] = field(default_factory=set)
    """Paths that edits have set. Parts come in the order of their ranges, so only these paths can already
    exist in the range of a later part."""

    def tally(self) -> Tally:
        found = Tally()
        for node in self.nodes.values():
            found = found.plus(node)
        return found

    def apply(self, record: Record) -> None:
        part = record.header.kind is RecordKind.PART
        if part:
            self._clear(record.after, record.upto)
        for edit in record.edits:
            if isinstance(edit, Numbered):
                self.numbers[edit.parent] = edit.following
            elif isinstance(edit, str):
                self.nodes.pop(edit, None)
            else:
                self.nodes[edit.path] = edit
                if not part:
                    self._edited.add(edit.path)

    def _clear(self, after: str, upto: str) -> None:
        for path in [path for path in self._edited if path > after and (not upto or path <= upto)]:
            self._edited.discard(path)
            self.nodes.pop(path, None)


async def read_journal(store: EmbeddedLedgerStore, journal: Journal) -> tuple[Tree, Header]:
    """Returns the metadata as of the last transaction of which the journal has all entries.

    :raises DataDamaged: an entry cannot be read, or the nodes are not those that were written
    """
    tree = Tree()
    waiting: list[Record] = []
    last: Header | None = None
    for ledger_id in journal.ledgers:
        async for record in _records(store, ledger_id):
            waiting.append(record)
            if record.header.kind is not RecordKind.MORE_EDITS:
                for each in waiting:
                    tree.apply(each)
                waiting.clear()
                last = record.header
    name = f"the metadata journal in ledger {journal.ledgers[0]}"
    if last is None or not last.complete:
        raise DataDamaged(f"{name} does not contain all of the metadata")
    if tree.tally() != last.tally:
        raise DataDamaged(
            f"{name} has {len(tree.nodes)} nodes, which differ from the {last.tally.nodes} that were written"
        )
    return tree, last


async def _records(store: EmbeddedLedgerStore, ledger_id: int) -> AsyncIterator[Record]:
    reader: LedgerReader = await store.open(ledger_id, recover=False)
    try:
        at, last = 0, reader.metadata.last_entry_id
        while at <= last:
            for run in await reader.read(at, last, _READ_BYTES):
                for number in range(run.count):
                    yield decode_record(run.entry(number), f"entry {at} of ledger {ledger_id}")
                    at += 1
    finally:
        reader.close()
