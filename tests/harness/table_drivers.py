"""Drivers of the pipeline ``table`` with real tables; the topic is a list, and tasks run in this process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from table_readers import delta_rows, iceberg_rows

from magnetar.spark.ledgers import Range
from magnetar.spark.pipelines import table as pipeline
from magnetar.spark.pipelines import table_upsert
from magnetar.spark.pipelines.table import TopicTable
from magnetar.spark.pipelines.table_batch import BatchPlan
from magnetar.spark.pipelines.table_commits import LiveFile, TableMarker, TableState
from magnetar.spark.pipelines.table_delta import DeltaState
from magnetar.spark.pipelines.table_files import WrittenFile
from magnetar.spark.pipelines.table_iceberg import IcebergState
from magnetar.spark.pipelines.table_section import TableConfig
from magnetar.spark.positions import Offset, Place, TopicOffset
from magnetar.spark.reading.planning import TaskPart

TOPIC = "persistent://public/default/orders"
STATES = {"delta": DeltaState, "iceberg": IcebergState}
each_format = pytest.mark.parametrize("form", STATES)


class Killed(BaseException):
    """The driver was killed."""


class Topic:
    """Partitions with messages whose entries are numbered from 0; and the reader of a driver."""

    def __init__(self, chosen: random.Random, *partitions: str) -> None:
        self.lengths = dict.fromkeys(partitions, 0)
        self.chosen = chosen
        self.is_one_batch = False
        """Whether a batch takes all that there is."""
        self.acknowledged: Callable[[Offset], None] = lambda _end: None
        """Called with the positions to which a driver moves the subscription."""

    def used_by_drivers(
        self, monkeypatch: pytest.MonkeyPatch, write: Callable[[object, BatchPlan], list[WrittenFile]]
    ) -> None:
        """Makes drivers read this topic.

        :param write: writes the files of a batch
        """
        monkeypatch.setattr(pipeline, "StreamReader", lambda options, schema: self)
        monkeypatch.setattr(pipeline, "write_batch", write)
        monkeypatch.setattr(pipeline, "tasks_of", lambda spark: 1)
        monkeypatch.setattr(table_upsert, "run_tasks", _run_tasks)

    def prepareForTriggerAvailableNow(self) -> None:
        for each in self.lengths:
            self.lengths[each] += self.chosen.randint(1, 4)

    def initialOffset(self) -> dict[str, object]:
        return Offset({each: TopicOffset(Place(1, 0)) for each in self.lengths}, "kept").to_json()

    def getDefaultReadLimit(self) -> None:
        """The stream has no default limit; the driver passes none."""

    def latestOffset(self, start: dict[str, object], limit: object) -> dict[str, object]:
        before = {name: each.next.entry for name, each in Offset.from_json(start).topics.items()}
        if before == self.lengths:
            return start
        # How much a batch takes differs from time to time.
        after = {name: self.chosen.randint(before[name], end) for name, end in self.lengths.items()}
        if after == before or self.is_one_batch:
            after = self.lengths
        topics = {name: TopicOffset(Place(1, end), (), Place(1, before[name])) for name, end in after.items()}
        return Offset(topics, "kept").to_json()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[TaskPart]:
        parts = []
        for name, each in Offset.from_json(end).topics.items():
            assert each.begin is not None
            if each.begin < each.next:
                parts.append(TaskPart(name, (Range(1, each.begin.entry, 0, each.next.entry),)))
        return parts

    def commit(self, end: dict[str, object]) -> None:
        self.acknowledged(Offset.from_json(end))

    def reportLatestOffset(self) -> None:
        """There is no lag."""

    def stop(self) -> None:
        """There is no connection."""


def _run_tasks(_spark: object, count: int, task: Callable[[int], list[WrittenFile]]) -> list[WrittenFile]:
    return [file for number in range(count) for file in task(number)]


def entries_of(plan: BatchPlan) -> Iterator[tuple[str, int]]:
    """Yields the messages of a batch: partition and entry."""
    for part in (part for share in plan.shares for part in share):
        for each in part.ranges:
            for number in range(each.first, each.end):
                yield part.topic, number


def driver(path: Path, form: Any, **settings: Any) -> TopicTable:
    config = TableConfig((TOPIC,), str(path), format=form, options={"value.format": "bytes"}, **settings)
    addresses = {"service.url": "pulsar://127.0.0.1:1", "admin.url": "http://127.0.0.1:1"}
    cluster = SimpleNamespace(options=lambda: addresses)
    work: Any = SimpleNamespace(
        config=config, cluster=cluster, progress=SimpleNamespace(update=lambda rows: None)
    )
    return TopicTable(work, TOPIC)


def add_all(made: TopicTable) -> None:
    made.add_all(None)  # type: ignore[arg-type]


def table_rows(path: Path, form: str, name: str = "orders") -> pa.Table:
    place = ("public", "default", name)
    return delta_rows(path.joinpath(*place)) if form == "delta" else iceberg_rows(path, *place)


def interrupted(
    form: str, monkeypatch: pytest.MonkeyPatch, faults: Iterator[str], other: TopicTable | None = None
) -> None:
    """Kills the driver before or after commits, loses answers, or lets another one run before a commit."""
    original = STATES[form].exchange

    def exchange(
        self: TableState, old: Sequence[LiveFile], new: Sequence[WrittenFile], marker: TableMarker
    ) -> TableMarker:
        fault = next(faults, "")
        if fault == "before":
            raise Killed
        if fault == "other" and other is not None:
            add_all(other)
        found = original(self, old, new, marker)  # type: ignore[arg-type]
        if fault == "after":
            raise Killed
        if fault == "answer":
            raise ConnectionResetError("the answer was lost")
        return found

    monkeypatch.setattr(STATES[form], "exchange", exchange)


def lives(path: Path, form: str, chosen: random.Random, count: int, **settings: Any) -> None:
    """Runs drivers again and again, with all faults; the topic grows meanwhile."""
    for _ in range(count):
        with pytest.MonkeyPatch.context() as patched:
            faults = (chosen.choice(("", "before", "after", "answer", "other")) for _ in range(6))
            interrupted(form, patched, faults, driver(path, form, **settings))
            try:
                add_all(driver(path, form, **settings))
            except Killed:
                continue
    add_all(driver(path, form, **settings))
