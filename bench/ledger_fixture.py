"""Creates a data directory with many sealed ledgers in seconds, with sparse files.

Headers, indexes, checkpoint and metadata are written by the project's own code, as a broker would have left
them. Of the entries only those of the first ledger of the first topics exist; the rest of the segments are
holes.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from crc32c import crc32c

from magnetar.io.real.disk import RealDisk
from magnetar.io.real.sqlite import SqliteConnection
from magnetar.ledger.embedded.checkpoint import (
    CHECKPOINT_NAME,
    CheckpointRows,
    SealedSegment,
    decode_checkpoint,
    encode_checkpoint,
)
from magnetar.ledger.embedded.group import (
    ENTRIES,
    GROUP_HEADER_BYTES,
    LENGTH_BYTES,
    RUN_HEADER_BYTES,
    Run,
    build_group,
    gather,
)
from magnetar.ledger.embedded.identity import store_identity
from magnetar.ledger.embedded.index import PartsBuilder, encode_index
from magnetar.ledger.embedded.ledger_table import LedgerRow, encode_created
from magnetar.ledger.embedded.segment_header import (
    REWRITTEN,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    index_name,
    segment_name,
)
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.factory import ROOT
from magnetar.managed_ledger.records import (
    CursorRecord,
    LedgerSummary,
    ManagedLedgerRecord,
    encode_cursor,
    encode_managed_ledger,
)
from magnetar.metadata.sqlite_nodes import SqliteNodes
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

SUBSCRIPTION = "reader"
ENTRY_BYTES = 1024
_OVERHEAD = GROUP_HEADER_BYTES + RUN_HEADER_BYTES


def topic(number: int) -> str:
    return f"persistent://public/default/ledgers-{number}"


@dataclass(frozen=True)
class Shape:
    """The size of the fixture."""

    topics: int
    ledgers: int
    """Number of ledgers in all, the same for each topic."""
    bytes: int
    """Bytes of all segments."""
    real: int
    """Number of topics whose first ledger has real entries."""

    @property
    def per_topic(self) -> int:
        return self.ledgers // self.topics

    @property
    def per_ledger(self) -> int:
        """Bytes of a ledger's entries."""
        return self.bytes // self.ledgers


@dataclass
class _Place:
    """The position of the next group."""

    segment_id: int
    end: int = SEGMENT_HEADER_BYTES


@cache
def _zeros_checksum(length: int) -> int:
    return int(crc32c(bytes(length)))


class LedgerFixture:
    """Adds topics to the data directory of a broker that was started once and stopped."""

    def __init__(self, data: Path, shape: Shape) -> None:
        self._ledgers = data / "ledgers"
        self._metadata = data / "metadata" / "metadata.sqlite"
        self._shape = shape
        self._store_id = store_identity(RealDisk(data), self._ledgers.name, _made_nothing)
        self._settings = EmbeddedSettings()
        self._now_ms = int(time.time() * 1000)
        path = self._ledgers / CHECKPOINT_NAME
        self._checkpoint = decode_checkpoint(path.read_bytes(), str(path))
        self._first_ledger = self._checkpoint.next_ledger_id
        self._place = _Place(max(self._checkpoint.next_segment_id, self._checkpoint.log_segment_id + 1))
        self._parts = PartsBuilder()
        self._real: list[tuple[int, bytes]] = []
        metadata = MessageMetadata(producer_name="bench", sequence_id=0, publish_time=self._now_ms)
        self._entry = build_entry(metadata, b"x" * ENTRY_BYTES)

    def make(self) -> int:
        """Writes everything; returns the number of segments."""
        rows = [self._add_ledger(number) for number in range(self._shape.ledgers)]
        self._seal()
        self._write_checkpoint(rows)
        self._write_metadata(rows)
        return len(self._checkpoint.segments)

    def _topic_of(self, number: int) -> int:
        return number // self._shape.per_topic

    def _add_ledger(self, number: int) -> LedgerRow:
        name = TopicName.parse(topic(self._topic_of(number))).path
        row = LedgerRow(self._first_ledger + number, encode_created(self._now_ms, custom_metadata(name)))
        row.closed = True
        if number % self._shape.per_topic == 0 and self._topic_of(number) < self._shape.real:
            self._add_real(row)
        else:
            for count, length in self._runs():
                self._add_run(row, count, length, _zeros_checksum(length))
        return row

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yields entries and bytes of each run of a ledger."""
        each = LENGTH_BYTES + ENTRY_BYTES
        left = max(1, self._shape.per_ledger // each)
        full = self._settings.run_bytes // each
        while left:
            count = min(left, full)
            yield count, count * each
            left -= count

    def _make_room(self, length: int) -> None:
        if self._place.end + _OVERHEAD + length > self._settings.segment_bytes:
            self._seal()
            self._place = _Place(self._place.segment_id + 1)

    def _add_run(self, row: LedgerRow, count: int, length: int, checksum: int) -> None:
        self._make_room(length)
        place = self._place
        first = row.last_entry_id + 1
        self._parts.add(row.ledger_id, first, count, (place.end + _OVERHEAD, length, checksum))
        row.add_run(place.segment_id, first, count, length, length - LENGTH_BYTES * count)
        place.end += _OVERHEAD + length

    def _add_real(self, row: LedgerRow) -> None:
        """Adds a ledger with one real entry."""
        entry = self._entry
        body = list(gather(entry, array("q", [0]), array("q", [len(entry)]), 0, 1))
        length = sum(map(len, body))
        self._make_room(length)
        place = self._place
        run: Run = (ENTRIES, 1, row.ledger_id, 0, 0, body)
        group, _ = build_group(place.segment_id, place.end, 1, 0, [run])
        self._real.append((place.end, group))
        self._add_run(row, 1, length, int(crc32c(b"".join(body))))

    def _seal(self) -> None:
        """Writes the current segment, and its index."""
        if not self._parts.parts:
            return
        place, parts = self._place, self._parts.parts
        with (self._ledgers / segment_name(place.segment_id)).open("xb") as file:
            file.write(SegmentHeader(place.segment_id, self._store_id, REWRITTEN, 0).encode())
            for offset, group in self._real:
                file.seek(offset)
                file.write(group)
            file.truncate(place.end)
        index = encode_index(place.segment_id, place.end, [(part.ledger_id, part.runs) for part in parts])
        (self._ledgers / index_name(place.segment_id)).write_bytes(index)
        stored = sum(part.stored for part in parts)
        largest = max(part.stored for part in parts)
        self._checkpoint.segments.append(
            SealedSegment(
                place.segment_id,
                REWRITTEN,
                place.end,
                place.end,
                self._parts.runs,
                stored,
                largest,
                settled=True,
            )
        )
        self._parts = PartsBuilder()
        self._real = []

    def _write_checkpoint(self, rows: list[LedgerRow]) -> None:
        checkpoint = self._checkpoint
        checkpoint.next_ledger_id = self._first_ledger + len(rows)
        checkpoint.next_segment_id = checkpoint.log_segment_id = self._place.segment_id + 1
        encoded = CheckpointRows(frozenset(segment.segment_id for segment in checkpoint.segments))
        for row in (*checkpoint.ledgers, *rows):
            encoded.add(row)
        (self._ledgers / CHECKPOINT_NAME).write_bytes(b"".join(encode_checkpoint(checkpoint, encoded)))

    def _write_metadata(self, rows: list[LedgerRow]) -> None:
        connection = SqliteConnection(str(self._metadata))
        connection.start()
        nodes = SqliteNodes(connection)
        progress = nodes.read_progress()
        nodes.tally = progress.tally
        connection.execute("BEGIN IMMEDIATE")
        for number in range(self._shape.topics):
            first = number * self._shape.per_topic
            own = rows[first : first + self._shape.per_topic]
            path = f"{ROOT}/{TopicName.parse(topic(number)).path}"
            summaries = [
                LedgerSummary(row.ledger_id, row.last_entry_id + 1, row.length, self._now_ms) for row in own
            ]
            record = encode_managed_ledger(ManagedLedgerRecord(summaries))
            nodes.put(path, record, None, False, False, self._now_ms)
            cursor = CursorRecord(-1, AcknowledgedState((own[0].ledger_id, -1)))
            nodes.put(f"{path}/{SUBSCRIPTION}", encode_cursor(cursor, 0, 0), None, False, False, self._now_ms)
        # The next start finds that the copy in the ledgers is older, and writes a new one.
        nodes.write_progress(progress._replace(generation=progress.generation + 1, tally=nodes.tally))
        connection.execute("COMMIT")
        connection.close()


def _made_nothing() -> bytes:
    raise RuntimeError("no store was ever opened in this directory")
