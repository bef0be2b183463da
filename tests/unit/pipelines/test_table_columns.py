"""Columns of tables follow the schema of their topic, in both formats, as other programs see them."""

from __future__ import annotations

import itertools
import random
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from table_readers import delta_rows, duck, iceberg_catalog, iceberg_rows

from magnetar.spark.pipelines import table_files
from magnetar.spark.pipelines.table_columns import ColumnError, conformed, merged_columns
from magnetar.spark.pipelines.table_commits import OpenTable, TableError, TableIdentity, commit_once
from magnetar.spark.pipelines.table_delta import DeltaFormat
from magnetar.spark.pipelines.table_files import TableFileWriter, TableFolder, write_files
from magnetar.spark.pipelines.table_iceberg import IcebergFormat, catalog_in
from magnetar.spark.pipelines.table_partitions import PartitionColumn

NAME = ("public", "default", "orders")
EARLIER = pa.schema(
    [
        ("a", pa.int32()),
        ("s", pa.struct([("x", pa.int32())])),
        ("l", pa.list_(pa.struct([("y", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
LATER = pa.schema(
    [
        ("b", pa.string()),
        ("a", pa.int32()),
        ("s", pa.struct([("z", pa.string()), ("x", pa.int32())])),
        ("l", pa.list_(pa.struct([("y", pa.string()), ("w", pa.int64())]))),
    ]
)

each_format = pytest.mark.parametrize("form", ["delta", "iceberg"])


def created(path: Path, form: str, columns: pa.Schema, partition_by: str = "none") -> OpenTable:
    folder = TableFolder("/".join((str(path), *NAME)))
    table: OpenTable = DeltaFormat(folder)
    if form == "iceberg":
        table = IcebergFormat(catalog_in(f"{path}/catalog.db"), NAME, folder)
    table.create(TableIdentity(uuid.uuid4().hex, "topic", "subscription", "append", partition_by), columns)
    return table


def put(table: OpenTable, columns: pa.Schema, *rows: dict[str, Any]) -> None:
    """Widens the table to the columns, and adds rows that have them."""
    table.widen(columns)
    state = table.load()
    writer = TableFileWriter(table.folder, state.schema, state.identity.query)
    for batch in pa.Table.from_pylist(list(rows), schema=columns).to_batches():
        writer.add(batch)
    file = writer.finish()
    assert file is not None
    commit_once(table, state.marker, file.path, [file])


def views(path: Path, table: OpenTable, form: str) -> list[list[dict[str, Any]]]:
    """The rows of a table as each program reads them, ordered by ``a``."""
    library = delta_rows(path.joinpath(*NAME)) if form == "delta" else iceberg_rows(path, *NAME)
    found = (library, duck(table.reading()["DuckDB"]))
    return [sorted(each.to_pylist(), key=lambda row: (row["a"] is None, row["a"])) for each in found]


@each_format
def test_fields_are_added_and_stay(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form, EARLIER)
    put(table, EARLIER, {"a": 1, "s": {"x": 1}, "l": [{"y": "one"}], "m": [("k", 1)]})
    put(table, LATER, {"a": 2, "b": "two", "s": {"x": 2, "z": "z"}, "l": [{"y": "two", "w": 2}]})
    wanted = [
        {"a": 1, "s": {"x": 1, "z": None}, "l": [{"y": "one", "w": None}], "m": [("k", 1)], "b": None},
        {"a": 2, "s": {"x": 2, "z": "z"}, "l": [{"y": "two", "w": 2}], "m": None, "b": "two"},
    ]
    for found in views(tmp_path, table, form):
        for row in found:
            row["m"] = None if row["m"] is None else list(dict(row["m"]).items())
        assert found == wanted


def test_ids_of_columns_are_not_used_again(tmp_path: Path) -> None:
    table = created(tmp_path, "iceberg", EARLIER)
    put(table, EARLIER, {"a": 1})
    before = iceberg_catalog(tmp_path).load_table(NAME).schema()
    put(table, LATER, {"a": 2})
    after = iceberg_catalog(tmp_path).load_table(NAME).schema()
    for name in before.column_names:
        assert after.find_field(name).field_id == before.find_field(name).field_id
    assert after.find_field("b").field_id > before.highest_field_id


@each_format
def test_a_change_that_the_format_cannot_express(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form, EARLIER)
    refusal = r"the field 's\.x' is int32 in the table and string in the schema, which "
    with pytest.raises(TableError, match=refusal):
        table.widen(pa.schema([("s", pa.struct([("x", pa.string())]))]))
    with pytest.raises(TableError, match=r"the field 'a' is int32 in the table and list"):
        table.widen(pa.schema([("a", pa.list_(pa.int32()))]))
    assert table.load().schema.names == EARLIER.names


def test_numbers_grow_in_iceberg_alone(tmp_path: Path) -> None:
    whole, long = pa.schema([("a", pa.int32())]), pa.schema([("a", pa.int64())])
    table = created(tmp_path / "iceberg", "iceberg", whole)
    put(table, whole, {"a": 1})
    put(table, long, {"a": 1 << 40})
    put(table, whole, {"a": 2})
    for found in views(tmp_path / "iceberg", table, "iceberg"):
        assert [row["a"] for row in found] == [1, 2, 1 << 40]
    table = created(tmp_path / "delta", "delta", whole)
    refusal = "the field 'a' is int32 in the table and int64 in the schema, which Delta cannot express"
    with pytest.raises(TableError, match=refusal):
        table.widen(long)


def test_delta_does_not_take_names_that_differ_in_case(tmp_path: Path) -> None:
    table = created(tmp_path, "delta", pa.schema([("id", pa.int32())]))
    with pytest.raises(TableError, match="Delta cannot have the fields 'id' and 'ID' in one table"):
        table.widen(pa.schema([("ID", pa.int32())]))


def test_decimals_grow_where_numbers_do() -> None:
    small, large = (pa.schema([("d", pa.decimal128(digits, 2))]) for digits in (5, 9))
    assert merged_columns(small, large, {(pa.int32(), pa.int64())}) == large
    with pytest.raises(ColumnError):
        merged_columns(small, large, ())


def test_rows_with_an_unknown_column_are_not_cut() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": [2]})
    with pytest.raises(ColumnError, match="the table has no column 'b'"):
        conformed(batch, pa.schema([("a", pa.int64())]))


TIMES = [
    datetime(1969, 12, 31, 23, 30),
    datetime(1970, 1, 1),
    datetime(2024, 5, 1, 12, 59),
    datetime(2024, 12, 31),
]
PARTITIONS = ("year(t)", "month(t)", "day(t)", "hour(t)", "bucket(4, k)", "c")
ROWS = pa.schema(
    [("t", pa.timestamp("us", "UTC")), ("k", pa.binary()), ("c", pa.string()), ("n", pa.int64())]
)


@each_format
@pytest.mark.parametrize("by", [[each] for each in PARTITIONS] + [["day(t)", "bucket(4, k)", "c"]])
def test_partitions(tmp_path: Path, form: str, by: list[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"t": time.replace(tzinfo=UTC), "k": b"k%d" % number, "c": colour, "n": number}
        for number, (time, colour) in enumerate(itertools.product(TIMES, ["red", "blue", None]))
    ]
    rows.append({"t": None, "k": None, "c": "", "n": 99})
    table = created(tmp_path, form, ROWS, "; ".join(by))
    state = table.load()
    batches = pa.Table.from_pylist(rows, schema=ROWS).to_batches()
    files = write_files(batches, table.folder, state.schema, state.identity.query, state.identity.partitions)
    commit_once(table, state.marker, "1", files)
    assert len(files) > 1
    library = delta_rows(tmp_path.joinpath(*NAME)) if form == "delta" else iceberg_rows(tmp_path, *NAME)
    line = table.reading()["DuckDB"]
    for found in (library, duck(line)):
        kept = [{name: row[name] for name in ROWS.names} for row in found.to_pylist()]
        wanted = [{**row, "c": row["c"] or None} for row in rows] if form == "delta" and "c" in by else rows
        assert sorted(kept, key=lambda row: row["n"]) == wanted
    for number in (0, 5, 99):
        assert duck(f"{line} WHERE n = {number}").num_rows == 1
    assert duck(f"{line} WHERE t >= TIMESTAMPTZ '2024-05-01 00:00:00+00' AND c = 'red'").num_rows == 2
    assert duck(f"{line} WHERE k = 'k7'::BLOB").num_rows == 1
    if form == "iceberg":
        scan = iceberg_catalog(tmp_path).load_table(NAME).scan(row_filter="t < '1970-01-01T00:00:00+00:00'")
        assert sorted(scan.to_arrow()["n"].to_pylist()) == [0, 1, 2]


def test_few_files_are_open_however_many_partitions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of other partitions wait elsewhere; each partition has one file, with its rows in order."""
    monkeypatch.setattr(table_files, "_GROUP_BYTES", 2000)
    most: list[int] = []
    original = TableFileWriter.write_group
    living: list[TableFileWriter] = []

    def write_group(self: TableFileWriter) -> None:
        living.append(self)
        original(self)
        most.append(len({id(each) for each in living if each.is_open and not each._stream.closed}))

    monkeypatch.setattr(TableFileWriter, "write_group", write_group)
    columns = pa.schema([("n", pa.int64()), ("c", pa.string())])
    chosen = random.Random(3)
    rows = [{"n": number, "c": f"c{min(chosen.randrange(60), 50)}"} for number in range(3000)]
    batches = [pa.RecordBatch.from_pylist(rows[at : at + 50], schema=columns) for at in range(0, 3000, 50)]
    table = created(tmp_path, "iceberg", columns, "c")
    state = table.load()
    files = write_files(batches, table.folder, state.schema, state.identity.query, state.identity.partitions)
    assert len(files) == 51
    assert 8 <= max(most) <= 9
    assert sum(each.metadata.num_row_groups for each in files) < 200
    commit_once(table, state.marker, "1", files)
    for found in (iceberg_rows(tmp_path, *NAME), duck(table.reading()["DuckDB"])):
        assert sorted(found.to_pylist(), key=lambda row: row["n"]) == rows
    for each in files:
        numbers = pq.read_table(table.folder.at(each.path))["n"].to_pylist()
        assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("week(t)", "must have elements like"),
        ("bucket(0, k)", "must have 1 to 10,000 buckets"),
        ("day(c)", r"day\(c\) does not fit the type string"),
        ("k", "k does not fit the type binary"),
        ("other", "the table has no column 'other'"),
    ],
)
def test_partitions_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PartitionColumn.parse(text).check(ROWS)
