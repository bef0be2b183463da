"""Malformed messages of a part: kept by its task, or by two attempts of it at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from magnetar.spark.codec.rows import Malformed
from magnetar.spark.ledgers import Range
from magnetar.spark.options import QueryOptions
from magnetar.spark.reading import quarantine as module
from magnetar.spark.reading.planning import TaskPart
from magnetar.spark.reading.quarantine import Quarantine

PART = TaskPart("persistent://public/default/t", (Range(1, 0, 0, 5),))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_HELD_BYTES", 2)
    return tmp_path / "kept"


def options(folder: Path) -> QueryOptions:
    given = {"service.url": "pulsar://h:1", "admin.url": "http://h:2", "quarantine.path": str(folder)}
    return QueryOptions.parse({**given, "topic": "t"})


def damaged(entry: int) -> Malformed:
    return Malformed(PART.topic, 1, entry, -1, "it is damaged", b"x")


def attempt(folder: Path, count: int) -> None:
    with Quarantine(options(folder), PART) as quarantine:
        for entry in range(count):
            quarantine.add(damaged(entry))


def rows(count: int) -> list[dict[str, Any]]:
    same = {"topic": PART.topic, "ledger_id": 1, "batch_index": -1, "reason": "it is damaged", "data": b"x"}
    return [{**same, "entry_id": entry} for entry in range(count)]


def test_what_is_malformed_is_not_all_held_in_memory(folder: Path) -> None:
    with Quarantine(options(folder), PART) as quarantine:
        for entry in range(5):
            quarantine.add(damaged(entry))
            assert len(quarantine._found) < 2
    (file,) = folder.iterdir()
    assert pq.ParquetFile(file).num_row_groups == 3
    assert pq.read_table(file).to_pylist() == rows(5)


def test_two_attempts_at_once_leave_one_file(folder: Path) -> None:
    with Quarantine(options(folder), PART) as quarantine:
        for entry in range(3):
            quarantine.add(damaged(entry))
        attempt(folder, 3)
    (file,) = folder.iterdir()
    assert pq.read_table(file).to_pylist() == rows(3)


def test_a_part_that_is_not_read_to_its_end_leaves_nothing(folder: Path) -> None:
    quarantine = Quarantine(options(folder), PART)
    for entry in range(3):
        quarantine.add(damaged(entry))
    assert len(list(folder.iterdir())) == 1
    quarantine.__exit__(OSError, OSError("gone"), None)
    assert list(folder.iterdir()) == []


def test_nothing_malformed_makes_nothing(folder: Path) -> None:
    attempt(folder, 0)
    assert not folder.exists()
