"""Upkeep of tables: merges small files, removes old states, and deletes files that no state contains."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import SparkSession

from magnetar.spark.pipelines.table_columns import conformed
from magnetar.spark.pipelines.table_commits import CommitRefused, LiveFile, OpenTable, TableState
from magnetar.spark.pipelines.table_files import (
    DELETIONS,
    TableFileWriter,
    TableFolder,
    WrittenFile,
    prefix_of,
    read_files,
    run_tasks,
)

__all__ = ["TableUpkeep", "maintain"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableUpkeep:
    """What :func:`maintain` has changed."""

    merged: int = 0
    """Number of small files that were replaced by larger files."""
    expired: int = 0
    """Number of states of the table that were removed."""
    removed: int = 0
    """Number of files that were deleted."""
    cleaned: int = 0
    """Number of metadata files that were deleted."""
    manifests: int = 0
    """Number of small manifests that were replaced by larger manifests."""

    def __add__(self, other: TableUpkeep) -> TableUpkeep:
        return TableUpkeep(
            self.merged + other.merged,
            self.expired + other.expired,
            self.removed + other.removed,
            self.cleaned + other.cleaned,
            self.manifests + other.manifests,
        )


def maintain(
    spark: SparkSession, table: OpenTable, target_bytes: int, keep: timedelta, orphan_age: timedelta
) -> TableUpkeep:
    """Maintains a table, which other programs can read and write meanwhile; returns what was changed.

    :param target_bytes: size in bytes up to which files of a partition are merged; 0: no files are merged
    :param keep: age up to which earlier states of the table remain readable
    :param orphan_age: files and metadata files that no retained state contains are deleted if they are older
        than this
    :raises TableError: the table cannot be used
    """
    merged = _merge(spark, table, target_bytes) if target_bytes else 0
    manifests = table.merge_metadata()
    now = datetime.now(UTC)
    expired = table.expire(now - keep)
    removed = _remove_orphans(table, now - keep, now - orphan_age)
    cleaned = table.clean(now - keep, now - orphan_age)
    return TableUpkeep(merged, expired, removed, cleaned, manifests)


def _merge(spark: SparkSession, table: OpenTable, target_bytes: int) -> int:
    state = table.load()
    query = state.marker.query
    groups = groups_of([each for each in state.files if each.path.startswith(prefix_of(query))], target_bytes)
    if not groups:
        return 0
    schema, folder = state.schema, table.folder
    new = run_tasks(spark, len(groups), lambda number: merged_files(groups[number], folder, schema, query))
    old = [file for group in groups for file in group]
    return len(old) if replaced(state, old, new) else 0


def replaced(state: TableState, old: Sequence[LiveFile], new: Sequence[WrittenFile]) -> bool:
    """Replaces files and returns True; returns False if another commit came first, so the new files are
    orphans.
    """
    try:
        state.replace(old, new)
    except CommitRefused as refused:
        log.warning("another writer came before a merge of %d files: %s", len(old), refused)
        return False
    return True


def groups_of(files: Sequence[LiveFile], target_bytes: int) -> list[list[LiveFile]]:
    """Returns groups of small files of the same partition, each of at most ``target_bytes``.

    A file is small if its size is below half of ``target_bytes``; a small file is left out if no other small
    file can be merged with it.
    """
    groups: list[list[LiveFile]] = []
    small = [each for each in files if each.size * 2 < target_bytes]
    for file in sorted(small, key=lambda each: (str(each.partition), each.path)):
        group = groups[-1] if groups else []
        fits = sum(each.size for each in group) + file.size <= target_bytes
        if group and fits and group[0].partition == file.partition:
            group.append(file)
        else:
            groups.append([file])
    return [each for each in groups if len(each) > 1]


def merged_files(
    group: Sequence[LiveFile], folder: TableFolder, schema: pa.Schema, query: str
) -> list[WrittenFile]:
    """Writes the rows of several files of one partition to one new file; empty list: there are no rows."""
    writer = TableFileWriter(folder, schema, query, group[0].partition)
    for batch in read_files(folder, [each.path for each in group]):
        writer.add(conformed(batch, schema))
        writer.write_full_group()
    file = writer.finish()
    return [] if file is None else [file]


def _remove_orphans(table: OpenTable, since: datetime, before: datetime) -> int:
    """Deletes files of this query that no retained state contains and that are old enough; returns their
    number.
    """
    system, base = table.folder.file_system()
    query = table.load().identity.query
    old = []
    for folder, _, name in (each.rpartition("/") for each in (prefix_of(query), prefix_of(query, DELETIONS))):
        listed = system.get_file_info(fs.FileSelector(f"{base}/{folder}", allow_not_found=True))
        old += [each for each in listed if each.base_name.startswith(name) and each.mtime < before]
    # Read after the list: a file that a commit names by then is not deleted.
    retained = table.retained(since).union(path for _, path in table.load().marker.deletions)
    orphans = [each for each in old if each.path.removeprefix(f"{base}/") not in retained]
    for each in orphans:
        system.delete_file(each.path)
    return len(orphans)
