"""A data source for PySpark that represents topics as DataFrames (the extra ``spark``).

``register(spark)``, then ``spark.read.format("pulsar")``, ``readStream``, ``write`` and ``writeStream``.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Registers ``format("pulsar")`` in a session, and enables filter push-down.

    Spark runs the source in separate Python processes: ``python3``, unless ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` names another interpreter. With a local master, this function selects the present
    interpreter, in which the source is installed.

    Spark refuses to read from a source with filter push-down while
    ``spark.sql.python.filterPushdown.enabled`` is false, which is the default.

    :raises ImportError: PySpark is missing, or older than 4.2
    """
    from magnetar.spark.source import PulsarDataSource

    _use_this_python(spark)
    spark.dataSource.register(PulsarDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def _use_this_python(spark: SparkSession) -> None:
    """Selects this interpreter, unless an interpreter is configured or workers run on other machines."""
    context = getattr(spark, "_sc", None)
    if context is None or "PYSPARK_PYTHON" in os.environ:
        # A session of Spark Connect has no workers here.
        return
    settings = context.getConf()
    if settings.get("spark.pyspark.python") is None and context.master.startswith("local"):
        context.pythonExec = sys.executable
