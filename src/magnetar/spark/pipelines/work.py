"""The interface between a pipeline and its run."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from magnetar.admin_client import AdminClient
from magnetar.spark.options import QueryOptions
from magnetar.spark.pipelines.configuration import Cluster
from magnetar.spark.pipelines.report import Report

__all__ = [
    "Pipeline",
    "ProgressBar",
    "Work",
    "follow",
]
_LOOK_SECONDS = 0.2
_TOTALS = ("numInputRows", "processedRowsPerSecond")
_WIDTH = 30
_EVERY_SECONDS = {True: 0.1, False: 10.0}
"""Seconds between two updates: a terminal redraws the line, other outputs get another line."""


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


class ProgressBar:
    """Draws a bar on a terminal, and writes a line at intervals elsewhere."""

    def __init__(self, name: str, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._name = name
        self._stream = stream if stream is not None else sys.stderr
        self._terminal = self._stream.isatty()
        self._quiet = quiet
        self._begun = self._told = time.monotonic()
        self._step = ""
        self._open_line = False

    def step(self, text: str) -> None:
        """Starts the next step."""
        self._step = text
        self._begun = time.monotonic()
        self._tell(f"{self._name}: {text}", final=not self._terminal)

    def update(self, done: int, total: int | None = None, unit: str = "messages") -> None:
        """Shows ``done`` of ``total`` (None: unknown) since the start of the step."""
        now = time.monotonic()
        if now - self._told < _EVERY_SECONDS[self._terminal]:
            return
        self._told = now
        self._tell(self._line(done, total, unit, now - self._begun), final=not self._terminal)

    def finish(self, text: str) -> None:
        """Writes the last line."""
        self._tell(f"{self._name}: {text}", final=True)

    def _line(self, done: int, total: int | None, unit: str, seconds: float) -> str:
        rate = done / seconds if seconds > 0 else 0.0
        bar = ""
        if total:
            filled = min(_WIDTH, _WIDTH * done // total)
            bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {min(100, 100 * done // total)} % "
        of = f" of {total:,}" if total else ""
        return f"{self._name}: {self._step} {bar}{done:,}{of} {unit}, {rate:,.0f}/s"

    def _tell(self, text: str, *, final: bool) -> None:
        if self._quiet:
            return
        if self._terminal:
            self._stream.write(f"\r\x1b[2K{text}" + ("\n" if final else ""))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
