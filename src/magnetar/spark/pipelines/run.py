"""Runs a pipeline from its configuration file to its report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from magnetar.exit_codes import DIFFERENT, FAILED, MISUSED, SUCCEEDED
from magnetar.spark import register
from magnetar.spark.access import without_secrets
from magnetar.spark.pipelines.configuration import (
    Cluster,
    ConfigurationRefused,
    PipelineError,
    SparkSection,
    load_document,
)
from magnetar.spark.pipelines.names import PIPELINES
from magnetar.spark.pipelines.report import Report
from magnetar.spark.pipelines.work import Pipeline, ProgressBar, Work

__all__ = [
    "run_pipeline",
    "spark_session",
]
_EXIT_CODES: Mapping[str, int] = {"finished": SUCCEEDED, "failed": FAILED, "differences": DIFFERENT}
_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}


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
        return MISUSED
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
                return SUCCEEDED
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


@contextmanager
def spark_session(name: str, section: SparkSection) -> Iterator[SparkSession]:
    """Starts a session, or uses the existing one of this process and leaves it open.

    Times are UTC. Executors run this interpreter, unless ``PYSPARK_PYTHON`` names another.

    :raises PipelineError: Spark does not start; the text says why
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    mine = SparkSession.getActiveSession() is None
    try:
        spark = _made(name, section)
    except Exception as error:
        reason = f"Spark does not start with master {section.master}: {error}"
        if "PACKAGE_NOT_INSTALLED" in reason:
            reason += "; Spark Connect requires pip install 'magnetar[spark-connect]'"
        raise PipelineError(reason) from error
    try:
        register(spark)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        yield spark
    finally:
        if mine:
            spark.stop()


def _made(name: str, section: SparkSection) -> SparkSession:
    builder = SparkSession.builder.appName(f"magnetar-{name}")
    if section.master.startswith("sc://"):
        builder = builder.remote(section.master)
        settings = dict(section.conf)
    else:
        builder = builder.master(section.master)
        defaults = _LOCAL_DEFAULTS if section.master.startswith("local") else {}
        settings = {**defaults, **section.conf}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
