"""Writes messages of several versions of a schema to tables, without a broker, and reads the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from table_readers import delta_rows, duck, iceberg_rows

from magnetar.admin_client import NotFound
from magnetar.spark.codec.decoders import decoder_of
from magnetar.spark.codec.schemas import Definition, columns_of, definition_of_all_versions, type_of
from magnetar.spark.pipelines.table_columns import columns_in
from magnetar.spark.pipelines.table_commits import OpenTable, TableIdentity, commit_once
from magnetar.spark.pipelines.table_delta import DeltaFormat
from magnetar.spark.pipelines.table_files import TableFileWriter, TableFolder
from magnetar.spark.pipelines.table_iceberg import IcebergFormat, catalog_in

NAME = ("public", "default", "orders")
TOPIC = "persistent://public/default/orders"


class Registry:
    """The versions of a topic's schema, as the admin client tells them."""

    def __init__(self, *texts: str, kind: str = "PROTOBUF_NATIVE") -> None:
        self._kind = kind
        self._texts = list(texts)

    def schema(self, topic: str, version: int | None = None) -> dict[str, object]:
        if not self._texts:
            raise NotFound(404, "no schema")
        number = len(self._texts) - 1 if version is None else version
        text = self._texts[number]
        if self._kind == "PROTOBUF":
            properties = {"__PARSING_INFO__": text} if text else {}
            return {"type": self._kind, "version": number, "data": "{}", "properties": properties}
        return {"type": self._kind, "version": number, "data": text, "properties": {}}


def definition(*texts: str, kind: str = "PROTOBUF_NATIVE") -> Definition:
    """The schema of a topic with these versions."""
    admin: Any = Registry(*texts, kind=kind)
    return definition_of_all_versions(admin, TOPIC, {})


def content_columns(wanted: Definition) -> pa.Schema:
    """The columns of a table."""
    return pa.schema([each for each in columns_in(wanted) if not each.name.startswith("__")])


def read_columns(wanted: Definition) -> pa.Schema:
    """The columns of the reader."""
    fields = [each for each in columns_of(wanted).fields if not each.name.startswith("__")]
    return to_arrow_schema(StructType(fields), timezone="UTC")


def rows(wanted: Definition, *messages: tuple[str, bytes]) -> list[pa.RecordBatch]:
    """The rows of messages, each with the definition that it was written with."""
    columns = read_columns(wanted)
    values = [decoder_of(Definition(wanted.kind, text), wanted)(data) for text, data in messages]
    if columns.names == ["value"] and not isinstance(type_of(wanted), StructType):
        values = [{"value": each} for each in values]
    array = pa.array(values, pa.struct(list(columns)))
    return [pa.RecordBatch.from_arrays(array.flatten(), schema=columns)]


def created(path: Path, form: str, columns: pa.Schema) -> OpenTable:
    folder = TableFolder("/".join((str(path), *NAME)))
    table: OpenTable = DeltaFormat(folder)
    if form == "iceberg":
        table = IcebergFormat(catalog_in(f"{path}/catalog.db"), NAME, folder)
    table.create(TableIdentity("query", "topic", "subscription", "append"), columns)
    return table


def put(table: OpenTable, wanted: Definition, *messages: tuple[str, bytes]) -> None:
    table.widen(content_columns(wanted))
    state = table.load()
    writer = TableFileWriter(table.folder, state.schema, state.identity.query)
    for batch in rows(wanted, *messages):
        writer.add(batch)
    file = writer.finish()
    assert file is not None
    commit_once(table, state.marker, file.path, [file])


def views(path: Path, table: OpenTable, form: str) -> list[list[dict[str, Any]]]:
    library = delta_rows(path.joinpath(*NAME)) if form == "delta" else iceberg_rows(path, *NAME)
    return [found.to_pylist() for found in (library, duck(table.reading()["DuckDB"]))]
