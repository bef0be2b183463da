"""Upkeep of tables: merges that lose a race, states that stay readable, and files that are not orphans."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable
from table_readers import delta_rows, duck, iceberg_catalog, iceberg_rows

from magnetar.spark.pipelines import table_upkeep
from magnetar.spark.pipelines.table_commits import OpenTable, TableIdentity, commit_once
from magnetar.spark.pipelines.table_delta import DeltaFormat
from magnetar.spark.pipelines.table_files import TableFolder, WrittenFile, write_files
from magnetar.spark.pipelines.table_iceberg import IcebergFormat, catalog_in
from magnetar.spark.pipelines.table_upkeep import TableUpkeep, groups_of, maintain, merged_files, replaced

COLUMNS = pa.schema([("number", pa.int64()), ("text", pa.string())])
NAME = ("public", "default", "orders")
QUERY = "0123456789abcdef"
DAYS = timedelta(days=3)
NOW = timedelta(0)

each_format = pytest.mark.parametrize("form", ["delta", "iceberg"])


@pytest.fixture(autouse=True)
def _tasks_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_tasks(_spark: object, count: int, task: Callable[[int], list[WrittenFile]]) -> list[WrittenFile]:
        return [file for number in range(count) for file in task(number)]

    monkeypatch.setattr(table_upkeep, "run_tasks", run_tasks)


def created(path: Path, form: str, partition_by: str = "none") -> OpenTable:
    folder = TableFolder("/".join((str(path), *NAME)))
    table: OpenTable = DeltaFormat(folder)
    if form == "iceberg":
        table = IcebergFormat(catalog_in(f"{path}/catalog.db"), NAME, folder)
    table.create(TableIdentity(QUERY, "topic", "subscription", "append", partition_by), COLUMNS)
    return table


def add(table: OpenTable, *numbers: int) -> None:
    rows = pa.table({"number": list(numbers), "text": [f"text {each % 2}" for each in numbers]}, COLUMNS)
    state = table.load()
    partitions = state.identity.partitions
    files = write_files(rows.to_batches(), table.folder, state.schema, QUERY, partitions)
    commit_once(table, state.marker, str(numbers), files)


def numbers(path: Path, form: str) -> list[int]:
    found = delta_rows(path.joinpath(*NAME)) if form == "delta" else iceberg_rows(path, *NAME)
    return sorted(found["number"].to_pylist())


def data(path: Path) -> list[Path]:
    return sorted(path.rglob("magnetar-*.parquet"))


def age(files: list[Path], days: float) -> None:
    for each in files:
        os.utime(each, (time.time() - days * 86_400,) * 2)


def upkeep(table: OpenTable, keep: timedelta = DAYS, orphan_age: timedelta = DAYS) -> TableUpkeep:
    return maintain(None, table, 1 << 20, keep, orphan_age)  # type: ignore[arg-type]


@each_format
@pytest.mark.parametrize("partition_by", ["none", "text", "bucket(2, number)"])
def test_small_files_are_merged(tmp_path: Path, form: str, partition_by: str) -> None:
    table = created(tmp_path, form, partition_by)
    for number in range(5):
        add(table, 2 * number, 2 * number + 1)
    before = table.load()
    found = upkeep(table)
    assert (found.merged, found.removed) == (len(before.files), 0)
    after = table.load()
    assert after.marker == before.marker
    assert len(after.files) == (1 if partition_by == "none" else 2)
    assert numbers(tmp_path, form) == list(range(10))
    assert len(duck(table.reading()["DuckDB"] + " WHERE text = 'text 1' AND number < 6")) == 3
    add(table, 10)
    assert numbers(tmp_path, form) == list(range(11))
    assert upkeep(table).merged <= 2


@each_format
def test_a_merge_that_loses_a_race_is_dropped(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form)
    for number in range(3):
        add(table, number)
    state = table.load()
    [group] = groups_of(state.files, 1 << 20)
    new = merged_files(group, table.folder, state.schema, QUERY)
    add(table, 3)
    assert not replaced(state, group, new)
    assert numbers(tmp_path, form) == [0, 1, 2, 3]
    age(data(tmp_path), 4)
    assert upkeep(table, DAYS, DAYS).removed == 1
    assert numbers(tmp_path, form) == [0, 1, 2, 3]


@each_format
def test_readers_of_retained_states_are_not_disturbed(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form)
    for number in range(3):
        add(table, number)
    folder = str(tmp_path.joinpath(*NAME))
    version = DeltaTable(folder).version() if form == "delta" else None
    snapshot = None if form == "delta" else iceberg_catalog(tmp_path).load_table(NAME).current_snapshot()
    assert upkeep(table).merged == 3
    age(data(tmp_path), 4)
    assert upkeep(table).removed == 0
    if form == "delta":
        earlier = DeltaTable(folder, version=version).to_pyarrow_table()
    else:
        assert snapshot is not None
        loaded = iceberg_catalog(tmp_path).load_table(NAME)
        earlier = loaded.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    assert sorted(earlier["number"].to_pylist()) == [0, 1, 2]
    if form == "delta":
        age(sorted(Path(folder, "_delta_log").iterdir()), 4)
        found = upkeep(table)
    else:
        found = upkeep(table, NOW)
        assert found.expired == 3
    assert found.removed == 3
    assert numbers(tmp_path, form) == [0, 1, 2]
    add(table, 3)
    assert numbers(tmp_path, form) == [0, 1, 2, 3]


@each_format
def test_orphans_are_removed_and_nothing_else(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form)
    add(table, 0)
    state = table.load()
    rows = pa.table({"number": [9], "text": ["9"]}, COLUMNS).to_batches()
    [old] = write_files(rows, table.folder, state.schema, QUERY)
    [young] = write_files(rows, table.folder, state.schema, QUERY)
    [other] = write_files(rows, table.folder, state.schema, "another-query")
    folder = Path(str(table.folder))
    age([folder / each.path for each in (old, other)], 4)
    assert upkeep(table).removed == 1
    assert [(folder / each.path).exists() for each in (old, young, other)] == [False, True, True]
    assert numbers(tmp_path, form) == [0]


@each_format
def test_without_the_retained_states_rows_would_be_missed(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(tmp_path, form)
    add(table, 0)
    age(data(tmp_path), 4)
    monkeypatch.setattr(type(table), "retained", lambda self, since: set())
    assert upkeep(table).removed == 1
    with pytest.raises(Exception, match=r"magnetar-|[Nn]o such file|[Nn]ot found"):
        numbers(tmp_path, form)


@each_format
def test_files_that_a_later_commit_names_are_retained(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form)
    add(table, 0)
    assert table.retained(datetime.now(UTC)) == {each.path for each in table.load().files}
