"""Topics as DataFrames: a data source for PySpark (``pip install magnetar[spark]``).

``register(spark)``, then ``spark.read.format("pulsar")``, ``readStream``, ``write`` and ``writeStream``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes ``format("pulsar")`` known to a session, and lets filters reach it.

    Spark refuses to read from a source that takes filters over while
    ``spark.sql.python.filterPushdown.enabled`` is false, as it is by default.

    :raises ImportError: PySpark is missing, or older than 4.2
    """
    from magnetar.spark.source import PulsarDataSource

    spark.dataSource.register(PulsarDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
