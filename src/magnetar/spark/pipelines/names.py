"""The names of the pipelines, in a module without other imports."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PIPELINES", "Named"]


class Named(NamedTuple):
    module: str
    summary: str


PIPELINES = {
    "generate": Named("generate", "example messages, always the same"),
    "archive": Named("archive", "a topic into partitioned Parquet files, exactly once"),
    "table": Named("table", "topics into tables of Delta Lake or Apache Iceberg, exactly once"),
    "table-maintain": Named(
        "table_maintain", "merges small files of such tables, and removes what nobody can read any more"
    ),
    "replay": Named("replay", "Parquet files into a topic, with rate and shift of time, exactly once"),
    "dlq-report": Named("dlq_report", "the contents of a dead letter topic, by cause"),
    "dlq-redrive": Named("dlq_redrive", "sends chosen dead letters again, each once"),
    "mirror-verify": Named(
        "mirror_verify", "whether two topics, namespaces or clusters have the same messages"
    ),
    "window-aggregate": Named("window_aggregate", "aggregates over windows of time, late messages counted"),
    "capacity-report": Named("capacity_report", "storage, backlog, growth and forecast of each tenant"),
}
