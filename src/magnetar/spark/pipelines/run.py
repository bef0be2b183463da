"""Runs a pipeline from its configuration file to its report."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from magnetar.spark.access import without_secrets
from magnetar.spark.pipelines.configuration import Cluster, SparkSection, load_document
from magnetar.spark.pipelines.errors import ConfigurationRefused, PipelineError
from magnetar.spark.pipelines.names import PIPELINES
from magnetar.spark.pipelines.progress import ProgressBar
from magnetar.spark.pipelines.report import Report
from magnetar.spark.pipelines.session import spark_session
from magnetar.spark.pipelines.work import Pipeline, Work

__all__ = ["run_pipeline"]

FINISHED, FAILED, NOT_UNDERSTOOD, DIFFERENCES = 0, 1, 2, 3
_EXIT_CODES: Mapping[str, int] = {"finished": FINISHED, "failed": FAILED, "differences": DIFFERENCES}


@dataclass(frozen=True)
class ReportSection:
    """The folder of reports."""

    path: Path = Path("reports")


def run_pipeline(name: str, config: Path, *, dry_run: bool = False, quiet: bool = False) -> int:
    """Runs a pipeline; returns the exit code.

    0: success; 1: failed, standard error has the reason; 2: the configuration is not valid; 3:
    ``mirror-verify`` has found differences. A report is written in all cases except 2.
    """
    pipeline = cast(Pipeline, import_module(f"magnetar.spark.pipelines.{PIPELINES[name].module}"))
    section = name.replace("-", "_")
    try:
        document = load_document(config)
        cluster = document.section("cluster", Cluster)
        spark_settings = document.section("spark", SparkSection)
        reports = document.section("report", ReportSection)
        own = document.section(section, pipeline.CONFIG)
        document.check()
    except ConfigurationRefused as error:
        for problem in error.problems:
            sys.stderr.write(f"magnetar: {problem}\n")
        return NOT_UNDERSTOOD
    assert own is not None
    assert cluster is not None
    assert spark_settings is not None
    assert reports is not None
    given = {"cluster": asdict(cluster), "spark": asdict(spark_settings), section: asdict(own)}
    report = Report(name, without_secrets(given))
    progress = ProgressBar(name, quiet=quiet)
    try:
        progress.step("starting Spark")
        with spark_session(name, spark_settings) as spark:
            work = Work(own, cluster, spark, progress, report)
            if dry_run:
                for line in pipeline.dry_run(work):
                    sys.stdout.write(f"{line}\n")
                return FINISHED
            pipeline.run(work)
        if report.outcome == "failed":
            report.outcome = "finished"
    # The report includes any error.
    except Exception as error:  # noqa: BLE001
        report.error = str(error).partition("JVM stacktrace")[0].strip()
        if not isinstance(error, PipelineError):
            report.error = f"{type(error).__name__}: {report.error}"
        sys.stderr.write(f"magnetar: {name}: {report.error}\n")
    page = report.write(config.resolve().parent / reports.path)
    progress.finish(f"{report.outcome}; the report is {page}")
    return _EXIT_CODES[report.outcome]
