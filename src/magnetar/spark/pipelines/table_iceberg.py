"""Tables of Apache Iceberg, committed by ``pyiceberg`` to a catalog.

The marker is a table property, set by the commit that adds the files; summaries of snapshots also contain it,
until the snapshots expire. Commits are sent to the catalog directly, because a ``pyiceberg`` transaction
would repeat a commit after another writer came first, and would delete the files of failed commits.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import fs
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import EMPTY_DICT, Record
from requests.exceptions import RequestException

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
from magnetar.spark.pipelines.table_files import CATALOG_OPTIONS, TableFolder, WrittenFile

__all__ = ["IcebergFormat", "catalog_in", "rest_catalog"]

log = logging.getLogger(__name__)
_METADATA = "metadata"
_VERSION = re.compile(r"[0-9]+-[0-9a-f-]{36}\.metadata\.json")
_FIRST_PARTITION_ID = 1000
_SMALL_MANIFESTS = 10
"""Minimum number of small manifests for which upkeep makes a commit that merges them."""
_MANIFEST_BYTES = 8 << 20
"""Target size of a manifest in bytes, as in Iceberg's own libraries; manifests below half of it are small."""
_PROMOTIONS = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


def catalog_in(file: str, options: Mapping[str, str] | None = None) -> Catalog:
    """Returns the catalog in an SQLite file; creates the file if it does not exist.

    :param options: options for access to the tables' files; None: no options
    """
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    return SqlCatalog("magnetar", uri=f"sqlite:///{file}", **(options or {}))


def rest_catalog(address: str, options: Mapping[str, str], access: Mapping[str, str]) -> Catalog:
    """Returns a REST catalog.

    :param options: options for access to the tables' files
    :param access: options of the catalog, by the names in :data:`CATALOG_OPTIONS`
    :raises TableError: the catalog does not answer, or refuses the request
    """
    given = {CATALOG_OPTIONS[name]: value for name, value in access.items()}
    try:
        return RestCatalog("magnetar", uri=address, **given, **options)
    except (RESTError, RequestException) as error:
        raise TableError(f"the catalog {address} cannot be used: {error}") from error


class IcebergFormat(OpenTable):
    """A table in a catalog; see :class:`magnetar.spark.pipelines.table_commits.OpenTable`."""

    def __init__(self, catalog: Catalog, name: tuple[str, ...], folder: TableFolder) -> None:
        super().__init__(folder)
        self._catalog = catalog
        self._name = name

    def find(self) -> IcebergState | None:
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        return IcebergState(self._catalog, table, self.folder)

    def create(self, identity: TableIdentity, columns: pa.Schema) -> None:
        for end in range(1, len(self._name)):
            # Some catalogs want a namespace to exist before those in it.
            self._catalog.create_namespace_if_not_exists(self._name[:end])
        schema = assign_fresh_schema_ids(self._catalog._convert_schema_if_needed(_writable(columns)))
        fields = [
            PartitionField(
                source_id=schema.find_field(each.column).field_id,
                field_id=_FIRST_PARTITION_ID + number,
                transform=parse_transform(f"bucket[{each.buckets}]" if each.buckets else each.transform),
                name=each.name,
            )
            for number, each in enumerate(identity.partitions)
        ]
        try:
            self._catalog.create_table(
                self._name,
                schema,
                location=str(self.folder),
                partition_spec=PartitionSpec(*fields),
                properties=identity.properties(),
            )
        except TableAlreadyExistsError:
            return

    def merged(self, has: pa.Schema, columns: pa.Schema) -> pa.Schema:
        return merged_columns(has, _writable(columns), _PROMOTIONS)

    def widen(self, columns: pa.Schema) -> None:
        table = self._catalog.load_table(self._name)
        has = _narrow(schema_to_pyarrow(table.schema(), include_field_ids=False))
        try:
            merged = self.merged(has, columns)
        except ColumnError as error:
            raise cannot_follow(self, error, "Iceberg") from error
        if merged == has:
            return
        transaction = table.transaction()
        transaction.update_schema().union_by_name(merged).commit()
        try:
            self._catalog.commit_table(table, transaction._requirements, transaction._updates)
        except CommitFailedException:
            # Another driver may have made the same change; what it made shows when the table is loaded.
            if merged != _narrow(schema_to_pyarrow(self._loaded().schema(), include_field_ids=False)):
                raise

    def _loaded(self) -> Table:
        return self._catalog.load_table(self._name)

    def merge_metadata(self) -> int:
        state = self.find()
        try:
            return 0 if state is None else state.merge_manifests()
        except CommitRefused as refused:
            log.warning(
                "%s: manifests are merged later, because another writer came first: %s", self, refused
            )
            return 0

    def expire(self, before: datetime) -> int:
        table = self._loaded()
        count = len(table.snapshots())
        try:
            table.maintenance.expire_snapshots().older_than(before).commit()
        except CommitFailedException as error:
            log.warning("%s: snapshots expire later, because another writer came first: %s", self, error)
        return count - len(self._loaded().snapshots())

    def retained(self, since: datetime) -> set[str]:
        table = self._loaded()
        # Snapshots that have not expired may be older than that.
        return {
            entry.data_file.file_path.removeprefix(f"{self.folder}/")
            for snapshot in table.snapshots()
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        }

    def clean(self, since: datetime, before: datetime) -> int:
        system, base = self.folder.file_system()
        listed = system.get_file_info(fs.FileSelector(f"{base}/{_METADATA}", allow_not_found=True))
        old = [each for each in listed if each.is_file and each.mtime < before]
        # Read after the list: a file that a commit names by then is not deleted.
        table = self._loaded()
        named = _named_metadata(table)
        own = _own_metadata(TableIdentity.of(table.properties, str(self.folder)).query)
        unnamed = [each for each in old if each.base_name not in named]
        removed = [each.path for each in unnamed if own.fullmatch(each.base_name)]
        # A reader may have the path of a state that can be read.
        versions = [
            each.path for each in unnamed if _VERSION.fullmatch(each.base_name) and each.mtime < since
        ]
        removed += [path for path in versions if _is_of(table, system.open_input_stream(path).read())]
        for path in removed:
            system.delete_file(path)
        return len(removed)

    def reading(self) -> dict[str, str]:
        state = self.find()
        where = state.table.metadata_location if state is not None else f"{self.folder}/{_METADATA}/..."
        options = self.folder.without_secrets.iceberg_options()
        access = f", {options}" if options else ""
        return self.folder.reading_once() | {
            "DuckDB": f"SELECT * FROM iceberg_scan('{where}')",  # nosec B608 - shown, and not run here
            "Python": f"pyiceberg.table.StaticTable.from_metadata({where!r}{access}).scan().to_pandas()",
            "Spark": f'spark.read.format("iceberg").load("{where}")',
        }


def _named_metadata(table: Table) -> set[str]:
    """Returns the names of all metadata files of the table; each name is unique."""
    found = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        found.update(each.manifest_path for each in snapshot.manifests(table.io))
    return {each.rpartition("/")[2] for each in found}


def _is_of(table: Table, version: bytes) -> bool:
    """Whether a metadata file, with the contents ``version``, describes an earlier version of this table."""
    try:
        return bool(json.loads(version)["table-uuid"] == str(table.metadata.table_uuid))
    except (KeyError, TypeError, ValueError):
        return False


def _mark_of(query: str) -> str:
    """Returns the first half of a commit id, in hexadecimal digits; it is the same for all commits of a
    query.
    """
    return hashlib.sha256(query.encode()).hexdigest()[:16]


def _commit_id(query: str) -> uuid.UUID:
    """Returns a new commit id, which the names of manifests contain."""
    return uuid.UUID(_mark_of(query) + uuid.uuid4().hex[16:])


def _own_metadata(query: str) -> re.Pattern[str]:
    """Returns a pattern of the names of this query's manifests and lists of manifests."""
    mark = _mark_of(query)
    form = f"{mark[:8]}-{mark[8:12]}-{mark[12:16]}-[0-9a-f]{{4}}-[0-9a-f]{{12}}"
    return re.compile(rf"{form}-m[0-9]+\.avro|snap-[0-9]+-[0-9]+-{form}\.avro")


def _writable(columns: pa.Schema) -> pa.Schema:
    """Returns the columns with types that Iceberg supports; its smallest integer has 32 bits."""
    return pa.schema([pa.field(each.name, _widened(each.type)) for each in columns])


def _widened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    return _rebuilt(kind, _widened)


def _narrow(columns: pa.Schema) -> pa.Schema:
    """Returns the columns without field ids, and with Arrow's standard string and list types instead of its
    large string and list types.
    """
    return pa.schema([pa.field(each.name, _narrowed(each.type)) for each in columns])


def _narrowed(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return _rebuilt(kind, _narrowed)


def _rebuilt(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Returns the type with ``change`` applied to its nested types."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, change(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(change(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    return kind


class _FileMerge(_OverwriteFiles):
    """A commit that replaces files by other files with the same rows. Programs that follow a table's changes
    skip such snapshots.
    """

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return _as_replacement(super()._summary(snapshot_properties))


class _ManifestMerge(_MergeAppendFiles):
    """A commit that moves the entries of small manifests to larger manifests, and adds no data files."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        self._merge_enabled = True
        self._target_size_bytes = _MANIFEST_BYTES
        self._min_count_to_merge = _SMALL_MANIFESTS
        return super()._process_manifests(manifests)

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return _as_replacement(super()._summary(snapshot_properties))


def _as_replacement(summary: Summary) -> Summary:
    # The library counts files and rows for other operations only.
    return Summary(Operation.REPLACE, **summary.additional_properties)


class IcebergState(TableState):
    """The state of an Iceberg table; see :class:`magnetar.spark.pipelines.table_commits.TableState`."""

    def __init__(self, catalog: Catalog, table: Table, folder: TableFolder) -> None:
        self._catalog = catalog
        self.table = table
        self._folder = folder

    @property
    def identity(self) -> TableIdentity:
        return TableIdentity.of(self.table.properties, str(self._folder))

    @property
    def schema(self) -> pa.Schema:
        return schema_to_pyarrow(self.table.schema(), include_field_ids=True)

    @property
    def columns(self) -> pa.Schema:
        return _narrow(schema_to_pyarrow(self.table.schema(), include_field_ids=False))

    @property
    def marker(self) -> TableMarker:
        identity = self.identity
        text = self.table.properties.get(MARKER)
        if text is None:
            return TableMarker(identity.query, 0, "", "")
        marker = TableMarker.from_json(text, str(self._folder))
        if not self._contains(marker):
            raise rolled_back(str(self._folder), marker, self.last_of(identity.query))
        return marker

    def _contains(self, marker: TableMarker) -> bool:
        """Whether the table still contains the rows of a batch: the batch's snapshot is the current snapshot
        or an ancestor of the current snapshot, or it has expired and all retained ancestors are later.
        """
        ancestors = self._ancestors()
        if any(each.snapshot_id == marker.snapshot for each in ancestors):
            return True
        if not ancestors or self.table.snapshot_by_id(marker.snapshot) is not None:
            return False
        return all((each.sequence_number or 0) > marker.sequence for each in ancestors)

    def _ancestors(self) -> list[Snapshot]:
        found: list[Snapshot] = []
        current = self.table.current_snapshot()
        while current is not None:
            found.append(current)
            parent = current.parent_snapshot_id
            current = None if parent is None else self.table.snapshot_by_id(parent)
        return found

    def last_of(self, query: str) -> TableMarker | None:
        """Returns the marker of the last batch of ``query`` in the current snapshot and its retained
        ancestors; None: these snapshots contain no such marker.
        """
        for each in self._ancestors():
            text = each.summary.additional_properties.get(MARKER) if each.summary is not None else None
            marker = None if text is None else TableMarker.from_json(text, str(self._folder))
            if marker is not None and marker.query == query:
                return marker
        return None

    def commit(self, files: Sequence[WrittenFile], marker: TableMarker) -> TableMarker:
        return self.exchange((), files, marker)

    def exchange(
        self, old: Sequence[LiveFile], new: Sequence[WrittenFile], marker: TableMarker
    ) -> TableMarker:
        transaction = self.table.transaction()
        # The table keeps summaries of many snapshots, and needs the deletions of the last batch only.
        summary = replace(marker, deletions=()).to_json()
        update = transaction.update_snapshot(snapshot_properties={MARKER: summary})
        producer = update.overwrite() if old else update.fast_append()
        producer.commit_uuid = _commit_id(marker.query)
        sequence = self.table.metadata.next_sequence_number()
        marker = replace(marker, snapshot=producer.snapshot_id, sequence=sequence)
        transaction.set_properties({MARKER: marker.to_json()})
        known = self._data_files() if old else {}
        for each in old:
            producer.delete_data_file(known[self._folder.at(each.path)])
        for file in new:
            producer.append_data_file(self._data_file(file))
        producer.commit()
        self._commit(transaction)
        return marker

    @property
    def files(self) -> list[LiveFile]:
        prefix = f"{self._folder}/"
        found = []
        for path, file in self._data_files().items():
            if path.startswith(prefix):
                values = tuple(file.partition[place] for place in range(len(file.partition)))
                found.append(LiveFile(path.removeprefix(prefix), file.file_size_in_bytes, values))
        return found

    def _data_files(self) -> dict[str, DataFile]:
        return {task.file.file_path: task.file for task in self.table.scan().plan_files()}

    def merge_manifests(self) -> int:
        """Replaces small manifests by larger ones; returns the number of replaced manifests.

        :raises CommitRefused: the table has changed; nothing was replaced
        """
        before = self._manifests()
        small = [each for each in before if each.manifest_length * 2 < _MANIFEST_BYTES]
        if sum(each.content == ManifestContent.DATA for each in small) < _SMALL_MANIFESTS:
            return 0
        transaction = self.table.transaction()
        _ManifestMerge(
            Operation.APPEND, transaction, self.table.io, commit_uuid=_commit_id(self.identity.query)
        ).commit()
        self._commit(transaction)
        after = {each.manifest_path for each in self._manifests()}
        return sum(each.manifest_path not in after for each in before)

    def _manifests(self) -> list[ManifestFile]:
        current = self._catalog.load_table(self.table.name()).current_snapshot()
        return [] if current is None else current.manifests(self.table.io)

    def replace(self, old: Sequence[LiveFile], new: Sequence[WrittenFile]) -> None:
        transaction = self.table.transaction()
        overwrite = _FileMerge(
            Operation.OVERWRITE, transaction, self.table.io, _commit_id(self.identity.query)
        )
        known = self._data_files()
        for file in old:
            overwrite.delete_data_file(known[self._folder.at(file.path)])
        for each in new:
            overwrite.append_data_file(self._data_file(each))
        overwrite.commit()
        self._commit(transaction)

    def _commit(self, transaction: Transaction) -> None:
        self._sync()
        try:
            self._catalog.commit_table(self.table, transaction._requirements, transaction._updates)
        except CommitFailedException as error:
            raise CommitRefused(str(error)) from error
        self._sync()

    def _data_file(self, file: WrittenFile) -> DataFile:
        statistics = data_file_statistics_from_parquet_metadata(
            file.metadata,
            compute_statistics_plan(self.table.schema(), self.table.properties),
            parquet_path_to_id_mapping(self.table.schema()),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._folder.at(file.path),
            file_format=FileFormat.PARQUET,
            partition=Record(*file.partition),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=self.table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def _sync(self) -> None:
        """Syncs the metadata files that were written since the table was loaded."""
        folder = self._folder.local
        if folder is None or not (folder / _METADATA).exists():
            return
        since = self.table.metadata.last_updated_ms / 1000 - 1
        for path in (folder / _METADATA).iterdir():
            if path.stat().st_mtime >= since:
                sync(path)
        sync(folder / _METADATA)
