"""Runs a pipeline from its configuration file to its report."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from pyspark.sql import SparkSession

from magnetar.exit_codes import DIFFERENT, FAILED, INTERRUPTED, MISUSED, SUCCEEDED
from magnetar.spark.access import without_secrets
from magnetar.spark.pipelines.configuration import (
    Cluster,
    ConfigurationRefused,
    PipelineError,
    SparkSection,
    load_document,
    template,
)
from magnetar.spark.pipelines.names import PIPELINES
from magnetar.spark.pipelines.report import Report
from magnetar.spark.pipelines.session import CONNECT, Interrupts, spark_session
from magnetar.spark.pipelines.work import Pipeline, ProgressBar, Work, error_line

__all__ = [
    "init_pipeline",
    "run_pipeline",
]
log = logging.getLogger(__name__)
_EXIT_CODES: Mapping[str, int] = {"finished": SUCCEEDED, "failed": FAILED, "differences": DIFFERENT}


@dataclass(frozen=True)
class ReportSection:
    """The section for reports."""

    path: Path = Path("reports")
    """The folder for reports, relative to this file."""


def run_pipeline(name: str, config: Path, *, dry_run: bool = False, quiet: bool = False) -> int:
    """Runs a pipeline; returns the exit code.

    0: success; 1: failure, with the reason on standard error; 2: the configuration is not valid; 3:
    ``mirror-verify`` has found differences; 130: interrupted. A report is written for 0, 1 and 3, except in a
    dry run.
    """
    pipeline = _pipeline(name)
    section = _section(name)
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
        return MISUSED
    assert own is not None
    assert cluster is not None
    assert spark_settings is not None
    assert reports is not None
    given = {"cluster": asdict(cluster), "spark": asdict(spark_settings), section: asdict(own)}
    report = Report(name, without_secrets(given))
    progress = ProgressBar(name, quiet=quiet)
    interrupts = Interrupts()
    try:
        with interrupts, ExitStack() as stack:

            @cache
            def spark() -> SparkSession:
                session = spark_session(name, spark_settings, interrupts)
                return progress.during("starting Spark", lambda: stack.enter_context(session))

            work = Work(own, cluster, spark, progress, report)
            if not spark_settings.master.startswith(CONNECT):
                # A server of Spark Connect may reach a cluster that this process does not.
                pipeline.check(work)
            if dry_run:
                for line in pipeline.dry_run(work):
                    sys.stdout.write(f"{line}\n")
                return SUCCEEDED
            if pipeline.NEEDS_SPARK:
                # Columns can only be named while there is a session.
                spark()
            pipeline.run(work)
        if report.outcome == "failed":
            report.outcome = "finished"
    # The report includes any error.
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001
        if interrupts.came or isinstance(error, KeyboardInterrupt):
            progress.finish("interrupted; the next run continues")
            return INTERRUPTED
        if isinstance(error, PipelineError):
            report.error = str(error)
        else:
            report.error = f"{type(error).__name__}: {error_line(error)}"
            report.details = "".join(traceback.format_exception(error))
        sys.stderr.write(f"magnetar: {name}: {report.error}\n")
        if dry_run:
            return FAILED
    page = report.write(config.resolve().parent / reports.path)
    progress.finish(f"{report.outcome}; the report is {page}")
    return _EXIT_CODES[report.outcome]


def _pipeline(name: str) -> Pipeline:
    module = import_module(f"magnetar.spark.pipelines.{PIPELINES[name].module}")
    if not isinstance(module, Pipeline):
        raise TypeError(
            f"{module.__name__} is not a pipeline: it lacks members of the protocol {Pipeline.__name__}"
        )
    return module


def _section(name: str) -> str:
    return name.replace("-", "_")


def init_pipeline(name: str) -> str:
    """Returns a complete configuration file for a pipeline, with comments."""
    sections = {
        _section(name): _pipeline(name).CONFIG,
        "cluster": Cluster,
        "spark": SparkSection,
        "report": ReportSection,
    }
    return template(name, PIPELINES[name].summary, sections)
