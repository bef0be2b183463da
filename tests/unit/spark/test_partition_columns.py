"""Fields of messages that are called like the partitions of an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.spark.codec.columns import METADATA_NAMES
from magnetar.spark.pipelines.archive import _check_columns
from magnetar.spark.pipelines.configuration import PipelineError
from magnetar.spark.pipelines.replay import _columns_of_folders


def test_an_archive_does_not_write_its_partitions_over_fields() -> None:
    _check_columns("t", ["value", *METADATA_NAMES], ["date", "hour"])
    _check_columns("t", ["hour", *METADATA_NAMES], ["date"])
    for name in ("date", "Hour"):
        with pytest.raises(PipelineError, match=f"t has a field '{name}'"):
            _check_columns("t", ["value", name, *METADATA_NAMES], ["date", "hour"])


def test_a_replay_leaves_out_names_of_folders_alone(tmp_path: Path) -> None:
    assert _columns_of_folders(tmp_path) == []
    (tmp_path / "data" / "date=2024-05-01").mkdir(parents=True)
    assert _columns_of_folders(tmp_path) == ["date"]
    (tmp_path / "data" / "date=2024-05-01" / "hour=07").mkdir()
    assert _columns_of_folders(tmp_path) == ["date", "hour"]
