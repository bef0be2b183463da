"""Starts and ends the Spark session of a pipeline, also after an interrupt at the terminal."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseServer
from types import FrameType

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from magnetar.build_info import install_extra
from magnetar.spark import register
from magnetar.spark.pipelines.configuration import PipelineError, SparkSection

__all__ = ["CONNECT", "Interrupts", "spark_session"]
CONNECT = "sc://"
"""Prefix of the URL of a Spark Connect server."""
_AGAIN_SECONDS = 0.2
_JVM_SECONDS = 10.0
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
log = logging.getLogger(__name__)


class Interrupts:
    """Makes SIGINT raise KeyboardInterrupt, without log lines of the interrupted libraries. The exception is
    raised repeatedly until :meth:`over` is called, because Python drops exceptions of signal handlers in some
    places, such as finalizers and releases of locks.
    """

    def __init__(self) -> None:
        self.came = False
        """Whether an interrupt has come. An interrupt at the terminal also ends Spark's workers, so it is
        then the cause of Spark's errors.
        """
        self._held = False
        self._before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGALRM)}
        self._hook = sys.unraisablehook
        self._mine = threading.current_thread() is threading.main_thread()

    def install(self) -> None:
        """Installs the signal handlers. Must be called after Spark has started, because Spark replaces the
        handler of SIGINT."""
        if self._mine:
            for each in self._before:
                signal.signal(each, self._interrupted)

    def over(self) -> None:
        """Stops raising KeyboardInterrupt, so that cleanup can finish."""
        if self._mine:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delays an interrupt to the end of the ``with`` block, for work that must not be abandoned
        halfway.
        """
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.came:
            self._interrupted(signal.SIGINT, None)

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
        if self._held:
            return
        logging.disable(logging.CRITICAL)
        sys.unraisablehook = self._unraisable
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        raise KeyboardInterrupt

    def _unraisable(self, dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            self._hook(dropped)

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(self, *_error: object) -> None:
        self.over()
        if self._mine:
            for each, handler in self._before.items():
                signal.signal(each, handler)
        sys.unraisablehook = self._hook
        logging.disable(logging.NOTSET)


@contextmanager
def spark_session(name: str, section: SparkSection, interrupts: Interrupts) -> Iterator[SparkSession]:
    """Starts a session, or uses this process's existing session and leaves it open.

    Times are UTC. Executors run this interpreter, unless ``PYSPARK_PYTHON`` names another interpreter. An
    interrupt ends the session together with its JVM.

    :raises PipelineError: Spark does not start; the error text says why
    """
    # This logger reports each error of a query with its Java stack trace; the pipeline reports the error too.
    level = logging.CRITICAL if section.log_level == "OFF" else logging.INFO
    logging.getLogger("SQLQueryContextLogger").setLevel(level)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if SparkSession.getActiveSession() is not None:
        yield _configured(_builder(name, section.conf).getOrCreate())
    elif section.master.startswith(CONNECT):
        with _refusing(section):
            spark = _builder(name, section.conf).remote(section.master).getOrCreate()
        try:
            yield _configured(spark)
        finally:
            _stop(spark)
    else:
        _check_java()
        with _jvm(name, section, interrupts) as spark:
            yield _configured(spark)


@contextmanager
def _refusing(section: SparkSection) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = f"Spark does not start with master {section.master}: {error}"
        if "PACKAGE_NOT_INSTALLED" in reason:
            reason += f"; {install_extra('spark-connect')}"
        raise PipelineError(reason) from error


def _builder(name: str, settings: Mapping[str, str]) -> SparkSession.Builder:
    builder = SparkSession.builder.appName(f"magnetar-{name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _configured(spark: SparkSession) -> SparkSession:
    register(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


@contextmanager
def _jvm(name: str, section: SparkSection, interrupts: Interrupts) -> Iterator[SparkSession]:
    """Yields a session whose driver is a JVM that this process starts."""
    defaults = _LOCAL_DEFAULTS if section.master.startswith("local") else {}
    settings = {**defaults, **section.conf, "spark.master": section.master}
    options = settings.get(_JAVA_OPTIONS, "")
    if _LOG_SETTING not in options:
        settings[_JAVA_OPTIONS] = (
            f"{_LOG_SETTING}{_LOG_FILE} -Dmagnetar.spark.log={section.log_level} {options}"
        )
    conf = SparkConf().setAppName(f"magnetar-{name}").setAll(list(settings.items()))
    with _refusing(section), interrupts.held():
        # A JVM that is abandoned while it starts never ends, and holds the terminal's standard error.
        SparkContext._ensure_initialized(conf=conf)
    try:
        with _refusing(section):
            spark = _builder(name, settings).getOrCreate()
        interrupts.install()
        try:
            yield spark
        finally:
            interrupts.over()
            if not interrupts.came:
                _stop(spark)
    finally:
        interrupts.over()
        if interrupts.came:
            _end_jvm()


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception:
        # Its process was killed, for example by the kernel; py4j, whose error this is, has no types.
        log.debug("Spark's JVM has ended already", exc_info=True)


def _end_jvm() -> None:
    """Kills the JVM after an interrupt, because ending the session properly could wait for a worker that no
    longer exists.
    """
    gateway = SparkContext._gateway
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if jvm is None or jvm.stdin is None:
        return
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if isinstance(server, BaseServer):
        # Its thread would print the stack trace of the connection that ends with the JVM.
        vars(server)["handle_error"] = _ignored
    # The driver stops its session and ends when its standard input does.
    jvm.stdin.close()
    try:
        jvm.wait(_JVM_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _ignored(_request: object, _client: object) -> None:
    """Replaces ``socketserver.BaseServer.handle_error``, to suppress its output."""


def _check_java() -> None:
    """Checks that Java is installed.

    :raises PipelineError: Java was not found
    """
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise PipelineError(
            f"Spark requires Java 17, but JAVA_HOME={home} has no bin/java; correct or unset JAVA_HOME"
        )
    if not home and shutil.which("java") is None:
        raise PipelineError(
            "Spark requires Java 17, but no java was found: install Java 17, or set JAVA_HOME to "
            "its directory"
        )
