"""Benchmarks of the Spark source and sink, compared with the JVM connector."""
