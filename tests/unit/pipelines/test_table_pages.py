"""The configurations in docs/lake.md are valid, and have every key."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from magnetar.spark.pipelines.configuration import load_document
from magnetar.spark.pipelines.names import PIPELINES

PAGE = Path(__file__).parents[3] / "docs" / "lake.md"
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS, ids=lambda text: text.partition("]")[0].removeprefix("["))
def test_the_configuration_is_valid(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(text, "utf-8")
    [section] = tomllib.loads(text)
    kind = import_module(f"magnetar.spark.pipelines.{PIPELINES[section.replace('_', '-')].module}").CONFIG
    document = load_document(path)
    assert document.section(section, kind) is not None
    document.check()
    for each in fields(kind):
        assert re.search(rf"\b{each.name}\b", text) or each.name == "options", each.name


def test_both_pipelines_are_there() -> None:
    assert len(BLOCKS) == 2
