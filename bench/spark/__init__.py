"""Measures of the Spark source; each module is a command: ``python -m bench.spark.read``."""
