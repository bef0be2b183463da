"""Malformed messages of a part, kept by two attempts of its task at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from magnetar.spark.codec.rows import Malformed
from magnetar.spark.ledgers import Range
from magnetar.spark.options import Options
from magnetar.spark.reading.planning import Part
from magnetar.spark.reading.quarantine import Quarantine

PART = Part("persistent://public/default/t", (Range(1, 0, 0, 5),))


def attempt(options: Options) -> None:
    with Quarantine(options, PART) as quarantine:
        quarantine.add(Malformed(PART.topic, 1, 2, -1, "it is damaged", b"x"))


def test_two_attempts_at_once_leave_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept"
    given = {"service.url": "pulsar://h:1", "admin.url": "http://h:2", "quarantine.path": str(folder)}
    options = Options.parse({**given, "topic": "t"})
    write = pq.write_table

    def slow(*arguments: Any) -> None:
        monkeypatch.undo()
        attempt(options)
        write(*arguments)

    monkeypatch.setattr(pq, "write_table", slow)
    attempt(options)
    (file,) = folder.iterdir()
    assert pq.read_table(file).to_pylist() == [
        {"topic": PART.topic, "ledger_id": 1, "entry_id": 2, "batch_index": -1}
        | {"reason": "it is damaged", "data": b"x"}
    ]
