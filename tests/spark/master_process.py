"""``format("pulsar")`` on a master: written to, read from, streamed; ``master_process.py SETTINGS``, JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from magnetar.spark import register


def main() -> None:
    settings = json.loads(sys.argv[1])
    master = settings["master"]
    builder = SparkSession.builder.appName("masters")
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    for key, value in settings["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    count = settings["count"]
    rows = spark.range(0, count, 1, 4).select(f.col("id").cast("string").alias("value"))
    there = settings["options"]
    rows.write.format("pulsar").options(**there, topic=settings["first"]).mode("append").save()
    read = spark.read.format("pulsar").options(**there, topic=settings["first"]).load()
    assert read.where("__publishTime > timestamp'2020-01-01'").count() == count
    numbers = read.select(f.sum(f.col("value").cast("string").cast("long"))).collect()[0][0]
    assert numbers == count * (count - 1) // 2, numbers
    stream = spark.readStream.format("pulsar").options(
        **there, topic=settings["first"], startingOffsets="earliest", maxRowsPerTrigger=str(count // 3)
    )
    query = (
        stream.load()
        .select("value")
        .writeStream.format("pulsar")
        .options(**there, topic=settings["second"], checkpointLocation=settings["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
