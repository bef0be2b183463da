"""Runs a pipeline from its configuration file to its report."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import cast

from pyspark.sql import SparkSession

from magnetar.build_info import install_extra
from magnetar.exit_codes import DIFFERENT, FAILED, INTERRUPTED, MISUSED, SUCCEEDED
from magnetar.spark import register
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
from magnetar.spark.pipelines.work import Pipeline, ProgressBar, Work, error_line

__all__ = [
    "init_pipeline",
    "run_pipeline",
    "spark_session",
]
_AGAIN_SECONDS = 0.2
log = logging.getLogger(__name__)
_EXIT_CODES: Mapping[str, int] = {"finished": SUCCEEDED, "failed": FAILED, "differences": DIFFERENT}
_CONNECT = "sc://"
"""The start of a master that is a server of Spark Connect."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_SETTING = "-Dlog4j2.configurationFile="
_LOG_FILE = Path(__file__).with_name("log4j2.properties").resolve().as_uri()
_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}


@dataclass(frozen=True)
class ReportSection:
    """Where reports are written."""

    path: Path = Path("reports")
    """A folder, relative to this file."""


def run_pipeline(name: str, config: Path, *, dry_run: bool = False, quiet: bool = False) -> int:
    """Runs a pipeline; returns the exit code.

    0: success; 1: failed, standard error has the reason; 2: the configuration is not valid; 3:
    ``mirror-verify`` has found differences; 130: interrupted. A report is written after 0, 1 and 3, unless it
    was a dry run.
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
    interrupts = _Interrupts()
    try:
        with interrupts, ExitStack() as stack:

            @cache
            def spark() -> SparkSession:
                session = spark_session(name, spark_settings)
                started = progress.during("starting Spark", lambda: stack.enter_context(session))
                stack.callback(interrupts.over)
                interrupts.install()
                return started

            work = Work(own, cluster, spark, progress, report)
            if not spark_settings.master.startswith(_CONNECT):
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


class _Interrupts:
    """Lets SIGINT raise KeyboardInterrupt, without the log lines of libraries whose calls it interrupts.

    It is raised again until :meth:`over`, because Python drops an exception that a handler raises in some
    places, such as a finalizer or the release of a lock.
    """

    def __init__(self) -> None:
        self.came = False
        """Whether there was one: errors of Spark, whose JVM it ends as well, are its consequence."""
        self._before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGALRM)}
        self._mine = threading.current_thread() is threading.main_thread()

    def install(self) -> None:
        """Sets the handlers; Spark replaces that of SIGINT when it starts."""
        if self._mine:
            for each in self._before:
                signal.signal(each, self._interrupted)

    def over(self) -> None:
        """Stops raising, so that what was begun can be ended."""
        if self._mine:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
        logging.disable(logging.CRITICAL)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        raise KeyboardInterrupt

    def __enter__(self) -> _Interrupts:
        self.install()
        return self

    def __exit__(self, *_error: object) -> None:
        self.over()
        if self._mine:
            for each, handler in self._before.items():
                signal.signal(each, handler)
        logging.disable(logging.NOTSET)


def _pipeline(name: str) -> Pipeline:
    return cast(Pipeline, import_module(f"magnetar.spark.pipelines.{PIPELINES[name].module}"))


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


@contextmanager
def spark_session(name: str, section: SparkSection) -> Iterator[SparkSession]:
    """Starts a session, or uses the existing one of this process and leaves it open.

    Times are UTC. Executors run this interpreter, unless ``PYSPARK_PYTHON`` names another.

    :raises PipelineError: Spark does not start; the text says why
    """
    # It reports each error of a query, with Java's stack trace; the pipeline reports the error itself.
    level = logging.CRITICAL if section.log_level == "OFF" else logging.INFO
    logging.getLogger("SQLQueryContextLogger").setLevel(level)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    mine = SparkSession.getActiveSession() is None
    if mine and not section.master.startswith(_CONNECT):
        _check_java()
    try:
        spark = _made(name, section)
    except Exception as error:
        reason = f"Spark does not start with master {section.master}: {error}"
        if "PACKAGE_NOT_INSTALLED" in reason:
            reason += f"; {install_extra('spark-connect')}"
        raise PipelineError(reason) from error
    try:
        register(spark)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        yield spark
    finally:
        if mine:
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception:
        # An interrupt at the terminal has ended the JVM as well; py4j, whose error this is, has no types.
        log.debug("Spark's JVM has ended already", exc_info=True)


def _check_java() -> None:
    """:raises PipelineError: no Java was found"""
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise PipelineError(
            f"Spark needs Java 17, but JAVA_HOME={home} has no bin/java; correct or unset JAVA_HOME"
        )
    if not home and shutil.which("java") is None:
        raise PipelineError(
            "Spark needs Java 17, but no java was found: install Java 17, or set JAVA_HOME to its directory"
        )


def _made(name: str, section: SparkSection) -> SparkSession:
    builder = SparkSession.builder.appName(f"magnetar-{name}")
    if section.master.startswith(_CONNECT):
        builder = builder.remote(section.master)
        settings = dict(section.conf)
    else:
        builder = builder.master(section.master)
        defaults = _LOCAL_DEFAULTS if section.master.startswith("local") else {}
        settings = {**defaults, **section.conf}
        options = settings.get(_JAVA_OPTIONS, "")
        if _LOG_SETTING not in options:
            settings[_JAVA_OPTIONS] = (
                f"{_LOG_SETTING}{_LOG_FILE} -Dmagnetar.spark.log={section.log_level} {options}"
            )
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
