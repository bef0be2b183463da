"""Commits a batch to a table exactly once, after any failures and with any number of drivers.

The table libraries do not refuse a batch that a table already contains. Therefore each commit compares the
marker in the table state on which it is based, and fails if the table has changed since. If a commit gets no
answer, the id in the marker shows whether the commit took effect. This module deletes no files, because files
of a commit with an unknown outcome can belong to the table.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import pyarrow as pa

from magnetar.spark.pipelines.table_files import TableFolder, WrittenFile
from magnetar.spark.pipelines.table_partitions import PartitionColumn, PartitionValue, parse_partitions

__all__ = [
    "MARKER",
    "BatchTaken",
    "CommitRefused",
    "FileExchange",
    "LiveFile",
    "OpenTable",
    "TableError",
    "TableIdentity",
    "TableMarker",
    "TableState",
    "cannot_follow",
    "commit_once",
    "is_same_batch",
    "rolled_back",
]

MARKER = "magnetar.marker"
"""The name of the property in which commits and tables store the marker."""
_IDENTITY = {
    "query": "magnetar.query",
    "topic": "magnetar.topic",
    "subscription": "magnetar.subscription",
    "mode": "magnetar.mode",
    "partition_by": "magnetar.partition-by",
}
_ATTEMPTS = 8
_PAUSE_SECONDS = 0.05
log = logging.getLogger(__name__)


class TableError(Exception):
    """The table cannot be written in its present state; the text gives the reason and the remedy."""


class CommitRefused(Exception):
    """Another commit came first; the refused commit has certainly no effect."""


class BatchTaken(Exception):
    """The table no longer has the marker on which the batch is based, because another driver has committed a
    batch. The text completes the sentence "another driver has added …", which is logged.
    """


@dataclass(frozen=True)
class TableIdentity:
    """The topic and the options for which a table was created."""

    query: str
    """A random id; tables of the same topic have different ids."""
    topic: str
    subscription: str
    """The subscription that retains the messages that are not in the table yet."""
    mode: str
    partition_by: str = "none"
    """The elements of ``partition_by``, separated by a semicolon and a space; "none" without elements."""

    @property
    def partitions(self) -> tuple[PartitionColumn, ...]:
        return parse_partitions([] if self.partition_by == "none" else self.partition_by.split("; "))

    def properties(self) -> dict[str, str]:
        """Returns the table properties that store the identity."""
        return {name: getattr(self, each) for each, name in _IDENTITY.items()}

    @staticmethod
    def of(properties: Mapping[str, object], where: str) -> TableIdentity:
        """Returns the identity in table properties.

        :param where: the table, for the text of an error
        :raises TableError: this pipeline did not create the table
        """
        missing = [name for name in _IDENTITY.values() if not properties.get(name)]
        if missing:
            raise TableError(
                f"{where} was not created by this pipeline: it has no property {missing[0]}; use another path"
            )
        return TableIdentity(**{each: str(properties[name]) for each, name in _IDENTITY.items()})


@dataclass(frozen=True)
class TableMarker:
    """A table's record of its last batch."""

    query: str
    batch: int
    """Number of the last batch, from 1; 0: no batch."""
    positions: str
    """The positions after the batch, as JSON of :class:`magnetar.spark.positions.Offset`; empty: no
    positions.
    """
    commit: str
    """A random id of the commit, by which its driver recognizes it."""
    snapshot: int = 0
    """The id of the snapshot that the commit created; 0: the format has no snapshots."""
    sequence: int = 0
    """The sequence number of :attr:`snapshot`; later snapshots have higher sequence numbers."""
    deletions: tuple[tuple[PartitionValue, str], ...] = ()
    """For each bucket of an upserted table that remembers deletions: its partition value, and the file of
    these deletions.
    """

    def to_json(self) -> str:
        found = asdict(self)
        if not self.deletions:
            # Releases that remember no deletions can read the marker then.
            del found["deletions"]
        return json.dumps(found, separators=(",", ":"))

    @staticmethod
    def from_json(text: str, where: str) -> TableMarker:
        """Returns the marker from its JSON.

        :raises TableError: the text is not a marker
        """
        try:
            marker = TableMarker(**json.loads(text))
            return replace(marker, deletions=tuple((bucket, path) for bucket, path in marker.deletions))
        except (TypeError, ValueError) as error:
            raise TableError(f"{where} has a damaged marker {text[:200]!r}: {error}") from error

    def __str__(self) -> str:
        return f"batch {self.batch} ({self.positions or 'no positions'})"


def rolled_back(where: str, marker: TableMarker, found: TableMarker | None) -> TableError:
    """Returns the error for a table that was rolled back: it no longer contains the batch that its marker
    names.

    :param found: the last batch that the table still contains; None: unknown
    """
    there = "an earlier state" if found is None else str(found)
    return TableError(
        f"{where} was rolled back to {there}, behind its marker, {marker}; restore the later state, or write "
        "the topic to a table at another path"
    )


@dataclass(frozen=True)
class LiveFile:
    """A file of the present state of a table."""

    path: str
    """The path relative to the table's folder."""
    size: int
    partition: tuple[PartitionValue, ...]


@dataclass(frozen=True)
class FileExchange:
    """What a commit replaces: all files of some partitions."""

    partitions: frozenset[tuple[PartitionValue, ...]]
    old: tuple[LiveFile, ...]
    deletions: tuple[tuple[PartitionValue, str], ...] = ()
    """The remembered deletions of each bucket after the commit; see :attr:`TableMarker.deletions`."""

    def fits(self, state: TableState) -> bool:
        """Whether the partitions consist, in the given state, of exactly the files to replace."""
        present = {each.path for each in state.files if each.partition in self.partitions}
        return present == {each.path for each in self.old}


class TableState(ABC):
    """The state of a table at the time when it was loaded."""

    @property
    @abstractmethod
    def identity(self) -> TableIdentity:
        """The topic and the options for which the table was created."""

    @property
    @abstractmethod
    def marker(self) -> TableMarker:
        """The marker of the last batch.

        :raises TableError: the table was rolled back to a state before this batch
        """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of new files."""

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """All columns of the table, in the form that :meth:`OpenTable.merged` expects."""

    @abstractmethod
    def commit(self, files: Sequence[WrittenFile], marker: TableMarker) -> TableMarker:
        """Adds files together with the marker, unless the table has changed since it was loaded.

        :returns: the marker that the table has after the commit
        :raises CommitRefused: the table has changed; nothing was added
        :raises Exception: the outcome is unknown
        """

    @property
    @abstractmethod
    def files(self) -> list[LiveFile]:
        """The data files of this state, in the table's folder."""

    @abstractmethod
    def exchange(
        self, old: Sequence[LiveFile], new: Sequence[WrittenFile], marker: TableMarker
    ) -> TableMarker:
        """Adds the files ``new`` like :meth:`commit`, and removes the files ``old`` in the same commit."""

    @abstractmethod
    def replace(self, old: Sequence[LiveFile], new: Sequence[WrittenFile]) -> None:
        """Replaces files by other files with the same rows, unless the table has changed since it was loaded.

        :param old: the files to remove
        :param new: the files to add
        :raises CommitRefused: the table has changed; nothing was replaced
        :raises Exception: the outcome is unknown
        """


class OpenTable(ABC):
    """A table in one of the formats."""

    def __init__(self, folder: TableFolder) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    @abstractmethod
    def find(self) -> TableState | None:
        """Returns the present state; None: the table does not exist.

        :raises TableError: the table was not created by this pipeline
        """

    def load(self) -> TableState:
        """Returns the present state.

        :raises TableError: see :meth:`find`; or the table does not exist
        """
        state = self.find()
        if state is None:
            raise TableError(f"{self} no longer exists; restore it")
        return state

    @abstractmethod
    def create(self, identity: TableIdentity, columns: pa.Schema) -> None:
        """Creates the table without rows; does nothing if another driver has just done so."""

    @abstractmethod
    def merged(self, has: pa.Schema, columns: pa.Schema) -> pa.Schema:
        """Returns the columns of a table with the columns ``has`` after a change of the schema to
        ``columns``.

        :raises ColumnError: the format cannot express the change; the error text names the field
        """

    @abstractmethod
    def widen(self, columns: pa.Schema) -> None:
        """Adds the columns that the table lacks.

        :raises TableError: the format cannot express a change; the error text names the field
        """

    @abstractmethod
    def merge_metadata(self) -> int:
        """Merges the small metadata files that every reader must read; does nothing if another writer commits
        first.

        :returns: the number of replaced files
        """

    @abstractmethod
    def expire(self, before: datetime) -> int:
        """Removes states of the table from before a time, except the present state; returns their number."""

    @abstractmethod
    def retained(self, since: datetime) -> set[str]:
        """Returns the paths, relative to the table's folder, of all files in states since a time."""

    @abstractmethod
    def clean(self, since: datetime, before: datetime) -> int:
        """Deletes metadata files that are older than ``before`` and that no state since ``since`` needs.

        :returns: the number of deleted files
        """

    @abstractmethod
    def reading(self) -> dict[str, str]:
        """Returns, for each program, example code that reads the table."""


def cannot_follow(table: OpenTable, error: Exception, form: str) -> TableError:
    """Returns the error for a table whose columns cannot be changed to the schema of its topic.

    :param form: the name of the format
    """
    return TableError(
        f"{table}: {error}, which {form} cannot express; write the topic to a table at another path, or "
        'put such messages aside with on_error = "quarantine"'
    )


def is_same_batch(found: TableMarker, before: TableMarker) -> bool:
    """Whether the table still has the marker on which a batch is based."""
    return found == before


def commit_once(
    table: OpenTable,
    before: TableMarker,
    positions: str,
    files: Sequence[WrittenFile],
    *,
    batch: int | None = None,
    exchange: FileExchange | None = None,
) -> TableMarker:
    """Commits the files of the batch that follows the marker ``before``; returns the new marker.

    :param positions: see :attr:`TableMarker.positions`
    :param batch: the number of the batch, higher than the number of ``before``; None: the next number
    :param exchange: files of the table that the new files replace; None: no files
    :raises BatchTaken: another driver has committed this batch, or later ones, or another program has changed
        the files to replace; the new files belong to no table
    :raises TableError: the table no longer exists or was rolled back, or the outcome remained unknown
    """
    number = before.batch + 1 if batch is None else batch
    deletions = () if exchange is None else exchange.deletions
    wanted = TableMarker(before.query, number, positions, uuid.uuid4().hex, deletions=deletions)
    reason = ""
    for attempt in range(_ATTEMPTS + 1):
        try:
            state = table.load()
            found = state.marker
            if found.commit == wanted.commit:
                return found
            if not is_same_batch(found, before):
                raise BatchTaken(str(found))
            if attempt == _ATTEMPTS:
                break
            if exchange is None:
                return state.commit(files, wanted)
            if not exchange.fits(state):
                raise BatchTaken(f"files to the buckets of this batch, after {found}")
            return state.exchange(exchange.old, files, wanted)
        except (BatchTaken, TableError):
            raise
        except CommitRefused as refused:
            reason = f"another writer came first: {refused}"
        # A library reports a lost answer by any of its exceptions, so all of them mean the same.
        except Exception as error:  # noqa: BLE001
            reason = f"the outcome is unknown: {type(error).__name__}: {error}"
        log.warning("batch %d of %s: attempt %d: %s", wanted.batch, before.query, attempt + 1, reason)
        time.sleep(_PAUSE_SECONDS * 2**attempt)
    raise TableError(
        f"batch {wanted.batch} could not be committed in {_ATTEMPTS} attempts ({reason}); run the pipeline "
        "again"
    )
