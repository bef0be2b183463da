"""``table-maintain``: merges small files of tables, removes old states, and deletes orphaned files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.spark.pipelines.configuration import PipelineError
from magnetar.spark.pipelines.report import Table
from magnetar.spark.pipelines.table import check, topics_of
from magnetar.spark.pipelines.table_commits import OpenTable, TableError
from magnetar.spark.pipelines.table_section import TablesSection, opened
from magnetar.spark.pipelines.table_upkeep import TableUpkeep
from magnetar.spark.pipelines.work import Work

__all__ = ["CONFIG", "NEEDS_SPARK", "check", "dry_run", "run"]


@dataclass(frozen=True)
class TableMaintainConfig(TablesSection):
    """The section of this pipeline; the section ``table`` has all of its keys, too."""


CONFIG = TableMaintainConfig
NEEDS_SPARK = True


def dry_run(work: Work) -> Sequence[str]:
    config: TableMaintainConfig = work.config
    if not config.may_have_tables:
        return ["no topic has a table"]
    tables = [table for topic in topics_of(work) for table in _tables_of(config, topic)]
    lines = [
        f"would maintain {table}, which has {len(state.files):,} files"
        for table in tables
        if (state := table.find()) is not None
    ]
    return lines or ["no topic has a table"]


def run(work: Work) -> None:
    config: TableMaintainConfig = work.config
    lines = []
    whole = TableUpkeep()
    for topic in topics_of(work):
        for table in _tables_of(config, topic):
            work.progress.step(f"maintaining {table}")
            try:
                done = config.keep_up(work.spark, table)
            except TableError as error:
                raise PipelineError(f"{topic}: {error}") from error
            whole += done
            lines.append((topic, str(table), *_figures(done)))
    names = (
        "small files merged",
        "manifests merged",
        "states expired",
        "orphans removed",
        "metadata files removed",
    )
    figures = (len(lines), *_figures(whole))
    work.report.figures.update(zip(("tables", *names), figures, strict=True))
    work.report.tables.append(Table("Tables", ("topic", "table", *names), lines))


def _figures(done: TableUpkeep) -> tuple[int, ...]:
    return done.merged, done.manifests, done.expired, done.removed, done.cleaned


def _tables_of(config: TableMaintainConfig, topic: str) -> list[OpenTable]:
    """Returns the table of a topic and its quarantine table, if they exist.

    :raises PipelineError: a table cannot be used
    """
    try:
        both = [opened(config, topic, is_quarantine=is_quarantine) for is_quarantine in (False, True)]
        return [each for each in both if each.find() is not None]
    except TableError as error:
        raise PipelineError(f"{topic}: {error}") from error
