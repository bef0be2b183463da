"""A Spark session with ``format("pulsar")``, for any master."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from magnetar.spark import register
from magnetar.spark.pipelines.configuration import SparkSection
from magnetar.spark.pipelines.errors import PipelineError

__all__ = ["spark_session"]

_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}


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
