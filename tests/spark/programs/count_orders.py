"""Reads a table of orders with the Spark packages of its format; prints what is in it as JSON.

    count_orders.py LINE [ONCE]

``LINE`` is the expression that the pipeline's report gives for Spark, ``ONCE`` the options that it gives for
a table in an object store. The program runs in an environment with Spark 4.1, for which the newest packages
of Delta Lake and Iceberg are built.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

PACKAGES = "io.delta:delta-spark_4.1_2.13:4.3.0,org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
COUNTED = (
    "count(*) as rows",
    "count(distinct number) as orders",
    "min(number) as first",
    "max(number) as last",
    "sum(case when text = concat('order ', number) then 0 else 1 end) as wrong",
)


def options(once: str) -> dict[str, str]:
    """Returns the settings of Spark that the options of ``spark-submit`` stand for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", default="")
    parser.add_argument("--conf", action="append", default=[])
    parsed = parser.parse_args(once.split())
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop = jar.stem.removeprefix("hadoop-client-api-")
    packages = [PACKAGES, *filter(None, [parsed.packages.replace("VERSION", hadoop)])]
    return {"spark.jars.packages": ",".join(packages), **dict(each.split("=", 1) for each in parsed.conf)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]")
        for name, value in options(" ".join(sys.argv[2:])).items():
            builder = builder.config(name, value)
        spark = (
            builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
            .config("spark.sql.warehouse.dir", folder)
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        try:
            found = eval(sys.argv[1], {"spark": spark})
            print(json.dumps(found.selectExpr(*COUNTED).first().asDict()))
        finally:
            spark.stop()


main()
