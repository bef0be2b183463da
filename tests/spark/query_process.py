"""A streaming query in a process of its own, to be killed: ``query_process.py SETTINGS``, a JSON object.

It shuffles the rows by a random number, into another number of partitions each time, and adds a random
column: run again, a batch has its rows in other places and with other contents.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_world import session


def source(spark: SparkSession, settings: dict[str, Any]) -> DataFrame:
    """Rows with one column, ``id``."""
    if settings["source"] == "topic":
        rows = spark.readStream.format("pulsar").options(**settings["read"]).load()
        return rows.select(f.col("value").cast("string").alias("id"))
    reader = spark.readStream.schema("id string").option("maxFilesPerTrigger", 1)
    return reader.text(settings["input"]).withColumnRenamed("value", "id")


def main() -> None:
    settings = json.loads(sys.argv[1])
    spark = session(settings["master"], Path(settings["folder"]))
    rows = source(spark, settings)
    rows = rows.repartition(settings["partitions"], f.rand())
    rows = rows.select(f.col("id").alias("__key"), f.concat("id", f.lit(":"), f.rand()).alias("value"))
    rows = rows.withColumn("__topic", f.lit(settings["topic"]))
    query = (
        rows.writeStream.format("pulsar")
        .options(**settings["write"])
        .option("checkpointLocation", settings["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    print("RUNNING", flush=True)
    query.awaitTermination()
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
