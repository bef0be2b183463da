"""Deduplication: the highest sequence id of each producer, and the highest source position of each
replicator, that a topic has stored (PIP-6)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.naming.replicators import ENTRY_MARK, LEDGER_MARK, cluster_of_cursor, producer_name
from magnetar.protocol.errors import EntryError
from magnetar.protocol.hot_origin import MARKER, POSITION, REPLICATED, read_origins
from magnetar.protocol.metadata import chunks_follow, parse_entry

__all__ = ["DUPLICATE", "FRESH", "UNDECIDED", "Deduplication", "DeduplicationSettings"]
_READ_ENTRIES = 1_000
_READ_BYTES = 1 << 20
FRESH, DUPLICATE, UNDECIDED = range(3)
_NOTHING: Position = (-1, -1)
_MISSING_KEPT = 10_000
"""The maximum number of missing positions of one replicator that are remembered; far more than a replicator
has in flight.
"""


@dataclass(frozen=True)
class DeduplicationSettings:
    snapshot_entries: int = 1_000
    """Entries between snapshots. Entries after the last snapshot are read when the topic is loaded."""
    max_producers: int = 10_000
    """The maximum number of producers in a snapshot."""
    inactivity_seconds: float = 360 * 60.0
    """How long a disconnected producer is remembered, in seconds."""


class Deduplication:
    """The sequence ids of each producer, by name: the highest pending one and the highest durable one.

    The caller passes the time, in seconds of the monotonic clock. The cursor belongs to the topic; only
    snapshots move it.
    """

    def __init__(
        self,
        ledger: ManagedLedger,
        cursor: Cursor,
        settings: DeduplicationSettings,
        connected: Mapping[str, object],
        sources: SourcePositions,
    ) -> None:
        """:param connected: the connected producers by name; read for snapshots

        :param sources: the source positions of replicators of other clusters, which this object fills
        """
        self._ledger = ledger
        self.cursor = cursor
        self._settings = settings
        self._connected = connected
        self.sources = sources
        self._persisted: dict[str, int] = sources.load(cursor.describe_properties())
        """Sequence ids by producer; producers that published most recently are at the end."""
        self._pushed: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self._unsaved = 0
        self._saved_at = 0.0

    async def replay(self, now: float) -> None:
        """Reads the entries after the last snapshot.

        :raises LedgerError: an entry cannot be read
        """
        cursor = self.cursor
        # What a transaction has published counts, whatever becomes of the transaction.
        cursor.reads_hidden = True
        cursor.rewind()
        while cursor.has_more():
            run = await cursor.read(_READ_ENTRIES, _READ_BYTES)
            if run is not None:
                self._learn(run)
        self._pushed = dict(self._persisted)
        self._left = dict.fromkeys(self._persisted, now)
        self._saved_at = now

    def _learn(self, run: EntryRun) -> None:
        ledger_ids, entry_ids = array("q", bytes(8 * run.count)), array("q", bytes(8 * run.count))
        marks = array("i", bytes(4 * run.count))
        read_origins(run.buffer, run.starts, run.ends, 0, run.count, ledger_ids, entry_ids, marks)
        for index in range(run.count):
            self._unsaved += 1
            try:
                metadata = parse_entry(run.entry(index), verify_checksum=False).metadata
            except EntryError:
                # The entry is stored as it was sent: its metadata, written by the producer, prove nothing
                # here.
                continue
            if marks[index] & (POSITION | REPLICATED) == POSITION | REPLICATED:
                if not marks[index] & MARKER:
                    position = ledger_ids[index], entry_ids[index]
                    self.sources.learn(metadata.replicated_from, position)
                continue
            if chunks_follow(metadata) or metadata.HasField("marker_type"):
                continue
            highest = max(metadata.sequence_id, metadata.highest_sequence_id)
            name = metadata.producer_name
            if highest > self._persisted.get(name, -1):
                self._persisted.pop(name, None)
                self._persisted[name] = highest

    def last_sequence_id(self, name: str) -> int:
        """Returns the highest durable sequence id of a producer; -1 if it has no durable entry."""
        return self._persisted.get(name, -1)

    # Publishing

    def admit_all(self, name: str, first: array[int], highest: array[int], count: int) -> bool:
        """Makes entries [0, count) pending if all of them are new; otherwise changes nothing."""
        mark = self._pushed.get(name, -1)
        for index in range(count):
            if first[index] <= mark:
                return False
            mark = max(first[index], highest[index])
        self._pushed[name] = mark
        return True

    def admit(self, name: str, first: int, highest: int) -> int:
        """Makes one entry pending if it is new; returns FRESH, DUPLICATE or UNDECIDED.

        A batch is judged by its first sequence id; if it is new, its highest sequence id becomes the
        producer's highest pending one. DUPLICATE: the entry is durable already; UNDECIDED: an earlier copy is
        still pending.
        """
        if first > self._pushed.get(name, -1):
            self._pushed[name] = max(first, highest)
            return FRESH
        return DUPLICATE if first <= self._persisted.get(name, -1) else UNDECIDED

    def stored(self, name: str, sequence_id: int, highest: int, entries: int) -> None:
        """Records that ``entries`` entries are durable; the last of these entries has the given sequence
        ids.
        """
        mark = max(sequence_id, highest)
        if mark > self._persisted.get(name, -1):
            self._persisted.pop(name, None)
            self._persisted[name] = mark
            if mark > self._pushed.get(name, -1):
                # The entry was pending before deduplication was switched on.
                self._pushed[name] = mark
        self.counted(entries)

    def counted(self, entries: int) -> None:
        """Counts durable entries without sequence ids of their own."""
        self._unsaved += entries

    def failed(self, on_their_way: Iterable[tuple[str, int]]) -> None:
        """Withdraws pending entries whose write has failed.

        :param on_their_way: the entries that stay pending, in publish order: each entry's producer name and
            highest sequence id
        """
        self._pushed = dict(self._persisted)
        for name, mark in on_their_way:
            if mark > self._pushed.get(name, -1):
                self._pushed[name] = mark

    # Connecting and disconnecting producers

    def came(self, name: str) -> None:
        self._left.pop(name, None)

    def left(self, name: str, now: float) -> None:
        if name in self._persisted:
            self._left[name] = now

    # Snapshots

    def full(self) -> bool:
        """Whether enough entries were stored for the next snapshot."""
        return self._unsaved >= self._settings.snapshot_entries

    def due(self, now: float, interval: float) -> bool:
        """Whether entries were stored, and the last snapshot is older than ``interval`` seconds.

        :param interval: the time between two snapshots, in seconds; 0: no snapshot is ever due
        """
        return interval > 0 and self._unsaved > 0 and now - self._saved_at >= interval

    def snapshot(self, now: float) -> None:
        """Moves the cursor to the end of the topic, and puts the current sequence ids into the cursor's
        properties; the cursor is stored later, like any cursor.

        Allowed only when all durable entries have been counted (between commits), because the next load
        does not read the entries before the cursor.
        """
        self._forget(now)
        storage = self.cursor.storage
        if storage is not None:
            storage.properties = self._most_wanted() | self.sources.properties()
        self._unsaved = 0
        self._saved_at = now
        self.cursor.mark_delete_to(self._ledger.last_confirmed)

    def _most_wanted(self) -> dict[str, int]:
        """Returns sequence ids by producer for a snapshot. If there are more producers than the limit,
        connected producers take precedence, then the producers that published most recently.
        """
        most = self._settings.max_producers
        known = dict(self._persisted)
        if len(known) > most:
            gone = [name for name in known if name not in self._connected]
            here = [name for name in known if name in self._connected]
            for name in (gone + here)[: len(known) - most]:
                del known[name]
        return known

    def _forget(self, now: float) -> None:
        # A receipt may have come after its producer had disconnected.
        for name in self._persisted.keys() - self._left.keys() - self._connected.keys():
            self._left[name] = now
        limit = now - self._settings.inactivity_seconds
        for name in [name for name, left in self._left.items() if left < limit]:
            del self._left[name]
            self._persisted.pop(name, None)
            self._pushed.pop(name, None)


class SourcePositions:
    """The highest source position of each replicator, pending and durable, by the name of the replicator's
    producer: it shows which messages of other clusters the topic already has.

    A replicated message carries its position in the source topic as a property. Sequence ids are of no use,
    because a replicator mixes the sequence ids of all producers of the source.

    A message whose write failed, or that was refused, may be sent again after later messages were stored. Its
    position is remembered as missing until the topic is unloaded, so that the message is then not mistaken
    for a duplicate.
    """

    def __init__(self, prefix: str, cluster: str) -> None:
        """:param prefix: the setting ``replicatorPrefix``

        :param cluster: the name of this cluster
        """
        self._prefix = prefix
        self._cluster = cluster
        self._stored: dict[str, Position] = {}
        self._pushed: dict[str, Position] = {}
        self._missing: dict[str, dict[Position, None]] = {}
        self._returning: dict[str, set[Position]] = {}
        """Missing positions that are pending again."""
        self.dropped: dict[str, int] = {}
        """The number of duplicates dropped since a message was last stored, by the name of the replicator."""

    # Snapshots

    def load(self, properties: Mapping[str, int]) -> dict[str, int]:
        """Loads the source positions of replicators from the properties of a snapshot; returns the other
        properties, which belong to sequence ids.

        A ledger id alone means the position before its first entry, because Apache Pulsar may have written
        ledger id and entry id separately.
        """
        rest = {}
        for key, value in properties.items():
            name, mark = key[: -len(LEDGER_MARK)], key[-len(LEDGER_MARK) :]
            if mark not in (LEDGER_MARK, ENTRY_MARK) or cluster_of_cursor(self._prefix, name) is None:
                rest[key] = value
            elif mark == LEDGER_MARK:
                self._stored[name] = (value, properties.get(name + ENTRY_MARK, -1))
        self._pushed = dict(self._stored)
        return rest

    def properties(self) -> dict[str, int]:
        """Returns the properties for a snapshot, as Apache Pulsar 4.0 writes them."""
        found = {}
        for name, (ledger_id, entry_id) in self._stored.items():
            found[name + LEDGER_MARK] = ledger_id
            found[name + ENTRY_MARK] = entry_id
        return found

    def learn(self, cluster: str, position: Position) -> None:
        """Records that a stored entry came from ``position`` in another cluster."""
        name = producer_name(self._prefix, cluster, self._cluster)
        if position > self._stored.get(name, _NOTHING):
            self._stored[name] = self._pushed[name] = position

    def last(self, name: str) -> Position | None:
        """Returns the highest durable source position of a replicator; None if no message of it is stored."""
        return self._stored.get(name)

    # Publishing

    def admit_all(self, name: str, ledger_ids: array[int], entry_ids: array[int], count: int) -> bool:
        """Makes entries [0, count) pending if all of them are new and in order; otherwise changes nothing."""
        if name in self._missing:
            return False
        mark = self._pushed.get(name, _NOTHING)
        for index in range(count):
            position = ledger_ids[index], entry_ids[index]
            if position <= mark:
                return False
            mark = position
        self._pushed[name] = mark
        return True

    def admit(self, name: str, position: Position) -> int:
        """Makes one message pending if it is new; returns FRESH, DUPLICATE (the message is durable already)
        or UNDECIDED (an earlier copy is still pending)."""
        missing = self._missing.get(name)
        if missing is not None and position in missing:
            del missing[position]
            if not missing:
                del self._missing[name]
            self._returning.setdefault(name, set()).add(position)
            if position > self._pushed.get(name, _NOTHING):
                self._pushed[name] = position
            return FRESH
        if position > self._pushed.get(name, _NOTHING):
            self._pushed[name] = position
            return FRESH
        if position > self._stored.get(name, _NOTHING) or position in self._returning.get(name, ()):
            return UNDECIDED
        self.dropped[name] = self.dropped.get(name, 0) + 1
        return DUPLICATE

    def stored(self, name: str, ledger_ids: Iterable[int], entry_ids: Iterable[int]) -> None:
        """Records that the messages at these source positions are durable."""
        if self.dropped:
            self.dropped.pop(name, None)
        returning = self._returning.get(name)
        highest = self._stored.get(name, _NOTHING)
        for position in zip(ledger_ids, entry_ids, strict=True):
            highest = max(highest, position)
            if returning:
                returning.discard(position)
        if returning is not None and not returning:
            del self._returning[name]
        self._stored[name] = highest
        if highest > self._pushed.get(name, _NOTHING):
            # The message was pending before deduplication was switched on.
            self._pushed[name] = highest

    def refused(self, name: str, positions: Iterable[Position]) -> None:
        """Records that messages at these positions will not become durable, and may be sent again."""
        missing = self._missing.setdefault(name, {})
        returning = self._returning.get(name, set())
        for position in positions:
            returning.discard(position)
            missing[position] = None
        while len(missing) > _MISSING_KEPT:
            del missing[next(iter(missing))]
        if not missing:
            del self._missing[name]

    def failed(self, on_their_way: Iterable[tuple[str, Position]]) -> None:
        """Withdraws pending positions, because writes have failed; the caller also passes the positions of
        the failed writes to :meth:`refused`.

        :param on_their_way: the positions that stay pending, each with the name of its replicator's producer,
            in publish order
        """
        self._pushed = dict(self._stored)
        for name, position in on_their_way:
            if position > self._pushed.get(name, _NOTHING):
                self._pushed[name] = position
