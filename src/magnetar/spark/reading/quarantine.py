"""Handles messages that cannot be decoded: stores them in a separate table, or fails the query.

Each task writes one Parquet file, whose name depends only on what the task reads; a repeated task replaces
the file by an equal one.
"""

from __future__ import annotations

import hashlib
import logging
import os
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from magnetar.spark.codec.rows import Malformed
from magnetar.spark.errors import MalformedMessage
from magnetar.spark.options import QueryOptions
from magnetar.spark.reading.planning import TaskPart

__all__ = ["SCHEMA", "Quarantine"]

log = logging.getLogger(__name__)

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("ledger_id", pa.int64(), nullable=False),
        pa.field("entry_id", pa.int64(), nullable=False),
        pa.field("batch_index", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""Columns of quarantined messages. For a whole entry, ``batch_index`` is -1 and ``data`` is the stored entry;
otherwise ``data`` is the message's payload.
"""


_HELD_BYTES = 16 << 20
"""Maximum size of the messages that are kept in memory, in bytes; memory must be limited, because all
messages of a topic can be malformed.
"""


class Quarantine:
    """Collects the malformed messages of one part; the file becomes visible when the part is completely
    read.
    """

    def __init__(self, options: QueryOptions, part: TaskPart) -> None:
        self._path = options.quarantine_path
        self._fails = options.mode == "FAILFAST"
        self._part = part
        self._found: list[Malformed] = []
        self._held = 0
        self._file: _QuarantineFile | None = None

    def add(self, found: Malformed) -> None:
        """Puts a malformed message into quarantine.

        :raises MalformedMessage: ``mode`` is FAILFAST, or ``quarantine.path`` is not set
        """
        if self._fails or not self._path:
            place = f"{found.ledger_id}:{found.entry_id}:{found.batch_index}".removesuffix(":-1")
            advice = "" if self._fails else "; use quarantine.path=FOLDER to put such messages aside"
            raise MalformedMessage(f"{found.topic} {place}: {found.reason}{advice}")
        self._found.append(found)
        self._held += len(found.data)
        if self._held >= _HELD_BYTES:
            self._write()

    def __enter__(self) -> Quarantine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._found:
            self._write()
        if self._file is not None:
            if kind is not None:
                self._file.give_up()
                return
            name = self._file.finish()
            log.warning("%s: %d malformed messages written to %s", self._part.topic, self._file.rows, name)

    def _write(self) -> None:
        if self._file is None:
            self._file = _QuarantineFile(self._path, self._name())
        self._file.write(self._found)
        self._found, self._held = [], 0

    def _name(self) -> str:
        first, last = self._part.ranges[0], self._part.ranges[-1]
        text = f"{self._part.topic} {first} {last}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class _QuarantineFile:
    """A Parquet file that gets its final name when it is complete."""

    def __init__(self, path: str, name: str) -> None:
        self._system, folder = fs.FileSystem.from_uri(path) if "://" in path else _local(path)
        self._system.create_dir(folder, recursive=True)
        self._name = f"{folder}/part-{name}.parquet"
        # Another attempt of the task may write at the same time, so each has its own temporary file.
        self._temporary = f"{folder}/_{name}-{os.urandom(4).hex()}.tmp"
        self._stream = self._system.open_output_stream(self._temporary)
        self._writer = pq.ParquetWriter(self._stream, SCHEMA)
        self.rows = 0

    def write(self, found: list[Malformed]) -> None:
        columns = {name: [getattr(each, name) for each in found] for name in SCHEMA.names}
        self._writer.write_table(pa.table(columns, schema=SCHEMA))
        self.rows += len(found)

    def finish(self) -> str:
        """Completes the file; returns its name."""
        self._writer.close()
        self._stream.close()
        self._system.move(self._temporary, self._name)
        return self._name

    def give_up(self) -> None:
        """Removes the incomplete file."""
        self._writer.close()
        self._stream.close()
        self._system.delete_file(self._temporary)


def _local(path: str) -> tuple[fs.FileSystem, str]:
    return fs.LocalFileSystem(), path
