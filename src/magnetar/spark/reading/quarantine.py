"""Messages that cannot be taken apart: kept in a table of their own, or the end of the query.

Each task writes one Parquet file, named by what it reads: one that runs again replaces it with the same.
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
from magnetar.spark.options import Options
from magnetar.spark.reading.planning import Part

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
"""``batch_index`` is -1 for an entry as a whole, of which ``data`` has all as stored; else the content."""


class Quarantine:
    """Takes what is malformed in one part; written when the part is read to its end."""

    def __init__(self, options: Options, part: Part) -> None:
        self._path = options.quarantine_path
        self._fails = options.mode == "FAILFAST"
        self._part = part
        self._found: list[Malformed] = []

    def add(self, found: Malformed) -> None:
        """:raises MalformedMessage: ``mode`` is FAILFAST, or there is no ``quarantine.path``"""
        if self._fails or not self._path:
            place = f"{found.ledger_id}:{found.entry_id}:{found.batch_index}".removesuffix(":-1")
            advice = "" if self._fails else "; quarantine.path=FOLDER keeps such messages apart"
            raise MalformedMessage(f"{found.topic} {place}: {found.reason}{advice}")
        self._found.append(found)

    def __enter__(self) -> Quarantine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._found:
            self._write()

    def _write(self) -> None:
        columns = {name: [getattr(each, name) for each in self._found] for name in SCHEMA.names}
        table = pa.table(columns, schema=SCHEMA)
        system, folder = fs.FileSystem.from_uri(self._path) if "://" in self._path else _local(self._path)
        system.create_dir(folder, recursive=True)
        name = f"{folder}/part-{self._name()}.parquet"
        # Another attempt of the task may write meanwhile: each has a file of its own until it is whole.
        temporary = f"{folder}/_{self._name()}-{os.urandom(4).hex()}.tmp"
        with system.open_output_stream(temporary) as stream:
            pq.write_table(table, stream)
        system.move(temporary, name)
        log.warning("%s: %d malformed messages are in %s", self._part.topic, len(self._found), name)

    def _name(self) -> str:
        first, last = self._part.ranges[0], self._part.ranges[-1]
        text = f"{self._part.topic} {first} {last}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _local(path: str) -> tuple[fs.FileSystem, str]:
    return fs.LocalFileSystem(), path
