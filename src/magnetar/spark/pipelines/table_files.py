"""Writes the Parquet files of a table in Spark tasks; only descriptions of files return to the driver, not
rows.
"""

from __future__ import annotations

import io
import itertools
import json
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import SparkSession

from magnetar.spark.durable import sync
from magnetar.spark.pipelines.table_columns import conformed
from magnetar.spark.pipelines.table_partitions import PartitionColumn, PartitionValue, split_by_partition

__all__ = [
    "ACCESS_OPTIONS",
    "CATALOG_OPTIONS",
    "DELETIONS",
    "S3",
    "TableFileWriter",
    "TableFolder",
    "WrittenFile",
    "prefix_of",
    "read_files",
    "run_tasks",
    "write_files",
]

_DESCRIPTIONS = "path string, size long, footer binary, partition string, changed long, deletions string"
"""The Spark columns of the rows that describe files."""
_GROUP_BYTES = 48 << 20
"""Size of a row group in memory, in bytes; it determines how much memory a task needs."""
_MOST_OPEN = 8
"""Maximum number of open files in a task; an open file of an object store takes about 10 MB of memory."""
_FOLDER = "data"
DELETIONS = "_deletions"
"""The folder of files with remembered deletions, to which no table state refers. Programs that delete
orphaned files skip folders whose names begin with an underscore.
"""
S3 = "s3://"


class _Names(NamedTuple):
    """The names of one option in the different libraries."""

    arrow: str
    delta: str
    iceberg: str


ACCESS_OPTIONS = {
    "endpoint": _Names("endpoint_override", "AWS_ENDPOINT_URL", "s3.endpoint"),
    "region": _Names("region", "AWS_REGION", "s3.region"),
    "access_key_id": _Names("access_key", "AWS_ACCESS_KEY_ID", "s3.access-key-id"),
    "secret_access_key": _Names("secret_key", "AWS_SECRET_ACCESS_KEY", "s3.secret-access-key"),
    "session_token": _Names("session_token", "AWS_SESSION_TOKEN", "s3.session-token"),
}
"""The options of an object store, by their names in the pipeline's section."""
_PUBLIC = ("endpoint", "region")
"""The options that are not secret."""
CATALOG_OPTIONS = {
    "warehouse": "warehouse",
    "prefix": "prefix",
    "token": "token",
    "credential": "credential",
    "scope": "scope",
    "oauth2_server_uri": "oauth2-server-uri",
}
"""The options of a REST catalog: maps the options' names in the pipeline's section to their names in
``pyiceberg``.
"""
_DESCRIPTION = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("footer", pa.binary()),
        ("partition", pa.string()),
        ("changed", pa.int64()),
        ("deletions", pa.string()),
    ]
)


@dataclass(frozen=True)
class TableFolder:
    """The folder of a table, in a file system that all Spark processes share, or in an object store."""

    root: str
    """An absolute path, or ``s3://BUCKET/PATH``."""
    access: Mapping[str, str] = field(default_factory=dict)
    """Options of the object store, by their names in :data:`ACCESS_OPTIONS`."""

    def __str__(self) -> str:
        return self.root

    def at(self, name: str) -> str:
        """Returns the path of a file in the folder."""
        return f"{self.root}/{name}"

    def file_system(self) -> tuple[fs.FileSystem, str]:
        """Returns the pyarrow file system, and the folder's path in it."""
        if self.local is not None:
            return fs.LocalFileSystem(), self.root
        given = {ACCESS_OPTIONS[name].arrow: value for name, value in self.access.items()}
        return fs.S3FileSystem(**given), self.root.removeprefix(S3)

    @property
    def local(self) -> Path | None:
        """The folder if it is in a file system, where files must be synced to survive a loss of power; None
        for an object store.
        """
        return None if self.root.startswith(S3) else Path(self.root)

    def delta_options(self) -> dict[str, str]:
        """Returns the options of the object store for ``deltalake``."""
        given = {ACCESS_OPTIONS[name].delta: value for name, value in self.access.items()}
        if self.access.get("endpoint", "").startswith("http://"):
            given["AWS_ALLOW_HTTP"] = "true"
        return given

    def iceberg_options(self) -> dict[str, str]:
        """Returns the options of the object store for ``pyiceberg``."""
        return {ACCESS_OPTIONS[name].iceberg: value for name, value in self.access.items()}

    @property
    def without_secrets(self) -> TableFolder:
        """Returns the folder without credentials, for reports."""
        return replace(self, access={name: self.access[name] for name in _PUBLIC if name in self.access})

    def reading_once(self) -> dict[str, str]:
        """Returns, for each program, the code that must run once before the table can be read; empty: no code
        is needed.
        """
        if self.local is not None:
            return {}
        secure, _, host = self.access.get("endpoint", "").rpartition("://")
        parts = {
            "TYPE": "s3",
            "KEY_ID": "'ID'",
            "SECRET": "'SECRET'",
            "REGION": f"'{self.access.get('region', 'REGION')}'",
        }
        if host:
            parts |= {
                "ENDPOINT": f"'{host}'",
                "URL_STYLE": "'path'",
                "USE_SSL": str(secure != "http").lower(),
            }
        secret = ", ".join(f"{name} {value}" for name, value in parts.items())
        spark = {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
        if "region" in self.access:
            spark["fs.s3a.endpoint.region"] = self.access["region"]
        if host:
            spark |= {"fs.s3a.endpoint": self.access["endpoint"], "fs.s3a.path.style.access": "true"}
        options = " ".join(f"--conf spark.hadoop.{name}={value}" for name, value in spark.items())
        return {
            "DuckDB, once": f"INSTALL httpfs; LOAD httpfs; CREATE SECRET ({secret})",
            "Spark, once": f"--packages org.apache.hadoop:hadoop-aws:VERSION {options}",
        }


@dataclass(frozen=True)
class WrittenFile:
    """A complete Parquet file that no commit contains yet."""

    path: str
    """The path relative to the table's folder."""
    size: int
    footer: bytes
    """The metadata of the file, in the form of a Parquet file without rows."""
    partition: tuple[PartitionValue, ...] = ()
    """The partition values of the file."""
    changed: int = 0
    """Number of rows that a merge has changed in the partition."""
    deletions: str = ""
    """The file with the deletions that the partition remembers after a merge; empty: no deletions."""

    @property
    def metadata(self) -> pq.FileMetaData:
        """The number of rows, and the statistics of each column in each row group."""
        return pq.read_metadata(io.BytesIO(self.footer))

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows)


def prefix_of(query: str, place: str = _FOLDER) -> str:
    """Returns the prefix that the paths of all files of a query share.

    :param place: the folder of the files within the table's folder
    """
    return f"{place}/magnetar-{query}-"


class TableFileWriter:
    """Writes rows to one file, which is created for the first row."""

    def __init__(
        self,
        folder: TableFolder,
        schema: pa.Schema,
        query: str,
        partition: tuple[PartitionValue, ...] = (),
        left_out: Collection[str] = (),
        place: str = _FOLDER,
    ) -> None:
        """:param schema: columns of the file, with the field ids that the table format needs

        :param left_out: columns that the file omits, because the partition determines their values
        :param place: the folder of the file within the table's folder
        """
        self._partition = partition
        self._left_out = left_out
        self._folder = folder
        self._schema = schema
        self._path = f"{prefix_of(query, place)}{uuid.uuid4().hex}.parquet"
        self._held: list[pa.RecordBatch] = []
        self.held_bytes = 0
        """Size of the rows in memory, in bytes."""
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows; columns of the schema that the rows lack become null."""
        batch = conformed(batch, self._schema, self._left_out)
        self._held.append(batch)
        self.held_bytes += batch.nbytes

    @property
    def is_open(self) -> bool:
        """Whether the file was created and is not complete yet; an open file takes memory."""
        return self._writer is not None

    def take_held(self) -> list[pa.RecordBatch]:
        """Removes and returns the rows in memory that are not written yet."""
        held, self._held, self.held_bytes = self._held, [], 0
        return held

    def finish(self) -> WrittenFile | None:
        """Completes the file; returns None if there were no rows.

        :raises OSError: the file cannot be written; the incomplete file belongs to no table
        """
        self.write_group()
        if self._writer is None or self._stream is None:
            return None
        self._writer.close()
        self._stream.close()
        system, folder = self._folder.file_system()
        if self._folder.local is not None:
            path = Path(folder, self._path)
            sync(path)
            sync(path.parent)
        size = system.get_file_info(f"{folder}/{self._path}").size
        footer = io.BytesIO()
        [metadata] = self._footers
        metadata.write_metadata_file(footer)
        return WrittenFile(self._path, size, footer.getvalue(), self._partition)

    def write_full_group(self) -> None:
        """Writes the rows in memory if they fill a row group."""
        if self.held_bytes >= _GROUP_BYTES:
            self.write_group()

    def write_group(self) -> None:
        """Writes the rows in memory."""
        if not self._held:
            return
        if self._writer is None:
            system, folder = self._folder.file_system()
            path = f"{folder}/{self._path}"
            if self._folder.local is not None:
                system.create_dir(path.rpartition("/")[0], recursive=True)
            self._stream = system.open_output_stream(path)
            self._writer = pq.ParquetWriter(
                self._stream,
                self._schema,
                compression="zstd",
                compression_level=1,
                store_schema=False,
                metadata_collector=self._footers,
            )
        table = pa.Table.from_batches(self.take_held(), self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))


def read_files(
    folder: TableFolder, paths: Iterable[str], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of files, one row group at a time, because a row can have megabytes.

    :param paths: relative to the folder
    :param columns: names of the columns; None: all columns
    """
    system, base = folder.file_system()
    for path in paths:
        with system.open_input_file(f"{base}/{path}") as source:
            file = pq.ParquetFile(source)
            for group in range(file.num_row_groups):
                yield from file.iter_batches(row_groups=[group], columns=columns)


def run_tasks(spark: SparkSession, count: int, task: Callable[[int], list[WrittenFile]]) -> list[WrittenFile]:
    """Runs ``task`` for each number below ``count`` in a Spark task; returns the files of all tasks.

    :raises PySparkException: a task failed
    """

    def write(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield _described(task(number))

    if not count:
        return []
    described = spark.range(0, count, 1, count).mapInArrow(write, _DESCRIPTIONS).collect()
    return [
        WrittenFile(
            row["path"],
            row["size"],
            bytes(row["footer"]),
            tuple(json.loads(row["partition"])),
            row["changed"],
            row["deletions"],
        )
        for row in described
    ]


def _described(files: list[WrittenFile]) -> pa.RecordBatch:
    """Returns the descriptions of files as rows."""
    columns = (
        [each.path for each in files],
        [each.size for each in files],
        [each.footer for each in files],
        [json.dumps(each.partition) for each in files],
        [each.changed for each in files],
        [each.deletions for each in files],
    )
    arrays = [pa.array(each, field.type) for each, field in zip(columns, _DESCRIPTION, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_DESCRIPTION)


class _Spool:
    """Rows in a temporary file that wait until the file of their partition is written."""

    def __init__(self, file: IO[bytes]) -> None:
        """:param file: an empty temporary file"""
        self._file = file
        self._pieces: dict[tuple[PartitionValue, ...], list[tuple[int, int]]] = {}
        """By partition: offset and size of its pieces in the temporary file."""

    def put(self, partition: tuple[PartitionValue, ...], batches: Sequence[pa.RecordBatch]) -> None:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
            for batch in batches:
                stream.write_batch(batch)
        data = sink.getvalue()
        self._pieces.setdefault(partition, []).append((self._file.tell(), data.size))
        self._file.write(data)

    def take(self, partition: tuple[PartitionValue, ...]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition in their original order; no rows can be added afterwards."""
        for offset, size in self._pieces.pop(partition, ()):
            self._file.seek(offset)
            yield from pa.ipc.open_stream(pa.py_buffer(self._file.read(size)))


def write_files(
    batches: Iterable[pa.RecordBatch],
    folder: TableFolder,
    schema: pa.Schema,
    query: str,
    partitions: Sequence[PartitionColumn] = (),
) -> list[WrittenFile]:
    """Writes rows to a file for each partition, with bounded memory for any number of partitions. Few files
    are open at a time, because an open file of an object store takes megabytes; the rows of other
    partitions wait in a local temporary file.
    """
    writers: dict[tuple[PartitionValue, ...], TableFileWriter] = {}
    by_partition = [each.column for each in partitions]
    with tempfile.TemporaryFile() as file:
        spool = _Spool(file)
        for batch in batches:
            for values, rows in split_by_partition(batch, partitions):
                if values not in writers:
                    writers[values] = TableFileWriter(folder, schema, query, values, by_partition)
                writers[values].add(rows)
            if sum(each.held_bytes for each in writers.values()) >= _GROUP_BYTES:
                _release(writers, spool)
        # Those that are open first: each of them takes memory.
        ordered = sorted(writers.items(), key=lambda item: not item[1].is_open)
        files = []
        for values, writer in ordered:
            held = writer.take_held()
            for rows in itertools.chain(spool.take(values), held):
                writer.add(rows)
                writer.write_full_group()
            files.append(writer.finish())
    return [each for each in files if each is not None]


def _release(writers: Mapping[tuple[PartitionValue, ...], TableFileWriter], spool: _Spool) -> None:
    """Frees half of the memory that rows take: writes rows of the largest partitions to their files or to the
    spool.
    """
    left = _GROUP_BYTES // 2
    is_open = sum(each.is_open for each in writers.values())
    total = sum(each.held_bytes for each in writers.values())
    for values, writer in sorted(writers.items(), key=lambda item: item[1].held_bytes, reverse=True):
        if total < left:
            return
        total -= writer.held_bytes
        if writer.is_open or is_open < _MOST_OPEN:
            is_open += not writer.is_open
            writer.write_group()
        else:
            spool.put(values, writer.take_held())
