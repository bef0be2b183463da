"""Quarantine tables: each message is in exactly one of two tables, wherever drivers are killed.

Driver, tables and commits are real; the topic is a list, and the tasks run here instead of in Spark.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from table_drivers import (
    TOPIC,
    Killed,
    Topic,
    add_all,
    driver,
    each_format,
    entries_of,
    interrupted,
    lives,
    table_rows,
)

from magnetar.spark.codec.rows import Malformed
from magnetar.spark.pipelines import table_commits
from magnetar.spark.pipelines.table_batch import BatchPlan
from magnetar.spark.pipelines.table_commits import TableError, TableMarker
from magnetar.spark.pipelines.table_files import WrittenFile, write_files
from magnetar.spark.pipelines.table_quarantine import QuarantineFile, QuarantineTable
from magnetar.spark.positions import Offset

ASIDE = {"on_error": "quarantine"}


def write_batch(_spark: object, plan: BatchPlan) -> list[WrittenFile]:
    """What the tasks do; every third message is malformed."""
    assert plan.quarantine is not None
    aside = QuarantineFile(plan.quarantine)
    rows = []
    for topic, number in entries_of(plan):
        if number % 3:
            rows.append({"value": str(number).encode()})
        else:
            aside.add(Malformed(topic, 1, number, -1, "it is one of three", str(number).encode()))
    batches = pa.Table.from_pylist(rows, pa.schema([("value", pa.binary())])).to_batches()
    return [*write_files(batches, plan.folder, plan.schema, plan.query), *aside.finish()]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Topic:
    found = Topic(random.Random(request.node.name), TOPIC)
    found.used_by_drivers(monkeypatch, write_batch)
    monkeypatch.setattr(table_commits, "_PAUSE_SECONDS", 0.0)
    return found


def numbers(path: Path, form: str, name: str, column: str) -> list[int]:
    return sorted(int(each) for each in table_rows(path, form, name)[column].to_pylist())


def check(path: Path, form: str, topic: Topic) -> None:
    length = topic.lengths[TOPIC]
    assert numbers(path, form, "orders_quarantine", "payload") == list(range(0, length, 3))
    assert numbers(path, form, "orders", "value") == [each for each in range(length) if each % 3]


@each_format
def test_kills_neither_lose_nor_repeat_messages(tmp_path: Path, form: str, topic: Topic) -> None:
    lives(tmp_path, form, random.Random(1), 10, **ASIDE)
    check(tmp_path, form, topic)


@each_format
def test_the_subscription_never_passes_the_table(tmp_path: Path, form: str, topic: Topic) -> None:
    """Else the broker could delete messages that the table does not have."""
    moved = []

    def acknowledged(end: Offset) -> None:
        has = Offset.from_json(driver(tmp_path, form, **ASIDE).table.load().marker.positions)
        assert end.topics[TOPIC].next <= has.topics[TOPIC].next
        moved.append(end.topics[TOPIC].next.entry)

    topic.acknowledged = acknowledged
    lives(tmp_path, form, random.Random(2), 6, **ASIDE)
    assert moved[-1] == topic.lengths[TOPIC]


def several_runs(path: Path, form: str) -> None:
    for _ in range(4):
        add_all(driver(path, form, **ASIDE))


@each_format
@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("place", range(4))
def test_a_kill_around_each_commit(
    tmp_path: Path, form: str, topic: Topic, fault: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.lengths[TOPIC] = 8
    with monkeypatch.context() as patched:
        interrupted(form, patched, iter([*[""] * place, fault]))
        with pytest.raises(Killed):
            several_runs(tmp_path, form)
    made = driver(tmp_path, form, **ASIDE)
    add_all(made)
    check(tmp_path, form, topic)
    assert made.quarantined <= len(range(0, topic.lengths[TOPIC], 3))


@each_format
def test_the_rows_tell_the_message(tmp_path: Path, form: str, topic: Topic) -> None:
    made = driver(tmp_path, form, quarantine_name="refused-{topic}", **ASIDE)
    add_all(made)
    found = table_rows(tmp_path, form, "refused-orders")
    first = min(found.to_pylist(), key=lambda row: int(row["payload"]))
    assert (first["reason"], first["position"], first["payload"]) == ("it is one of three", "1:0", b"0")
    assert made.quarantined == len(found)


def test_a_quarantine_table_of_another_table_is_refused(tmp_path: Path, topic: Topic) -> None:
    add_all(driver(tmp_path, "delta", **ASIDE))
    tmp_path.joinpath("public/default/orders").rename(tmp_path / "away")
    with pytest.raises(TableError, match="is not the quarantine table of persistent://public/default/orders"):
        add_all(driver(tmp_path, "delta", **ASIDE))


def test_a_table_that_lost_a_batch_is_refused(tmp_path: Path, topic: Topic) -> None:
    add_all(driver(tmp_path, "delta", **ASIDE))
    topic.lengths[TOPIC] += 5
    made = driver(tmp_path, "delta", **ASIDE)
    add_all(made)
    newest = sorted(Path(str(made.table.folder), "_delta_log").glob("*.json"))
    for each in newest[2:]:
        each.unlink()
    with pytest.raises(TableError, match="does not have; restore the later state"):
        add_all(driver(tmp_path, "delta", **ASIDE))


# A planted bug: the tests above must be able to fail.


@each_format
def test_without_the_plan_of_the_marker_messages_are_repeated_or_missing(
    tmp_path: Path, form: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = QuarantineTable.planned

    def forgetful(self: QuarantineTable, marker: TableMarker) -> None:
        original(self, marker)

    monkeypatch.setattr(QuarantineTable, "planned", forgetful)
    lives(tmp_path, form, random.Random(1), 12, **ASIDE)
    with pytest.raises(AssertionError):
        check(tmp_path, form, topic)
