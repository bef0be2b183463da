"""``mode = "upsert"``: tables have the last message of each key, whatever happens to drivers; see the model.

Driver, tables and merges are real; the topic is a list, and the tasks run here instead of in Spark.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from table_drivers import (
    TOPIC,
    Topic,
    add_all,
    driver,
    each_format,
    entries_of,
    lives,
    table_rows,
)
from table_readers import duck

from magnetar.client.message_id import MessageId
from magnetar.spark.codec.columns import IS_EMPTY
from magnetar.spark.pipelines import table as pipeline
from magnetar.spark.pipelines import table_commits, table_upkeep, table_upsert
from magnetar.spark.pipelines.table_batch import BatchPlan
from magnetar.spark.pipelines.table_commits import FileExchange, OpenTable, TableError
from magnetar.spark.pipelines.table_files import WrittenFile, write_files
from magnetar.spark.pipelines.table_upkeep import maintain

NAMES = (f"{TOPIC}-partition-0", f"{TOPIC}-partition-1")
UPSERT: dict[str, Any] = {"mode": "upsert", "buckets": 3, "late_hours": 24 * 365 * 100}
START = datetime(2024, 5, 1, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        ("value", pa.binary()),
        ("__key", pa.binary()),
        ("__messageId", pa.binary()),
        ("__publishTime", pa.timestamp("us", "UTC")),
        (IS_EMPTY, pa.bool_()),
    ]
)


class Message(NamedTuple):
    """A message; later ones are greater."""

    seconds: int
    """Its publish time."""
    partition: int
    entry: int
    key: bytes
    value: bytes


class Changes(Topic):
    """A topic of two partitions; some keys are in both of them."""

    def __init__(self, chosen: random.Random, names: tuple[str, ...] = NAMES) -> None:
        super().__init__(chosen, *names)
        self.messages: tuple[list[Message], list[Message]] = ([], [])

    def at(self, partition: int, entry: int) -> Message:
        made = self.messages[partition]
        while len(made) <= entry:
            seconds = (made[-1].seconds if made else 0) + self.chosen.randint(0, 2)
            key = b"%d-%d" % (partition, self.chosen.randint(0, 5))
            if self.chosen.random() < 0.5:
                key = b"moving-%d" % self.chosen.randint(0, 2)
            value = self.chosen.choice((b"", b"%d" % len(made)))
            made.append(Message(seconds, partition, len(made), key, value))
        return made[entry]

    def wanted(self) -> dict[bytes, bytes]:
        """The rows after all messages."""
        last: dict[bytes, Message] = {}
        for partition, name in enumerate(self.lengths):
            for entry in range(self.lengths[name]):
                message = self.at(partition, entry)
                last[message.key] = max(message, last.get(message.key, message))
        return {key: each.value for key, each in last.items() if each.value}

    def write_batch(self, _spark: object, plan: BatchPlan) -> list[WrittenFile]:
        """What the tasks do."""
        rows = []
        for name, entry in entries_of(plan):
            message = self.at(NAMES.index(name), entry)
            rows.append(
                {
                    "value": message.value,
                    "__key": message.key,
                    "__messageId": MessageId(message.partition, 1, entry).serialize(),
                    "__publishTime": START + timedelta(seconds=message.seconds),
                    IS_EMPTY: not message.value,
                }
            )
        # Two tasks, whose order does not matter.
        self.chosen.shuffle(rows)
        halves = rows[::2], rows[1::2]
        batches = [pa.RecordBatch.from_pylist(each, COLUMNS) for each in halves]
        return [
            file
            for each in batches
            for file in write_files([each], plan.folder, plan.file_schema, plan.query, plan.partitions)
        ]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Changes:
    found = Changes(random.Random(request.node.name))
    found.used_by_drivers(monkeypatch, found.write_batch)
    monkeypatch.setattr(table_commits, "_PAUSE_SECONDS", 0.0)
    return found


def check(path: Path, form: str, topic: Changes) -> None:
    found = table_rows(path, form)
    assert sorted(zip(found["__key"].to_pylist(), found["value"].to_pylist(), strict=True)) == sorted(
        topic.wanted().items()
    )


@each_format
def test_a_table_has_the_last_message_of_each_key(tmp_path: Path, form: str, topic: Changes) -> None:
    for _ in range(6):
        made = driver(tmp_path, form, **UPSERT)
        add_all(made)
        check(tmp_path, form, topic)
    assert len(duck(made.table.reading()["DuckDB"])) == len(topic.wanted())
    assert made.rewritten >= made.changed > 0
    # Each bucket has one file; those with the messages of batches are gone.
    assert len(made.table.load().files) <= 3
    written = [pq.read_schema(each).names for each in tmp_path.rglob("magnetar-*.parquet")]
    assert not [names for names in written if IS_EMPTY in names]


@each_format
def test_kills_lost_answers_and_other_drivers(tmp_path: Path, form: str, topic: Changes) -> None:
    lives(tmp_path, form, random.Random(2), 10, **UPSERT)
    check(tmp_path, form, topic)


def overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets upkeep put the same rows into other files, between a merge and its commit."""
    original = table_upsert.merge

    def overtaken(spark: object, table: OpenTable, *more: object) -> object:
        found = original(spark, table, *more)  # type: ignore[arg-type]
        monkeypatch.setattr(pipeline, "merge", original)
        state = table.load()
        for file in state.files:
            [new] = table_upkeep.merged_files([file], table.folder, state.schema, state.identity.query)
            table.load().replace([file], [new])
        return found

    monkeypatch.setattr(pipeline, "merge", overtaken)


@each_format
def test_a_merge_that_loses_a_race_against_upkeep_is_made_again(
    tmp_path: Path, form: str, topic: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(driver(tmp_path, form, **UPSERT))
    overtake(monkeypatch)
    topic.lengths[NAMES[0]] += 20
    add_all(driver(tmp_path, form, **UPSERT))
    check(tmp_path, form, topic)


@each_format
def test_messages_replace_rows_of_other_programs(tmp_path: Path, form: str, topic: Changes) -> None:
    made = driver(tmp_path, form, **UPSERT)
    add_all(made)
    state = made.table.load()
    keys = [b"%d-%d" % (partition, number) for partition in (0, 1) for number in range(6)]
    columns = pa.schema([COLUMNS.field(name) for name in ("__key", "value")])
    rows = pa.RecordBatch.from_pylist([{"__key": key, "value": b"theirs"} for key in keys], columns)
    files = write_files([rows], made.table.folder, state.schema, "other", state.identity.partitions)
    state.replace([], files)
    for name in NAMES:
        topic.lengths[name] += 150
    add_all(driver(tmp_path, form, **UPSERT))
    check(tmp_path, form, topic)


def in_rounds(
    path: Path, form: str, topic: Changes, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> list[list[bytes]]:
    """The rows after each of three rounds: one partition deletes a key, then the other one has an earlier
    message of it, then a later one."""
    monkeypatch.setattr(topic, "prepareForTriggerAvailableNow", lambda: None)
    topic.is_one_batch = True
    topic.messages[0][:] = [Message(0, 0, 0, b"key", b"first"), Message(10, 0, 1, b"key", b"")]
    topic.messages[1][:] = [Message(5, 1, 0, b"key", b"earlier"), Message(20, 1, 1, b"key", b"later")]
    found = []
    for lengths in ((2, 0), (2, 1), (2, 2)):
        topic.lengths.update(zip(NAMES, lengths, strict=True))
        add_all(driver(path, form, **UPSERT | settings))
        found.append(table_rows(path, form)["value"].to_pylist())
    return found


@each_format
def test_an_earlier_message_of_another_partition_does_not_undo_a_deletion(
    tmp_path: Path, form: str, topic: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_rounds(tmp_path, form, topic, monkeypatch) == [[], [], [b"later"]]


@each_format
def test_a_message_that_is_later_than_permitted_creates_the_row_again(
    tmp_path: Path, form: str, topic: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = in_rounds(tmp_path, form, topic, monkeypatch, late_hours=24)
    assert found == [[], [b"earlier"], [b"later"]]
    assert deletions(tmp_path) == []


def deletions(path: Path) -> list[Path]:
    return sorted(path.rglob("_deletions/*.parquet"))


@each_format
def test_deletions_are_remembered_until_no_earlier_message_can_come(
    tmp_path: Path, form: str, topic: Changes
) -> None:
    for _ in range(3):
        made = driver(tmp_path, form, **UPSERT)
        add_all(made)
    remembered = dict(made.table.load().marker.deletions)
    assert {str(made.table.folder.at(path)) for path in remembered.values()} <= set(
        map(str, deletions(tmp_path))
    )
    for each in (*deletions(tmp_path), *tmp_path.rglob("data/*.parquet")):
        os.utime(each, (0, 0))
    maintain(None, made.table, 0, timedelta(0), timedelta(days=1))  # type: ignore[arg-type]
    assert len(deletions(tmp_path)) == len(remembered) > 0
    for _ in range(3):
        add_all(driver(tmp_path, form, **UPSERT))
        check(tmp_path, form, topic)
    # These messages are of 2024, and nothing that comes later may be as old.
    topic.is_one_batch = True
    for name in NAMES:
        topic.lengths[name] += 60
    made = driver(tmp_path, form, **{**UPSERT, "late_hours": 24})
    add_all(made)
    check(tmp_path, form, topic)
    assert made.table.load().marker.deletions == ()
    for each in deletions(tmp_path):
        os.utime(each, (0, 0))
    maintain(None, made.table, 0, timedelta(0), timedelta(days=1))  # type: ignore[arg-type]
    assert deletions(tmp_path) == []


@each_format
def test_a_single_partition_has_no_deletions_to_remember(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Changes(random.Random(1), NAMES[:1])
    topic.used_by_drivers(monkeypatch, topic.write_batch)
    topic.lengths[NAMES[0]] = 60
    add_all(driver(tmp_path, form, **UPSERT))
    check(tmp_path, form, topic)
    assert deletions(tmp_path) == []


@each_format
def test_upkeep_leaves_the_rows(tmp_path: Path, form: str, topic: Changes) -> None:
    made = driver(tmp_path, form, **UPSERT)
    add_all(made)
    maintain(None, made.table, 1 << 20, timedelta(0), timedelta(days=1))  # type: ignore[arg-type]
    check(tmp_path, form, topic)
    add_all(driver(tmp_path, form, **UPSERT))
    check(tmp_path, form, topic)


def test_the_rows_of_a_round_are_counted(tmp_path: Path, topic: Changes) -> None:
    made = driver(tmp_path, "delta", **UPSERT)
    add_all(made)
    before = made.rows
    assert made.rows_of_round == before > 0
    add_all(made)
    assert made.rows_of_round == made.rows - before > 0


def test_another_mode_or_number_of_buckets_is_refused(tmp_path: Path, topic: Changes) -> None:
    add_all(driver(tmp_path, "delta", **UPSERT))
    with pytest.raises(TableError, match="was created with the mode upsert, not append"):
        add_all(driver(tmp_path, "delta"))
    with pytest.raises(TableError, match=r"with the partition_by bucket\(3, __key\), not bucket\(4, __key\)"):
        add_all(driver(tmp_path, "delta", mode="upsert", buckets=4))
    with pytest.raises(ValueError, match="partition_by requires mode = 'append'"):
        driver(tmp_path, "delta", mode="upsert", partition_by=("__key",))


# Planted bugs: the tests above must be able to fail.


@each_format
def test_without_remembered_deletions_earlier_messages_create_rows_again(
    tmp_path: Path, form: str, topic: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_upsert.BucketMerge, "_remembered", lambda self, changes: "")
    assert in_rounds(tmp_path, form, topic, monkeypatch) == [[], [b"earlier"], [b"later"]]


@each_format
def test_without_a_look_at_the_replaced_files_rows_are_repeated(
    tmp_path: Path, form: str, topic: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.lengths[NAMES[0]] = 40
    add_all(driver(tmp_path, form, **UPSERT))
    overtake(monkeypatch)
    monkeypatch.setattr(FileExchange, "fits", lambda self, state: True)
    topic.lengths[NAMES[0]] += 40
    made = driver(tmp_path, form, **UPSERT)
    if form == "iceberg":
        with pytest.raises(TableError, match="could not be committed"):
            add_all(made)
        return
    add_all(made)
    with pytest.raises(AssertionError):
        check(tmp_path, form, topic)


@each_format
def test_without_the_order_of_messages_earlier_ones_win(
    tmp_path: Path, form: str, topic: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_upsert._Rank, "is_after", lambda self, other: True)
    for name in NAMES:
        topic.lengths[name] += 60
    add_all(driver(tmp_path, form, **UPSERT))
    with pytest.raises(AssertionError):
        check(tmp_path, form, topic)
