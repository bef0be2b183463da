"""The pipeline ``table``: tables are read by other programs, and compared with what was published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_world import Cluster
from table_readers import delta_rows, duck, iceberg_rows

COUNT = 4000
FORMATS = ("delta", "iceberg")

Run = Callable[..., tuple[int, dict[str, Any]]]


def reading(report: dict[str, Any], topic: str, program: str) -> str:
    """The line of the report that reads a table."""
    [found] = [each for each in report["tables"] if each["title"] == "Reading"]
    return next(row[2] for row in found["rows"] if row[:2] == [topic, program])


def libraries(path: Path, topic: str, form: str) -> pa.Table:
    """The rows of a table as the library of its format reads them."""
    name = topic.removeprefix("persistent://").split("/")
    return delta_rows(path.joinpath(*name)) if form == "delta" else iceberg_rows(path, *name)


def numbers(found: pa.Table) -> list[int]:
    """The ids of generated messages."""
    return sorted(json.loads(each)["id"] for each in found["value"].to_pylist())


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_has_each_message_once(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, form: str
) -> None:
    cluster.client.subscribe(topic, "keep").close()
    assert run("generate", topic=topic, messages=COUNT)[0] == 0
    settings = {"topics": [topic], "path": str(tmp_path / "tables"), "format": form}
    assert run("table", dry_run=True, **settings)[0] == 0
    code, report = run("table", **settings, max_rows_per_batch=1500)
    assert code == 0, report
    assert report["figures"]["rows added"] == COUNT
    assert report["figures"]["batches"] == 3
    assert report["figures"]["lag in entries"] == 0
    for found in (libraries(tmp_path / "tables", topic, form), duck(reading(report, topic, "DuckDB"))):
        assert numbers(found) == list(range(COUNT))
    assert run("generate", topic=topic, messages=10)[0] == 0
    code, report = run("table", **settings)
    assert (code, report["figures"]["rows added"]) == (0, 10)
    code, report = run("table", **settings)
    assert (code, report["figures"]["rows added"], report["figures"]["batches"]) == (0, 0, 0)
    assert len(duck(reading(report, topic, "DuckDB"))) == COUNT + 10
