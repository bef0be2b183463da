"""Topics as DataFrames: a data source for PySpark (``pip install magnetar[spark]``).

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
    """Makes ``format("pulsar")`` known to a session, and lets filters reach it.

    Spark runs the source in Python processes of its own, by the name ``python3`` unless ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` says another one. On a local master it runs in this interpreter instead:
    that one has the source.

    Spark refuses to read from a source that takes filters over while
    ``spark.sql.python.filterPushdown.enabled`` is false, as it is by default.

    :raises ImportError: PySpark is missing, or older than 4.2
    """
    from magnetar.spark.source import PulsarDataSource

    _use_this_python(spark)
    spark.dataSource.register(PulsarDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def _use_this_python(spark: SparkSession) -> None:
    """Where nobody chose one, and workers run on this machine."""
    context = getattr(spark, "_sc", None)
    if context is None or "PYSPARK_PYTHON" in os.environ:
        # A session of Spark Connect has no workers here.
        return
    settings = context.getConf()
    if settings.get("spark.pyspark.python") is None and context.master.startswith("local"):
        context.pythonExec = sys.executable
