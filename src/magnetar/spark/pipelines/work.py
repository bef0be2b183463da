"""The interface between a pipeline and its run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from magnetar.admin_client import AdminClient
from magnetar.spark.options import QueryOptions
from magnetar.spark.pipelines.configuration import Cluster
from magnetar.spark.pipelines.progress import ProgressBar
from magnetar.spark.pipelines.report import Report

__all__ = ["Pipeline", "Work", "follow"]

_LOOK_SECONDS = 0.2
_TOTALS = ("numInputRows", "processedRowsPerSecond")


@dataclass
class Work:
    """One run of a pipeline."""

    config: Any
    """The pipeline's own section."""
    cluster: Cluster
    spark: SparkSession
    progress: ProgressBar
    report: Report

    @property
    def admin(self) -> AdminClient:
        access = QueryOptions.parse(self.cluster.options()).access
        return AdminClient(self.cluster.admin_url, authentication=access.authentication, tls=access.tls)

    def messages(self, topic: str, **options: str) -> DataFrame:
        """Returns the present messages of a topic."""
        return self.read({"topic": topic, **options})

    def read(self, options: Mapping[str, str], schema: StructType | None = None) -> DataFrame:
        """Returns the present messages of the topics in ``options``.

        :param schema: the columns to read; None: the default columns
        """
        reader = self.spark.read.format("pulsar").options(**self.cluster.options(), **options)
        return (reader if schema is None else reader.schema(schema)).load()


class Pipeline(Protocol):
    """A module of this package."""

    CONFIG: type[Any]
    """The type of its section, a frozen dataclass."""

    def dry_run(self, work: Work) -> Sequence[str]:
        """Checks everything without changes; returns lines that say what a run would do."""
        ...

    def run(self, work: Work) -> None:
        """Runs the pipeline; a run after a crash continues.

        :raises PipelineError: the pipeline cannot continue
        """
        ...


def follow(query: StreamingQuery, progress: ProgressBar) -> list[dict[str, Any]]:
    """Waits until a query has ended; returns its progress reports.

    :raises Exception: the error of the query
    """
    told: dict[int, dict[str, Any]] = {}
    while query.isActive:
        _gather(query, told)
        progress.update(sum(int(each["numInputRows"]) for each in told.values()))
        time.sleep(_LOOK_SECONDS)
    query.awaitTermination()
    _gather(query, told)
    return [told[batch] for batch in sorted(told)]


def _gather(query: StreamingQuery, told: dict[int, dict[str, Any]]) -> None:
    for each in query.recentProgress:
        found = dict(each if isinstance(each, dict) else each.jsonValue)
        for name in _TOTALS:
            # Spark Connect reports them only for each source.
            if found.get(name) is None:
                found[name] = sum(source[name] or 0 for source in found["sources"])
        if int(found["numInputRows"]) or int(found["batchId"]) not in told:
            told[int(found["batchId"])] = found
