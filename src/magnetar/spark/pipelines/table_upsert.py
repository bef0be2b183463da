"""``mode = "upsert"``: merges the messages of a batch into the rows of the buckets with the same keys.

A table is partitioned by buckets of the key. The messages of a batch are first written to separate files, by
bucket; then a task for each of these buckets rewrites the bucket's rows. Rows never pass through the driver,
which replaces the files of all these buckets in one commit.

An earlier message of a deleted row's key can still arrive through another partition. Because the table no
longer contains the row for comparison, each bucket remembers its deletions in a separate file. The marker
contains the file's name, so that the file becomes valid with the commit that deletes the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from magnetar.client.message_id import MessageId
from magnetar.spark.codec.columns import IS_EMPTY
from magnetar.spark.pipelines.table_commits import (
    BatchTaken,
    FileExchange,
    OpenTable,
    TableMarker,
)
from magnetar.spark.pipelines.table_files import (
    DELETIONS,
    TableFileWriter,
    TableFolder,
    WrittenFile,
    read_files,
    run_tasks,
)
from magnetar.spark.pipelines.table_partitions import PartitionValue

__all__ = ["REMEMBERS_ALL", "REMEMBERS_NONE", "BucketMerge", "Merged", "merge", "remove_changes"]

log = logging.getLogger(__name__)
_KEY, _ID, _TIME = "__key", "__messageId", "__publishTime"
_DELETED = pa.schema([(_KEY, pa.binary()), (_ID, pa.binary()), (_TIME, pa.timestamp("us", "UTC"))])
"""The columns of files with deletions, taken from the messages that deleted the rows."""
REMEMBERS_ALL, REMEMBERS_NONE = -(1 << 63), (1 << 63) - 1
"""Values of ``remember_since`` that make buckets remember all deletions, or no deletions."""


class _Rank(NamedTuple):
    """Determines which of several messages with the same key is the latest: the message with the highest
    rank.
    """

    partition: int
    position: tuple[int, int, int]
    publish_time: int
    """The publish time, in microseconds since 1970."""

    def is_after(self, other: _Rank) -> bool:
        if self.partition == other.partition:
            return self.position > other.position
        return (self.publish_time, self.partition) > (other.publish_time, other.partition)


_OF_ANOTHER_PROGRAM = _Rank(-2, (-1, -1, -1), -(1 << 63))
"""The rank of a row that another program wrote; every message has a higher rank."""


class _Change(NamedTuple):
    """The last of a batch's messages with a certain key."""

    rank: _Rank
    file: int
    row: int
    is_empty: bool


@dataclass(frozen=True)
class Merged:
    """A merge that is not committed yet."""

    files: tuple[WrittenFile, ...]
    exchange: FileExchange
    changed: int
    """Number of rows that are new, changed or deleted."""

    @property
    def rewritten(self) -> int:
        """Number of rows in the new files."""
        return sum(each.rows for each in self.files)


@dataclass(frozen=True)
class BucketMerge:
    """The merge of one bucket, as it is sent to a task."""

    folder: TableFolder
    schema: pa.Schema
    """The columns of the table's files."""
    query: str
    bucket: tuple[PartitionValue, ...]
    changes: tuple[str, ...]
    """The files with messages of the batch."""
    present: tuple[str, ...]
    """The present files of the bucket."""
    deletions: str
    """The file with the deletions that the bucket remembers; empty: no deletions."""
    remember_since: int
    """The publish time, in microseconds since 1970, from which deletions are still remembered."""

    def run(self) -> list[WrittenFile]:
        """Writes the new file of the bucket.

        :returns: the written file; an empty list if nothing changes. A file without a path means that no row
            remains, or that only the remembered deletions change
        """
        changes = self._changes()
        had: set[bytes] = set()
        for batch in read_files(self.folder, self.present, [_KEY, _ID, _TIME]):
            for _, key, rank in _ranks(batch, set(changes)):
                had.add(key)
                if key in changes and not changes[key].rank.is_after(rank):
                    del changes[key]
        deletions = self._remembered(changes)
        for key in [key for key, each in changes.items() if each.is_empty and key not in had]:
            del changes[key]
        if not changes:
            same = deletions == self.deletions
            return [] if same else [WrittenFile("", 0, b"", self.bucket, deletions=deletions)]
        writer = TableFileWriter(self.folder, self.schema, self.query, self.bucket, (IS_EMPTY,))
        self._keep(writer, changes)
        self._put(writer, changes)
        file = writer.finish() or WrittenFile("", 0, b"")
        return [replace(file, partition=self.bucket, changed=len(changes), deletions=deletions)]

    def _remembered(self, changes: dict[bytes, _Change]) -> str:
        """Removes from ``changes`` messages that are earlier than a remembered deletion of the same key.

        :returns: the file with the deletions to remember from now on; empty: no deletions
        """
        known: dict[bytes, _Rank] = {}
        for batch in read_files(self.folder, [self.deletions] if self.deletions else []):
            known.update((key, rank) for _, key, rank in _ranks(batch))
        for key, rank in known.items():
            if key in changes and not changes[key].rank.is_after(rank):
                del changes[key]
        found = {key: rank for key, rank in known.items() if key not in changes}
        found.update((key, each.rank) for key, each in changes.items() if each.is_empty)
        found = {key: rank for key, rank in found.items() if rank.publish_time >= self.remember_since}
        if found == known:
            return self.deletions
        writer = TableFileWriter(self.folder, _DELETED, self.query, self.bucket, place=DELETIONS)
        ids = [MessageId(rank.partition, *rank.position).serialize() for rank in found.values()]
        times = [rank.publish_time for rank in found.values()]
        writer.add(pa.record_batch([list(found), ids, pa.array(times, _DELETED.field(_TIME).type)], _DELETED))
        file = writer.finish() if found else None
        return "" if file is None else file.path

    def _changes(self) -> dict[bytes, _Change]:
        """Returns the last message of each key.

        If several partitions of the topic have messages of a key, the last message of the key in each
        partition is considered; the message with the latest publish time counts.
        """
        by_partition: dict[tuple[bytes, int], _Change] = {}
        for number, path in enumerate(self.changes):
            before = 0
            for batch in read_files(self.folder, [path], [_KEY, _ID, _TIME, IS_EMPTY]):
                empty = batch.column(IS_EMPTY).to_pylist()
                for row, key, rank in _ranks(batch):
                    known = by_partition.get((key, rank.partition))
                    if known is None or rank.is_after(known.rank):
                        change = _Change(rank, number, before + row, empty[row])
                        by_partition[key, rank.partition] = change
                before += batch.num_rows
        found: dict[bytes, _Change] = {}
        for (key, _), change in by_partition.items():
            if key not in found or change.rank.is_after(found[key].rank):
                found[key] = change
        return found

    def _keep(self, writer: TableFileWriter, changes: dict[bytes, _Change]) -> None:
        """Writes the rows of the bucket that the batch does not change."""
        for batch in read_files(self.folder, self.present):
            place = batch.schema.get_field_index(_KEY)
            # Files of other programs may have another type of bytes.
            keys = pa.array(changes, batch.schema.field(place).type)
            is_changed = pc.is_in(batch.column(place), value_set=keys)
            writer.add(batch.filter(pc.invert(is_changed)))
            writer.write_full_group()

    def _put(self, writer: TableFileWriter, changes: dict[bytes, _Change]) -> None:
        """Writes the new and changed rows."""
        for number, path in enumerate(self.changes):
            rows = sorted(each.row for each in changes.values() if each.file == number and not each.is_empty)
            before = place = 0
            for batch in read_files(self.folder, [path]):
                after = before + batch.num_rows
                taken = []
                while place < len(rows) and rows[place] < after:
                    taken.append(rows[place] - before)
                    place += 1
                if taken:
                    writer.add(batch.take(pa.array(taken, pa.int64())))
                    writer.write_full_group()
                before = after


def _ranks(batch: pa.RecordBatch, wanted: set[bytes] | None = None) -> Iterator[tuple[int, bytes, _Rank]]:
    """Yields row, key and rank of each row with a key.

    :param wanted: the keys to consider; None: all keys
    """
    keys, ids = batch.column(_KEY).to_pylist(), batch.column(_ID)
    times = batch.column(_TIME).view(pa.int64())
    for row, key in enumerate(keys):
        if key is None or (wanted is not None and key not in wanted):
            continue
        message_id, time = ids[row].as_py(), times[row].as_py()
        if message_id is None or time is None:
            yield row, key, _OF_ANOTHER_PROGRAM
            continue
        found = MessageId.deserialize(message_id)
        position = (found.ledger_id(), found.entry_id(), found.batch_index())
        yield row, key, _Rank(found.partition(), position, time)


def merge(
    spark: SparkSession,
    table: OpenTable,
    before: TableMarker,
    changes: Sequence[WrittenFile],
    remember_since: int,
) -> Merged:
    """Writes new files for all buckets that a batch changes; the caller commits the returned merge.

    :param before: the marker of the table before the batch
    :param changes: the messages of the batch, with the column ``IS_EMPTY``
    :param remember_since: see :attr:`BucketMerge.remember_since`
    :raises BatchTaken: another driver has committed a batch
    :raises PySparkException: a task failed
    """
    state = table.load()
    if state.marker != before:
        raise BatchTaken(str(state.marker))
    buckets = sorted({each.partition for each in changes}, key=str)
    deletions = dict(before.deletions)
    present = [each for each in state.files if each.partition in buckets]
    merges = [
        BucketMerge(
            table.folder,
            state.schema,
            before.query,
            bucket,
            tuple(each.path for each in changes if each.partition == bucket),
            tuple(each.path for each in present if each.partition == bucket),
            deletions.get(bucket[0], ""),
            remember_since,
        )
        for bucket in buckets
    ]
    found = run_tasks(spark, len(merges), lambda number: merges[number].run())
    touched = frozenset(each.partition for each in found if each.changed)
    old = tuple(each for each in present if each.partition in touched)
    files = tuple(each for each in found if each.path)
    deletions |= {each.partition[0]: each.deletions for each in found}
    remembered = tuple((bucket, path) for bucket, path in deletions.items() if path)
    exchange = FileExchange(touched, old, remembered)
    return Merged(files, exchange, sum(each.changed for each in found))


def remove_changes(folder: TableFolder, changes: Sequence[WrittenFile]) -> None:
    """Deletes the files with the messages of a batch, which no commit contains. If deleting fails, upkeep
    removes the files later.
    """
    system, base = folder.file_system()
    for each in changes:
        try:
            system.delete_file(f"{base}/{each.path}")
        except OSError as error:
            log.warning("%s cannot be deleted: %s", folder.at(each.path), error)
