"""Tables in a REST catalog: Apache Iceberg's own one, without a session of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from rest_catalog import LossyWire, rest_catalog
from table_readers import duck

from magnetar.spark.pipelines import table_upkeep
from magnetar.spark.pipelines.configuration import (
    CatalogLocation,
    Location,
    PipelineError,
    load_document,
)
from magnetar.spark.pipelines.replay import ReplayConfig, table_at
from magnetar.spark.pipelines.table_commits import (
    BatchTaken,
    OpenTable,
    TableError,
    TableIdentity,
    commit_once,
)
from magnetar.spark.pipelines.table_files import WrittenFile, write_files
from magnetar.spark.pipelines.table_section import TableConfig, opened
from magnetar.spark.pipelines.table_upkeep import maintain

TOPIC = "persistent://public/default/orders"
QUERY = "0123456789abcdef"
COLUMNS = pa.schema([("number", pa.int64()), ("text", pa.string())])


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with rest_catalog(tmp_path_factory.mktemp("catalog")) as port:
        yield port


@pytest.fixture
def wire(catalog: int) -> Iterator[LossyWire]:
    made = LossyWire(catalog)
    yield made
    made.close()


Make = Callable[[], OpenTable]


@pytest.fixture
def make(wire: LossyWire, tmp_path: Path) -> Make:
    """Opens the table of this test as another driver would."""
    topic = f"{TOPIC}-{tmp_path.name}"

    def make() -> OpenTable:
        address = f"http://127.0.0.1:{wire.port}"
        document = {"table": {"topics": [topic], "path": "tables", "format": "iceberg", "catalog": address}}
        (tmp_path / "config.json").write_text(json.dumps(document))
        config = load_document(tmp_path / "config.json").section("table", TableConfig)
        assert config is not None
        assert config.may_have_tables
        return opened(config, topic)

    return make


def created(table: OpenTable) -> OpenTable:
    table.create(TableIdentity(QUERY, TOPIC, "subscription", "append"), COLUMNS)
    return table


def written(table: OpenTable, *numbers: int) -> list[WrittenFile]:
    rows = pa.table({"number": list(numbers), "text": [f"text {each}" for each in numbers]}, COLUMNS)
    return write_files(rows.to_batches(), table.folder, table.load().schema, QUERY)


def add(table: OpenTable, number: int) -> None:
    commit_once(table, table.load().marker, str(number), written(table, number))


def numbers(table: OpenTable) -> list[int]:
    return sorted(duck(table.reading()["DuckDB"])["number"].to_pylist())


def test_lost_requests_and_answers(make: Make, wire: LossyWire) -> None:
    table = created(make())
    assert make().load().identity.query == QUERY
    for number, losses in enumerate(
        [["request"], ["answer"], ["gateway"], ["request", "answer"], ["request", "gateway"]]
    ):
        wire.losses += losses
        add(table, number)
        marker = make().load().marker
        assert (marker.batch, marker.positions) == (number + 1, str(number))
    assert not wire.losses
    assert numbers(table) == [0, 1, 2, 3, 4]


def test_two_drivers_add_each_batch_once(make: Make) -> None:
    tables = created(make()), created(make())
    for number in range(3):
        before = [table.load().marker for table in tables]
        files = [written(table, number) for table in tables]
        commit_once(tables[0], before[0], str(number), files[0])
        with pytest.raises(BatchTaken):
            commit_once(tables[1], before[1], str(number), files[1])
    assert numbers(tables[0]) == [0, 1, 2]


def test_columns_are_added_and_files_are_merged(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        table_upkeep,
        "run_tasks",
        lambda spark, count, task: [file for number in range(count) for file in task(number)],
    )
    table = created(make())
    for number in range(3):
        add(table, number)
    table.widen(COLUMNS.append(pa.field("more", pa.string())))
    add(table, 3)
    before = table.load().marker
    done = maintain(None, table, 1 << 20, timedelta(0), timedelta(days=3))  # type: ignore[arg-type]
    assert (done.merged, done.expired > 0) == (4, True)
    assert table.load().marker == before
    add(table, 4)
    assert numbers(table) == [0, 1, 2, 3, 4]


def test_replay_finds_the_table(make: Make, wire: LossyWire) -> None:
    table = created(make())
    add(table, 7)
    address = f"http://127.0.0.1:{wire.port}"
    places = {"path": Location(table.folder), "topic": TOPIC, "work": Path("work")}
    found = table_at(ReplayConfig(**places, catalog=CatalogLocation(address)))
    assert found is not None
    assert found.load().marker == table.load().marker
    wire.close()
    with pytest.raises(PipelineError, match=rf"the catalog {address} cannot be used: "):
        table_at(ReplayConfig(**places, catalog=CatalogLocation(address)))


def test_a_catalog_that_does_not_answer(make: Make, wire: LossyWire) -> None:
    wire.close()
    with pytest.raises(TableError, match=rf"the catalog http://127.0.0.1:{wire.port} cannot be used: "):
        make()
