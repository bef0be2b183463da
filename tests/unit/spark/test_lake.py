"""The folder of an archive, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from magnetar.spark.pipelines.configuration import PipelineError
from magnetar.spark.pipelines.lake import Lake


def test_a_folder_whose_checkpoint_is_gone_takes_no_batches(tmp_path: Path) -> None:
    lake, checkpoint = Lake(tmp_path), tmp_path / "_checkpoint"
    lake.check_goes_on(checkpoint)
    file = {
        "staged": "_staging/x",
        "path": "data/date=2024-05-01/batch-00000000-0.parquet",
        "rows": 1,
        "bytes": 9,
    }
    (tmp_path / "_manifest").mkdir()
    manifest = {"name": "batch-00000000", "batch": 0, "files": [file], "replaces": []}
    (tmp_path / "_manifest" / "batch-00000000.json").write_text(json.dumps(manifest))
    with pytest.raises(PipelineError, match=r"_checkpoint, the checkpoint of .*, is missing"):
        lake.check_goes_on(checkpoint)
    checkpoint.mkdir()
    lake.check_goes_on(checkpoint)
