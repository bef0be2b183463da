"""Upkeep deletes old metadata of tables, and nothing that a reader or a driver needs."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable
from pyiceberg.table.snapshots import Operation
from table_readers import delta_rows, duck, iceberg_catalog, iceberg_rows

from magnetar.spark.pipelines import table_delta, table_iceberg, table_upkeep
from magnetar.spark.pipelines.table_commits import OpenTable, TableError, TableIdentity, commit_once
from magnetar.spark.pipelines.table_delta import DeltaFormat
from magnetar.spark.pipelines.table_files import TableFolder, WrittenFile, write_files
from magnetar.spark.pipelines.table_iceberg import IcebergFormat, catalog_in
from magnetar.spark.pipelines.table_upkeep import TableUpkeep, maintain

COLUMNS = pa.schema([("number", pa.int64())])
NAME = ("public", "default", "orders")
QUERY = "0123456789abcdef"
DAY = timedelta(days=1)

each_format = pytest.mark.parametrize("form", ["delta", "iceberg"])


@pytest.fixture(autouse=True)
def _tasks_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_tasks(_spark: object, count: int, task: Callable[[int], list[WrittenFile]]) -> list[WrittenFile]:
        return [file for number in range(count) for file in task(number)]

    monkeypatch.setattr(table_upkeep, "run_tasks", run_tasks)


def created(path: Path, form: str) -> OpenTable:
    folder = TableFolder("/".join((str(path), *NAME)))
    table: OpenTable = DeltaFormat(folder)
    if form == "iceberg":
        table = IcebergFormat(catalog_in(f"{path}/catalog.db"), NAME, folder)
    table.create(TableIdentity(QUERY, "topic", "subscription", "append"), COLUMNS)
    if form == "iceberg":
        loaded = iceberg_catalog(path).load_table(NAME)
        with loaded.transaction() as change:
            change.set_properties({"write.metadata.previous-versions-max": "2"})
    return table


def written(table: OpenTable, number: int) -> list[WrittenFile]:
    rows = pa.table({"number": [number]}, COLUMNS).to_batches()
    return write_files(rows, table.folder, table.load().schema, QUERY)


def add(table: OpenTable, number: int) -> None:
    commit_once(table, table.load().marker, str(number), written(table, number))


def upkeep(
    table: OpenTable, keep: timedelta = DAY, orphan_age: timedelta = DAY, file_mb: int = 0
) -> TableUpkeep:
    return maintain(None, table, file_mb << 20, keep, orphan_age)  # type: ignore[arg-type]


def numbers(path: Path, form: str) -> list[int]:
    found = delta_rows(path.joinpath(*NAME)) if form == "delta" else iceberg_rows(path, *NAME)
    return sorted(found["number"].to_pylist())


def test_small_manifests_are_merged(tmp_path: Path) -> None:
    table = created(tmp_path, "iceberg")
    for number in range(table_iceberg._SMALL_MANIFESTS - 1):
        add(table, number)
    assert upkeep(table).manifests == 0
    add(table, 9)
    before = table.load().marker
    loaded = iceberg_catalog(tmp_path).load_table(NAME)
    earlier = loaded.snapshots()
    done = upkeep(table, timedelta(0), file_mb=0)
    assert (done.manifests, done.expired) == (10, len(earlier))
    assert table.load().marker == before
    [snapshot] = iceberg_catalog(tmp_path).load_table(NAME).snapshots()
    assert snapshot.summary is not None
    assert (snapshot.summary.operation, snapshot.summary["total-records"]) == (Operation.REPLACE, "10")
    [manifest] = snapshot.manifests(loaded.io)
    assert (manifest.existing_files_count, manifest.added_files_count) == (10, 0)
    assert numbers(tmp_path, "iceberg") == list(range(10))
    assert sorted(duck(table.reading()["DuckDB"])["number"].to_pylist()) == list(range(10))
    # Nothing is left to merge, and the pipeline continues.
    assert upkeep(table).manifests == 0
    add(table, 10)
    for each in metadata(tmp_path, "iceberg"):
        os.utime(each, (0, 0))
    assert upkeep(table, timedelta(0), file_mb=1).merged == 11
    assert numbers(tmp_path, "iceberg") == list(range(11))


def test_a_merge_of_manifests_that_loses_a_race_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(tmp_path, "iceberg")
    for number in range(10):
        add(table, number)
    original = table_iceberg.IcebergState._commit

    def overtaken(self: table_iceberg.IcebergState, transaction: Any) -> None:
        monkeypatch.setattr(table_iceberg.IcebergState, "_commit", original)
        add(table, 10)
        original(self, transaction)

    monkeypatch.setattr(table_iceberg.IcebergState, "_commit", overtaken)
    assert upkeep(table).manifests == 0
    assert numbers(tmp_path, "iceberg") == list(range(11))
    assert upkeep(table).manifests == 11
    assert numbers(tmp_path, "iceberg") == list(range(11))
    # The manifests of the merge that was dropped belong to nothing.
    for each in metadata(tmp_path, "iceberg"):
        os.utime(each, (0, 0))
    assert upkeep(table).cleaned > 0
    named = table_iceberg._named_metadata(iceberg_catalog(tmp_path).load_table(NAME))
    assert {each.name for each in metadata(tmp_path, "iceberg") if each.suffix == ".avro"} <= named
    assert numbers(tmp_path, "iceberg") == list(range(11))


def metadata(path: Path, form: str) -> list[Path]:
    return sorted(path.joinpath(*NAME, "_delta_log" if form == "delta" else "metadata").iterdir())


def pass_time(path: Path, days: float) -> None:
    """Lets all files of the table be older."""
    for each in path.joinpath(*NAME).rglob("*"):
        if each.is_file():
            before = each.stat().st_mtime
            os.utime(each, (before - days * 86_400,) * 2)


@each_format
def test_old_metadata_go_and_the_table_goes_on(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form)
    for number in range(12):
        add(table, number)
    assert upkeep(table).cleaned == 0
    pass_time(tmp_path, 2)
    before = len(metadata(tmp_path, form))
    done = upkeep(table, timedelta(0), file_mb=1)
    assert (done.merged, done.cleaned >= 10) == (12, True)
    # One more for the merge, and for the expiry of snapshots.
    assert len(metadata(tmp_path, form)) <= before + 5 - done.cleaned
    if form == "delta":
        assert [each.name for each in metadata(tmp_path, form) if "checkpoint" in each.name] == [
            "00000000000000000012.checkpoint.parquet",
            "_last_checkpoint",
        ]
    add(table, 12)
    assert numbers(tmp_path, form) == list(range(13))
    assert sorted(duck(table.reading()["DuckDB"])["number"].to_pylist()) == list(range(13))
    assert table.load().marker.positions == "12"


@each_format
def test_states_that_can_be_read_stay_readable(tmp_path: Path, form: str) -> None:
    """Commits, merges and upkeep in any order, while time passes; retained states are read after upkeep."""
    chosen = random.Random(7)
    table = created(tmp_path, form)
    rows: dict[int, list[int]] = {}
    ages: dict[int, float] = {}
    cleaned = 0
    for number in range(30):
        add(table, number)
        rows[state_of(tmp_path, form)] = list(range(number + 1))
        ages[state_of(tmp_path, form)] = 0.0
        if chosen.random() < 0.5:
            pass_time(tmp_path, 0.25)
            ages = {state: age + 0.25 for state, age in ages.items()}
        if chosen.random() < 0.3:
            cleaned += upkeep(table, DAY, chosen.choice((DAY, DAY / 4)), chosen.choice((0, 1))).cleaned
            # Upkeep may have merged files.
            rows.setdefault(state_of(tmp_path, form), list(range(number + 1)))
            ages.setdefault(state_of(tmp_path, form), 0.0)
            # Ages in Iceberg are those in its metadata, where no time has passed.
            readable = [state for state, age in ages.items() if form == "iceberg" or age < 1]
            for state in {readable[0], readable[-1], chosen.choice(readable)}:
                assert numbers_at(tmp_path, form, state) == rows[state]
            assert numbers(tmp_path, form) == list(range(number + 1))
    assert cleaned > 5


def numbers_at(path: Path, form: str, state: int) -> list[int]:
    if form == "delta":
        found = pa.table(DeltaTable(str(path.joinpath(*NAME)), version=state).to_pyarrow_table())
    else:
        found = iceberg_catalog(path).load_table(NAME).scan(snapshot_id=state).to_arrow()
    return sorted(found["number"].to_pylist())


def state_of(path: Path, form: str) -> int:
    if form == "delta":
        return int(DeltaTable(str(path.joinpath(*NAME))).version())
    snapshot = iceberg_catalog(path).load_table(NAME).current_snapshot()
    assert snapshot is not None
    return int(snapshot.snapshot_id)


@each_format
def test_the_commit_with_the_marker_stays(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs have made all the commits since; without that rule the driver could not go on."""
    table = created(tmp_path, form)
    add(table, 0)
    marker = table.load().marker
    for _ in range(12):
        other_commit(tmp_path, form)
    for _ in range(2):
        pass_time(tmp_path, 3)
        upkeep(table)
    assert table.load().marker == marker
    add(table, 1)
    assert table.load().marker.batch == 2
    if form == "delta":
        for _ in range(12):
            other_commit(tmp_path, form)
        monkeypatch.setattr(table_delta, "_version_of_marker", lambda table, folder: table.version())
        pass_time(tmp_path, 3)
        assert upkeep(table).cleaned > 0
        with pytest.raises(TableError, match="the log has no commit of batch 2"):
            assert table.load().marker


def other_commit(path: Path, form: str) -> None:
    if form == "delta":
        DeltaTable(str(path.joinpath(*NAME))).alter.set_table_properties({"delta.appendOnly": "false"})
        return
    with iceberg_catalog(path).load_table(NAME).transaction() as change:
        change.set_properties({"other": str(time.time_ns())})


def test_manifests_of_commits_that_failed_go_when_they_are_old(tmp_path: Path) -> None:
    table = created(tmp_path, "iceberg")
    state = table.load()
    marker = state.marker
    add(table, 0)
    with pytest.raises(Exception, match=r"CommitRefused|has changed|Requirement"):
        state.commit(written(table, 1), marker)
    lost = [each for each in metadata(tmp_path, "iceberg") if each.name not in named(tmp_path)]
    assert len([each for each in lost if each.suffix == ".avro"]) == 2
    folder = lost[0].parent
    foreign = folder / "01234567-89ab-4cde-8f01-23456789abcd-m0.avro"
    shutil.copy(next(each for each in lost if each.name.endswith("-m0.avro")), foreign)
    of_another_table = folder / "00007-01234567-89ab-4cde-8f01-23456789abcd.metadata.json"
    of_another_table.write_text('{"table-uuid": "01234567-89ab-4cde-8f01-23456789abcd"}')
    assert upkeep(table).cleaned == 0
    pass_time(tmp_path, 2)
    assert upkeep(table).cleaned >= len(lost)
    assert not [each for each in lost if each.exists()]
    assert foreign.exists()
    assert of_another_table.exists()
    assert numbers(tmp_path, "iceberg") == [0]


def named(path: Path) -> set[str]:
    return table_iceberg._named_metadata(iceberg_catalog(path).load_table(NAME))


def test_without_the_retained_snapshots_they_would_be_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Any = table_iceberg._named_metadata

    def of_the_present_alone(loaded: Any) -> set[str]:
        current = loaded.current_snapshot()
        gone = {each.manifest_list.rpartition("/")[2] for each in loaded.snapshots() if each != current}
        return set(original(loaded)) - gone

    table = created(tmp_path, "iceberg")
    add(table, 0)
    first = state_of(tmp_path, "iceberg")
    add(table, 1)
    monkeypatch.setattr(table_iceberg, "_named_metadata", of_the_present_alone)
    pass_time(tmp_path, 2)
    upkeep(table)
    with pytest.raises(FileNotFoundError):
        iceberg_catalog(tmp_path).load_table(NAME).scan(snapshot_id=first).to_arrow()


def test_a_log_with_a_checkpoint_in_parts_stays(tmp_path: Path) -> None:
    table = created(tmp_path, "delta")
    for number in range(12):
        add(table, number)
    upkeep(table)
    pass_time(tmp_path, 3)
    log = tmp_path.joinpath(*NAME, "_delta_log")
    whole = next(log.glob("*.checkpoint.parquet"))
    whole.rename(log / f"{whole.name.partition('.')[0]}.checkpoint.0000000001.0000000001.parquet")
    (log / "_last_checkpoint").write_text('{"version":12,"size":15,"parts":1}')
    before = set(metadata(tmp_path, "delta"))
    add(table, 12)
    upkeep(table)
    assert before <= set(metadata(tmp_path, "delta"))
    assert numbers(tmp_path, "delta") == list(range(13))
