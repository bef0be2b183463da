"""Commits of tables, with drivers that race, answers that are lost, and bugs that are planted.

Every test works on real tables of both formats in a folder; there is no Spark.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable
from object_stores import object_store
from table_readers import delta_rows, duck, iceberg_catalog, iceberg_rows

from magnetar.spark.pipelines import table_commits
from magnetar.spark.pipelines.table_commits import (
    BatchTaken,
    CommitRefused,
    OpenTable,
    TableError,
    TableIdentity,
    TableMarker,
    TableState,
    commit_once,
)
from magnetar.spark.pipelines.table_delta import DeltaFormat, DeltaState
from magnetar.spark.pipelines.table_files import TableFileWriter, TableFolder, WrittenFile
from magnetar.spark.pipelines.table_iceberg import IcebergFormat, IcebergState, catalog_in

COLUMNS = pa.schema([("number", pa.int64()), ("text", pa.string())])
NAME = ("public", "default", "orders")
STATES = {"delta": DeltaState, "iceberg": IcebergState}
Commit = Callable[[TableState, Sequence[WrittenFile], TableMarker], TableMarker]

each_format = pytest.mark.parametrize("form", STATES)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_commits, "_PAUSE_SECONDS", 0.0)


def opened(path: Path, form: str) -> OpenTable:
    folder = TableFolder("/".join((str(path), *NAME)))
    return (
        DeltaFormat(folder)
        if form == "delta"
        else IcebergFormat(catalog_in(f"{path}/catalog.db"), NAME, folder)
    )


def created(path: Path, form: str) -> OpenTable:
    table = opened(path, form)
    query = uuid.uuid4().hex[:16]
    table.create(
        TableIdentity(query, "persistent://public/default/orders", f"table-{query}", "append"), COLUMNS
    )
    return table


def written(table: OpenTable, *numbers: int) -> list[WrittenFile]:
    """A file with these rows."""
    state = table.load()
    writer = TableFileWriter(table.folder, state.schema, state.identity.query)
    rows = pa.table({"number": list(numbers), "text": [f"text {each}" for each in numbers]}, schema=COLUMNS)
    for batch in rows.to_batches():
        writer.add(batch)
    file = writer.finish()
    return [] if file is None else [file]


def numbers(path: Path, form: str) -> list[int]:
    found = delta_rows(path.joinpath(*NAME)) if form == "delta" else iceberg_rows(path, *NAME)
    return sorted(found["number"].to_pylist())


def add(table: OpenTable, number: int) -> TableMarker:
    """Does what a driver does with a batch that has one row; the positions are its number."""
    return commit_once(table, table.load().marker, str(number), written(table, number))


@each_format
def test_batches_follow_each_other(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form)
    assert table.load().marker.batch == 0
    for number in range(3):
        marker = add(table, number)
        assert (marker.batch, marker.positions) == (number + 1, str(number))
        assert opened(tmp_path, form).load().marker == marker
    assert numbers(tmp_path, form) == [0, 1, 2]


@each_format
def test_a_batch_without_rows_moves_the_marker(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form)
    commit_once(table, table.load().marker, "after malformed messages", [])
    assert table.load().marker.positions == "after malformed messages"
    assert numbers(tmp_path, form) == []


@each_format
def test_a_table_is_created_once(tmp_path: Path, form: str) -> None:
    first = created(tmp_path, form).load().identity
    assert created(tmp_path, form).load().identity == first


def race(path: Path, form: str) -> None:
    """Two drivers write each batch at the same time; the second one begins before the first has committed."""
    tables = created(path, form), opened(path, form)
    for number in range(4):
        before = [table.load().marker for table in tables]
        files = [written(table, number) for table in tables]
        for table, marker, its in zip(tables, before, files, strict=True):
            try:
                commit_once(table, marker, str(number), its)
            except BatchTaken:
                continue


@each_format
def test_two_drivers_add_each_batch_once(tmp_path: Path, form: str) -> None:
    race(tmp_path, form)
    assert numbers(tmp_path, form) == [0, 1, 2, 3]


@each_format
def test_two_drivers_that_compare_at_the_same_time(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = created(tmp_path, form), opened(tmp_path, form)
    state = STATES[form]
    original: Commit = state.commit
    before = table.load().marker
    calls = itertools.count()

    def overtaken(self: TableState, files: Sequence[WrittenFile], marker: TableMarker) -> TableMarker:
        if next(calls) == 0:
            commit_once(other, before, "0", written(other, 0))
        return original(self, files, marker)

    monkeypatch.setattr(state, "commit", overtaken)
    with pytest.raises(BatchTaken):
        commit_once(table, before, "0", written(table, 0))
    assert numbers(tmp_path, form) == [0]


def lose(state: type[TableState], monkeypatch: pytest.MonkeyPatch, lost: Sequence[str]) -> None:
    """Loses the answers of the first commits, which took effect (``answer``) or not (``request``)."""
    original: Commit = state.commit
    left = iter(lost)

    def unreliable(self: TableState, files: Sequence[WrittenFile], marker: TableMarker) -> TableMarker:
        fate = next(left, "")
        if fate == "request":
            raise ConnectionResetError("the request was lost")
        if fate == "refused":
            raise CommitRefused("the catalog says so")
        found = original(self, files, marker)
        if fate == "answer":
            raise ConnectionResetError("the answer was lost")
        return found

    monkeypatch.setattr(state, "commit", unreliable)


@each_format
@pytest.mark.parametrize("lost", list(itertools.product(("request", "answer", "refused", ""), repeat=2)))
def test_lost_answers(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...]
) -> None:
    table = created(tmp_path, form)
    lose(STATES[form], monkeypatch, lost)
    for number in range(2):
        assert add(table, number).batch == number + 1
    assert numbers(tmp_path, form) == [0, 1]


@each_format
def test_an_outcome_that_stays_unknown_deletes_no_file(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(tmp_path, form)
    add(table, 0)
    with monkeypatch.context() as patched:
        lose(STATES[form], patched, ["request"] * 100)
        with pytest.raises(TableError, match=r"batch 2 could not be committed in 8 attempts.*was lost"):
            add(table, 1)
    assert len(list(tmp_path.rglob("magnetar-*.parquet"))) == 2
    add(table, 1)
    assert numbers(tmp_path, form) == [0, 1]


@each_format
def test_a_table_that_was_rolled_back(tmp_path: Path, form: str) -> None:
    table = created(tmp_path, form)
    markers = [add(table, number) for number in range(3)]
    if form == "delta":
        DeltaTable(str(table.folder)).restore(2)
    else:
        loaded = iceberg_catalog(tmp_path).load_table(NAME)
        loaded.manage_snapshots().rollback_to_snapshot(markers[1].snapshot).commit()
    assert numbers(tmp_path, form) == [0, 1]
    with pytest.raises(TableError, match=r"rolled back to batch 2 \(1\), behind its marker, batch 3 \(2\)"):
        add(table, 3)
    assert numbers(tmp_path, form) == [0, 1]


@each_format
def test_a_table_of_something_else_is_refused(tmp_path: Path, form: str) -> None:
    if form == "delta":
        DeltaTable.create(str(tmp_path.joinpath(*NAME)), schema=pa.schema([("a", pa.int64())]))
    else:
        catalog = catalog_in(f"{tmp_path}/catalog.db")
        catalog.create_namespace(NAME[:-1])
        catalog.create_table(NAME, COLUMNS, location=str(tmp_path / "other"))
    with pytest.raises(TableError, match="was not created by this pipeline: it has no property magnetar"):
        _ = opened(tmp_path, form).load().marker


def test_expired_snapshots_do_not_move_the_marker(tmp_path: Path) -> None:
    table = created(tmp_path, "iceberg")
    markers = [add(table, number) for number in range(3)]
    loaded = iceberg_catalog(tmp_path).load_table(NAME)
    loaded.maintenance.expire_snapshots().by_ids([each.snapshot for each in markers[:2]]).commit()
    add(table, 3)
    loaded = iceberg_catalog(tmp_path).load_table(NAME)
    loaded.append(pa.table({"number": [9], "text": [None]}, schema=COLUMNS))
    loaded.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in loaded.snapshots()[:-1]]
    ).commit()
    add(table, 4)
    assert numbers(tmp_path, "iceberg") == [0, 1, 2, 3, 4, 9]


@pytest.fixture(scope="module")
def bucket() -> Iterator[TableFolder]:
    """A bucket of an object store."""
    with object_store() as folder:
        yield folder


@each_format
@pytest.mark.parametrize("lost", ["request", "answer", "refused", ""])
def test_tables_in_an_object_store(
    bucket: TableFolder, tmp_path: Path, form: str, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TableFolder(f"{bucket.root}/{form}/orders-{lost}", bucket.access)

    def table() -> OpenTable:
        if form == "delta":
            return DeltaFormat(folder)
        return IcebergFormat(catalog_in(f"{tmp_path}/catalog.db", folder.iceberg_options()), NAME, folder)

    first, second = table(), table()
    first.create(TableIdentity("query", "topic", "subscription", "append"), COLUMNS)
    lose(STATES[form], monkeypatch, [lost])
    for number in range(2):
        before = second.load().marker
        add(first, number)
        with pytest.raises(BatchTaken):
            commit_once(second, before, str(number), written(second, number))
    if form == "delta":
        found = DeltaTable(folder.root, storage_options=folder.delta_options()).to_pyarrow_table()
    else:
        catalog = catalog_in(f"{tmp_path}/catalog.db", folder.iceberg_options())
        found = catalog.load_table(NAME).scan().to_arrow()
    assert sorted(found["number"].to_pylist()) == [0, 1]


@each_format
def test_the_lines_that_read_a_table_in_an_object_store(
    bucket: TableFolder, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TableFolder(f"{bucket.root}/{form}/read", bucket.access)
    catalog = catalog_in(f"{tmp_path}/catalog.db", folder.iceberg_options())
    table = DeltaFormat(folder) if form == "delta" else IcebergFormat(catalog, NAME, folder)
    table.create(TableIdentity("query", "topic", "subscription", "append"), COLUMNS)
    add(table, 7)
    key, secret = bucket.access["access_key_id"], bucket.access["secret_access_key"]
    lines = table.reading()
    assert secret not in str(lines)
    # test_tables_whole.py reads tables with them.
    assert f"--conf spark.hadoop.fs.s3a.endpoint={bucket.access['endpoint']} " in lines["Spark, once"]
    first = lines["DuckDB, once"].replace("'ID'", f"'{key}'").replace("'SECRET'", f"'{secret}'")
    assert duck(lines["DuckDB"], once=first)["number"].to_pylist() == [7]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    found = eval(lines["Python"], {each: import_module(each) for each in ("deltalake", "pyiceberg")})
    assert list(found["number"]) == [7]


# Planted bugs: each of the tests above must be able to fail.


@each_format
def test_without_the_comparison_two_drivers_add_rows_twice(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_commits, "is_same_batch", lambda found, before: True)
    race(tmp_path, form)
    assert numbers(tmp_path, form) != [0, 1, 2, 3]


def test_a_marker_in_the_summary_alone_is_lost_with_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_summary(self: IcebergState) -> TableMarker:
        return self.last_of(self.identity.query) or TableMarker(self.identity.query, 0, "", "")

    monkeypatch.setattr(IcebergState, "marker", property(from_summary))
    table = created(tmp_path, "iceberg")
    add(table, 0)
    loaded = iceberg_catalog(tmp_path).load_table(NAME)
    loaded.append(pa.table({"number": [9], "text": [None]}, schema=COLUMNS))
    loaded.maintenance.expire_snapshots().by_ids([loaded.snapshots()[0].snapshot_id]).commit()
    assert table.load().marker.batch == 0
    monkeypatch.undo()
    assert table.load().marker.batch == 1


@each_format
def test_files_that_are_deleted_after_an_unknown_outcome_are_missed(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = STATES[form]
    original: Commit = state.commit

    def deleting(self: TableState, files: Sequence[WrittenFile], marker: TableMarker) -> TableMarker:
        original(self, files, marker)
        for file in files:
            Path(str(tmp_path.joinpath(*NAME)), file.path).unlink()
        raise ConnectionResetError("the answer was lost")

    table = created(tmp_path, form)
    monkeypatch.setattr(state, "commit", deleting)
    add(table, 0)
    with pytest.raises(Exception, match=r"magnetar-|[Nn]o such file|[Nn]ot found"):
        numbers(tmp_path, form)
