"""Quarantine tables: each message is in exactly one of two tables, wherever drivers are killed.

Driver, tables and commits are real; the topic is a list, and the tasks run here instead of in Spark.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from table_readers import delta_rows, iceberg_rows

from magnetar.spark.codec.rows import Malformed
from magnetar.spark.ledgers import Range
from magnetar.spark.pipelines import table as pipeline
from magnetar.spark.pipelines.table import TopicTable
from magnetar.spark.pipelines.table_batch import BatchPlan
from magnetar.spark.pipelines.table_commits import TableError, TableMarker, TableState
from magnetar.spark.pipelines.table_delta import DeltaState
from magnetar.spark.pipelines.table_files import WrittenFile, write_files
from magnetar.spark.pipelines.table_iceberg import IcebergState
from magnetar.spark.pipelines.table_quarantine import QuarantineFile, QuarantineTable
from magnetar.spark.pipelines.table_section import TableConfig
from magnetar.spark.positions import Offset, Place, TopicOffset
from magnetar.spark.reading.planning import TaskPart

TOPIC = "persistent://public/default/orders"
STATES = {"delta": DeltaState, "iceberg": IcebergState}
each_format = pytest.mark.parametrize("form", STATES)


class Killed(BaseException):
    """The driver was killed."""


class Topic:
    """A topic of numbered messages, of which every third is malformed; and the reader of a driver."""

    def __init__(self, chosen: random.Random) -> None:
        self.length = 0
        self._chosen = chosen

    def reader(self, options: object, schema: object) -> Topic:
        return self

    def prepareForTriggerAvailableNow(self) -> None:
        self.length += self._chosen.randint(1, 4)

    def initialOffset(self) -> dict[str, object]:
        return self._at(0)

    def _at(self, number: int, begin: int | None = None) -> dict[str, object]:
        place = None if begin is None else Place(1, begin)
        return Offset({TOPIC: TopicOffset(Place(1, number), (), place)}, "kept").to_json()

    def getDefaultReadLimit(self) -> None:
        """There is none."""

    def latestOffset(self, start: dict[str, object], limit: object) -> dict[str, object]:
        begin = Offset.from_json(start).topics[TOPIC].next.entry
        if begin == self.length:
            return start
        # How much a batch takes differs from time to time.
        return self._at(self._chosen.randint(begin + 1, self.length), begin)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[TaskPart]:
        after = Offset.from_json(end).topics[TOPIC]
        assert after.begin is not None
        return [TaskPart(TOPIC, (Range(1, after.begin.entry, 0, after.next.entry),))]

    def commit(self, end: object) -> None:
        """The subscription does not matter here."""

    def reportLatestOffset(self) -> None:
        """There is no lag."""

    def stop(self) -> None:
        """There is no connection."""


def write_batch(_spark: object, plan: BatchPlan) -> list[WrittenFile]:
    """What the tasks do."""
    assert plan.quarantine is not None
    aside = QuarantineFile(plan.quarantine)
    rows = []
    for part in (part for share in plan.shares for part in share):
        for number in range(part.ranges[0].first, part.ranges[0].end):
            if number % 3:
                rows.append({"value": str(number).encode()})
            else:
                message = Malformed(TOPIC, 1, number, -1, "it is one of three", str(number).encode())
                aside.add(message)
    batches = pa.Table.from_pylist(rows, pa.schema([("value", pa.binary())])).to_batches()
    return [*write_files(batches, plan.folder, plan.schema, plan.query), *aside.finish()]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Topic:
    found = Topic(random.Random(request.node.name))
    monkeypatch.setattr(pipeline, "StreamReader", found.reader)
    monkeypatch.setattr(pipeline, "write_batch", write_batch)
    monkeypatch.setattr(pipeline, "tasks_of", lambda spark: 1)
    return found


def driver(path: Path, form: Any, **more: Any) -> TopicTable:
    settings = {"on_error": "quarantine", "options": {"value.format": "bytes"}, **more}
    config = TableConfig((TOPIC,), str(path), format=form, **settings)
    addresses = {"service.url": "pulsar://127.0.0.1:1", "admin.url": "http://127.0.0.1:1"}
    cluster = SimpleNamespace(options=lambda: addresses)
    work: Any = SimpleNamespace(
        config=config, cluster=cluster, progress=SimpleNamespace(update=lambda rows: None)
    )
    return TopicTable(work, TOPIC)


def add_all(made: TopicTable) -> None:
    made.add_all(None)  # type: ignore[arg-type]


def numbers(path: Path, form: str, name: str, column: str) -> list[int]:
    place = ("public", "default", name)
    found = delta_rows(path.joinpath(*place)) if form == "delta" else iceberg_rows(path, *place)
    return sorted(int(each) for each in found[column].to_pylist())


def check(path: Path, form: str, length: int) -> None:
    assert numbers(path, form, "orders_quarantine", "payload") == list(range(0, length, 3))
    assert numbers(path, form, "orders", "value") == [each for each in range(length) if each % 3]


def interrupted(
    form: str, monkeypatch: pytest.MonkeyPatch, faults: Iterator[str], other: TopicTable | None = None
) -> None:
    """Kills the driver before or after commits; or lets another one run before them."""
    original = STATES[form].commit

    def commit(self: TableState, files: Sequence[WrittenFile], marker: TableMarker) -> TableMarker:
        fault = next(faults, "")
        if fault == "before":
            raise Killed
        if fault == "other" and other is not None:
            add_all(other)
        found = original(self, files, marker)  # type: ignore[arg-type]
        if fault == "after":
            raise Killed
        return found

    monkeypatch.setattr(STATES[form], "commit", commit)


def lives(path: Path, form: str, topic: Topic, chosen: random.Random, count: int) -> None:
    """Runs a driver again and again; the topic grows meanwhile."""
    for _ in range(count):
        with pytest.MonkeyPatch.context() as patched:
            faults = (chosen.choice(("", "before", "after", "other")) for _ in range(6))
            interrupted(form, patched, faults, driver(path, form))
            try:
                add_all(driver(path, form))
            except Killed:
                continue
    add_all(driver(path, form))


@each_format
def test_kills_neither_lose_nor_repeat_messages(tmp_path: Path, form: str, topic: Topic) -> None:
    lives(tmp_path, form, topic, random.Random(1), 12)
    check(tmp_path, form, topic.length)


def several_runs(path: Path, form: str) -> None:
    for _ in range(4):
        add_all(driver(path, form))


@each_format
@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("place", range(4))
def test_a_kill_around_each_commit(
    tmp_path: Path, form: str, topic: Topic, fault: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.length = 8
    with monkeypatch.context() as patched:
        interrupted(form, patched, iter([*[""] * place, fault]))
        with pytest.raises(Killed):
            several_runs(tmp_path, form)
    made = driver(tmp_path, form)
    add_all(made)
    check(tmp_path, form, topic.length)
    assert made.quarantined <= len(range(0, topic.length, 3))


@each_format
def test_the_rows_tell_the_message(tmp_path: Path, form: str, topic: Topic) -> None:
    made = driver(tmp_path, form, quarantine_name="refused-{topic}")
    add_all(made)
    place = ("public", "default", "refused-orders")
    found = delta_rows(tmp_path.joinpath(*place)) if form == "delta" else iceberg_rows(tmp_path, *place)
    first = found.to_pylist()[0]
    assert (first["reason"], first["position"], first["payload"]) == ("it is one of three", "1:0", b"0")
    assert made.quarantined == len(found)


def test_a_quarantine_table_of_another_table_is_refused(tmp_path: Path, topic: Topic) -> None:
    add_all(driver(tmp_path, "delta"))
    tmp_path.joinpath("public/default/orders").rename(tmp_path / "away")
    with pytest.raises(
        TableError, match="does not belong to the table of persistent://public/default/orders"
    ):
        add_all(driver(tmp_path, "delta"))


def test_a_table_that_lost_a_batch_is_refused(tmp_path: Path, topic: Topic) -> None:
    add_all(driver(tmp_path, "delta"))
    topic.length += 5
    made = driver(tmp_path, "delta")
    add_all(made)
    newest = sorted(Path(str(made.table.folder), "_delta_log").glob("*.json"))
    for each in newest[2:]:
        each.unlink()
    with pytest.raises(TableError, match="does not have; restore the later state"):
        add_all(driver(tmp_path, "delta"))


# A planted bug: the tests above must be able to fail.


@each_format
def test_without_the_plan_of_the_marker_messages_are_repeated_or_missing(
    tmp_path: Path, form: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = QuarantineTable.planned

    def forgetful(self: QuarantineTable, marker: TableMarker) -> None:
        original(self, marker)

    monkeypatch.setattr(QuarantineTable, "planned", forgetful)
    lives(tmp_path, form, topic, random.Random(1), 12)
    with pytest.raises(AssertionError):
        check(tmp_path, form, topic.length)
