"""``magnetar pipeline init``: a complete configuration file for each pipeline."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path

import pytest

from magnetar.cli.magnetar import main
from magnetar.spark.pipelines.configuration import Cluster, SparkSection, load_document
from magnetar.spark.pipelines.names import PIPELINES
from magnetar.spark.pipelines.run import ReportSection

COMMON = {"cluster": Cluster, "spark": SparkSection, "report": ReportSection}


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["pipeline", "init", name]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", PIPELINES)
def test_the_file_is_valid_as_it_is(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(printed(name, capsys), "utf-8")
    document = load_document(path)
    section = name.replace("-", "_")
    kind = import_module(f"magnetar.spark.pipelines.{PIPELINES[name].module}").CONFIG
    assert document.section(section, kind) is not None
    for common, its in COMMON.items():
        assert document.section(common, its) == its()
    document.check()


@pytest.mark.parametrize("name", PIPELINES)
def test_keys_that_are_commented_out_are_the_defaults(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = printed(name, capsys).splitlines()
    whole = "\n".join(
        line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in lines
    )
    section = name.replace("-", "_")
    kind = import_module(f"magnetar.spark.pipelines.{PIPELINES[name].module}").CONFIG
    given = tomllib.loads(whole)
    assert set(given) == {section, *COMMON}
    for each, its in {section: kind, **COMMON}.items():
        assert set(given[each]) == {declared.name for declared in fields(its)}
    for declared in fields(kind):
        if declared.default is not MISSING:
            value = given[section][declared.name]
            wanted = declared.default
            wanted = (
                str(wanted)
                if isinstance(wanted, Path)
                else list(wanted)
                if isinstance(wanted, tuple)
                else wanted
            )
            assert value == ("" if wanted is None else wanted)


def test_a_choice_names_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert "# One of date, hour. hour creates partitions by date and hour." in printed("archive", capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init"], "no pipeline given; use one of generate, archive"),
        (["init", "archiv"], "unknown pipeline 'archiv'; did you mean archive"),
        (["archive"], "`magnetar pipeline init archive > archive.toml` writes one"),
        (["archive", "dlq-report"], "unexpected argument 'dlq-report'"),
    ],
)
def test_wrong_usage_says_what_to_do(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", *arguments]) == 2
    assert words in capsys.readouterr().err
