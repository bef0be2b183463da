"""Tables of Delta Lake, committed by ``deltalake``.

A commit contains an application transaction (the query is the application, the batch the version) and the
complete marker as commit data. The table keeps its log files, so the commit of the last batch can always be
read.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from magnetar.spark.durable import sync
from magnetar.spark.pipelines.table_columns import ColumnError, merged_columns
from magnetar.spark.pipelines.table_commits import (
    MARKER,
    CommitRefused,
    LiveFile,
    OpenTable,
    TableError,
    TableIdentity,
    TableMarker,
    TableState,
    cannot_follow,
    rolled_back,
)
from magnetar.spark.pipelines.table_files import TableFolder, WrittenFile
from magnetar.spark.pipelines.table_partitions import PartitionValue

__all__ = ["DeltaFormat"]

_LOG = "_delta_log"
_LOG_FILE = re.compile(r"([0-9]{20})(\.checkpoint\.parquet|\.json)")
_LAST_CHECKPOINT = "_last_checkpoint"
_COMMITS_A_CHECKPOINT = 10
"""Number of commits after which upkeep writes a checkpoint."""
_SHORT = 32
"""Maximum length of strings in column statistics; a truncated string is used as a lower bound, but it cannot
be an upper bound.
"""


class DeltaFormat(OpenTable):
    """A table of Delta Lake in a folder; see :class:`magnetar.spark.pipelines.table_commits.OpenTable`."""

    def _loaded(self) -> DeltaTable:
        return DeltaTable(str(self.folder), storage_options=self.folder.delta_options())

    def find(self) -> DeltaState | None:
        try:
            table = DeltaTable(str(self.folder), storage_options=self.folder.delta_options())
        except TableNotFoundError:
            return None
        return DeltaState(table, self.folder)

    def create(self, identity: TableIdentity, columns: pa.Schema) -> None:
        columns = _writable(columns)
        partitions = identity.partitions
        for each in partitions:
            if each.transform != "identity":
                columns = columns.append(pa.field(each.name, each.delta_type(columns)))
        self._check_names(columns)
        configuration = {**identity.properties(), "delta.enableExpiredLogCleanup": "false"}
        try:
            DeltaTable.create(
                str(self.folder),
                schema=DeltaSchema.from_arrow(columns),
                mode="error",
                partition_by=[each.name for each in partitions],
                configuration=configuration,
                raise_if_key_not_exists=False,
                storage_options=self.folder.delta_options(),
            )
        except DeltaError:
            if self.find() is None:
                raise

    def merged(self, has: pa.Schema, columns: pa.Schema) -> pa.Schema:
        merged = merged_columns(has, _columns_of(DeltaSchema.from_arrow(_writable(columns))), ())
        _check_names(merged)
        return merged

    def widen(self, columns: pa.Schema) -> None:
        table = DeltaTable(str(self.folder), storage_options=self.folder.delta_options())
        has = _columns_of(table.schema())
        try:
            merged = merged_columns(has, _columns_of(DeltaSchema.from_arrow(_writable(columns))), ())
        except ColumnError as error:
            raise cannot_follow(self, error, "Delta") from error
        self._check_names(merged)
        changed = [
            each for each in merged if has.get_field_index(each.name) < 0 or each != has.field(each.name)
        ]
        if changed:
            table.alter.add_columns(list(DeltaSchema.from_arrow(pa.schema(changed)).fields))

    def _check_names(self, columns: pa.Schema) -> None:
        """Checks that no two columns have the same name.

        :raises TableError: two columns have the same name; as in Delta, case is ignored
        """
        try:
            _check_names(columns)
        except ColumnError as error:
            raise TableError(f"{self}: {error}") from error

    def merge_metadata(self) -> int:
        # A checkpoint has the same effect; clean writes it.
        return 0

    def expire(self, before: datetime) -> int:
        # Versions are removed together with their files, and with the part of the log that clean deletes.
        return 0

    def retained(self, since: datetime) -> set[str]:
        found = {file.path for file in DeltaState(self._loaded(), self.folder).files}
        system, folder = self.folder.file_system()
        for each in system.get_file_info(fs.FileSelector(f"{folder}/{_LOG}")):
            if each.path.endswith(".json") and each.mtime >= since:
                for line in system.open_input_stream(each.path).read().splitlines():
                    action = json.loads(line)
                    if "remove" in action:
                        found.add(action["remove"]["path"])
        return found

    def clean(self, since: datetime, before: datetime) -> int:
        system, folder = self.folder.file_system()
        log = f"{folder}/{_LOG}"
        listed = _log_files(system, log)
        newest = max(listed.commits, default=0)
        if newest - max(listed.checkpoints, default=0) >= _COMMITS_A_CHECKPOINT:
            self._loaded().create_checkpoint()
            listed = _log_files(system, log)
        # The state at that time, which later commits have replaced.
        first = min(
            [version for version, each in listed.commits.items() if each.mtime >= since], default=newest + 1
        )
        usable = [version for version in listed.checkpoints if version < first and version <= listed.last]
        if not usable:
            return 0
        begin = max(usable)
        # The checkpoint must survive a loss of power, because the log before it is deleted.
        if self.folder.local is not None:
            sync(Path(listed.checkpoints[begin].path))
            sync(Path(log))
        kept = min(begin, _version_of_marker(self._loaded(), self.folder))
        files = [(version, each) for version, each in listed.commits.items() if version < kept]
        files += [(version, each) for version, each in listed.checkpoints.items() if version < begin]
        removed = [each for _, each in sorted(files, key=itemgetter(0)) if each.mtime < min(since, before)]
        for each in removed:
            system.delete_file(each.path)
        return len(removed)

    def reading(self) -> dict[str, str]:
        where = str(self.folder)
        options = self.folder.without_secrets.delta_options()
        access = f", storage_options={options}" if options else ""
        return self.folder.reading_once() | {
            "DuckDB": f"SELECT * FROM delta_scan('{where}')",  # nosec B608 - shown, and not run here
            "Python": f"deltalake.DeltaTable({where!r}{access}).to_pandas()",
            "Spark": f'spark.read.format("delta").load("{where}")',
        }


class _LogFiles(NamedTuple):
    """The files of a table's log, by version; checkpoints in several parts are left out."""

    commits: dict[int, fs.FileInfo]
    checkpoints: dict[int, fs.FileInfo]
    last: int
    """The version of the checkpoint at which readers begin; -1: there is no checkpoint."""


def _log_files(system: fs.FileSystem, log: str) -> _LogFiles:
    found = _LogFiles({}, {}, -1)
    for each in system.get_file_info(fs.FileSelector(log)):
        if each.base_name == _LAST_CHECKPOINT:
            found = found._replace(
                last=int(json.loads(system.open_input_stream(each.path).read())["version"])
            )
        elif named := _LOG_FILE.fullmatch(each.base_name):
            (found.commits if named[2] == ".json" else found.checkpoints)[int(named[1])] = each
    return found


def _version_of_marker(table: DeltaTable, folder: TableFolder) -> int:
    """Returns the version that contains the last marker; for a table without markers, the current version.

    :raises TableError: the table was rolled back to an earlier version, or was not created by this pipeline
    """
    marker = DeltaState(table, folder).marker
    if not marker.batch:
        return int(table.version())
    return next(
        version
        for version, commit in _commits(table)
        if _marker_of(commit, marker.query, str(folder)) == marker
    )


def _writable(columns: pa.Schema) -> pa.Schema:
    """Returns the columns with types that Delta supports: a time of day becomes a number of microseconds."""
    return pa.schema(
        [pa.field(each.name, pa.int64()) if pa.types.is_time(each.type) else each for each in columns]
    )


class DeltaState(TableState):
    """The state of a Delta table; see :class:`magnetar.spark.pipelines.table_commits.TableState`."""

    def __init__(self, table: DeltaTable, folder: TableFolder) -> None:
        self.table = table
        self._folder = folder

    @property
    def identity(self) -> TableIdentity:
        return TableIdentity.of(self.table.metadata().configuration, str(self._folder))

    @property
    def schema(self) -> pa.Schema:
        by_partition = {each.name for each in self.identity.partitions}
        columns = _columns_of(self.table.schema())
        return pa.schema([each for each in columns if each.name not in by_partition])

    @property
    def columns(self) -> pa.Schema:
        return _columns_of(self.table.schema())

    @property
    def marker(self) -> TableMarker:
        identity = self.identity
        batch = self.table.transaction_version(identity.query) or 0
        if not batch:
            return TableMarker(identity.query, 0, "", "")
        restored: list[int] = []
        for version, commit in _commits(self.table):
            if commit.get("operation") == "RESTORE":
                restored.append(_restored_version(commit))
            marker = _marker_of(commit, identity.query, str(self._folder))
            if marker is not None and marker.batch == batch:
                if any(each < version for each in restored):
                    raise rolled_back(str(self._folder), marker, self._at(min(restored), identity.query))
                return marker
        raise TableError(
            f"{self._folder}: the log has no commit of batch {batch}, so its positions are unknown; restore "
            f"the files of {_LOG}"
        )

    def _at(self, version: int, query: str) -> TableMarker | None:
        """Returns the marker of the last batch that the table had at a version; None: no commit up to this
        version has a marker of ``query``.
        """
        found = (
            _marker_of(commit, query, str(self._folder))
            for number, commit in _commits(self.table)
            if number <= version
        )
        return next((marker for marker in found if marker is not None), None)

    @property
    def files(self) -> list[LiveFile]:
        partitions = self.identity.partitions
        return [
            LiveFile(
                row["path"],
                row["size_bytes"],
                tuple(each.of_delta(row[f"partition.{each.name}"]) for each in partitions),
            )
            for row in pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        ]

    def replace(self, old: Sequence[LiveFile], new: Sequence[WrittenFile]) -> None:
        actions = self._replacement(old, new, data_change=False)
        self._commit(actions, CommitProperties(max_commit_retries=0))

    def _replacement(
        self, old: Sequence[LiveFile], new: Sequence[WrittenFile], *, data_change: bool
    ) -> list[AddAction | RemoveAction]:
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = list(self._additions(new, data_change=data_change))
        for file in old:
            values = self._partition_texts(file.partition)
            actions.append(RemoveAction(file.path, data_change, now, file.size, values))
        return actions

    def commit(self, files: Sequence[WrittenFile], marker: TableMarker) -> TableMarker:
        return self.exchange((), files, marker)

    def exchange(
        self, old: Sequence[LiveFile], new: Sequence[WrittenFile], marker: TableMarker
    ) -> TableMarker:
        properties = CommitProperties(
            custom_metadata={MARKER: marker.to_json()},
            max_commit_retries=0,
            app_transactions=[Transaction(marker.query, marker.batch)],
        )
        self._commit(self._replacement(old, new, data_change=True), properties)
        return marker

    def _partition_texts(self, values: Sequence[PartitionValue]) -> dict[str, str | None]:
        partitions = self.identity.partitions
        return {each.name: each.delta_text(value) for each, value in zip(partitions, values, strict=True)}

    def _additions(self, files: Sequence[WrittenFile], *, data_change: bool) -> Iterator[AddAction]:
        for file in files:
            yield AddAction(
                path=file.path,
                size=file.size,
                partition_values=self._partition_texts(file.partition),
                modification_time=int(time.time() * 1000),
                data_change=data_change,
                stats=json.dumps(statistics_of(file.metadata)),
            )

    def _commit(self, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> None:
        try:
            self.table.create_write_transaction(
                actions,
                "append",
                self.table.schema(),
                partition_by=[each.name for each in self.identity.partitions],
                commit_properties=properties,
            )
        except CommitFailedError as error:
            raise CommitRefused(str(error)) from error
        folder = self._folder.local
        if folder is not None:
            for path in (*sorted((folder / _LOG).glob("*.json"))[-1:], folder / _LOG):
                sync(path)


def _commits(table: DeltaTable) -> Iterator[tuple[int, dict[str, object]]]:
    """Yields the commits with their versions, newest first; usually the caller needs only the first."""
    seen = 0
    for limit in (1, 20, None):
        found = table.history(limit)
        for commit in found[seen:]:
            yield int(commit["version"]), commit
        seen = len(found)


def _marker_of(commit: Mapping[str, object], query: str, where: str) -> TableMarker | None:
    text = commit.get(MARKER)
    marker = None if text is None else TableMarker.from_json(str(text), where)
    return marker if marker is not None and marker.query == query else None


def _restored_version(commit: Mapping[str, object]) -> int:
    parameters = commit.get("operationParameters")
    found = parameters.get("version") if isinstance(parameters, Mapping) else None
    # Without a version, a time was given: then any batch may be missing.
    return -1 if found is None else int(found)


def _columns_of(schema: DeltaSchema) -> pa.Schema:
    return pa.schema(schema.to_arrow())


def _check_names(columns: pa.Schema) -> None:
    """Checks that no two columns have the same name.

    :raises ColumnError: two columns have the same name; as in Delta, case is ignored
    """
    names: dict[str, str] = {}
    for name in columns.names:
        other = names.setdefault(name.lower(), name)
        if other != name:
            raise ColumnError(f"Delta cannot have the fields {other!r} and {name!r} in one table")


def statistics_of(metadata: pq.FileMetaData) -> dict[str, object]:
    """Returns the column statistics of a Parquet file in the form of Delta's log."""
    low: dict[str, object] = {}
    high: dict[str, object] = {}
    nulls: dict[str, int] = {}
    unbounded: set[str] = set()
    schema = metadata.schema.to_arrow_schema()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            name = column.path_in_schema
            if name not in schema.names or pa.types.is_nested(schema.field(name).type):
                continue
            found = column.statistics
            if found is None or not found.has_null_count:
                unbounded.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.has_min_max and _has_bounds(schema.field(name).type, found.min, found.max):
                low[name] = min(low.get(name, found.min), found.min)
                high[name] = max(high.get(name, found.max), found.max)
            elif found.null_count < column.num_values or found.num_values:
                unbounded.add(name)
    bounds = [name for name in low if name not in unbounded]
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _json_value(low[name], is_low=True) for name in bounds},
        "maxValues": {
            name: _json_value(high[name], is_low=False) for name in bounds if len(str(high[name])) <= _SHORT
        },
        "nullCount": {name: count for name, count in nulls.items() if name not in unbounded or name in low},
    }


def _has_bounds(kind: pa.DataType, low: object, high: object) -> bool:
    if pa.types.is_floating(kind):
        return all(isinstance(each, float) and math.isfinite(each) for each in (low, high))
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _json_value(value: object, *, is_low: bool) -> object:
    if isinstance(value, str):
        return value[:_SHORT] if is_low else value
    if isinstance(value, datetime):
        text = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return text.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    return value.isoformat() if isinstance(value, date) else value
