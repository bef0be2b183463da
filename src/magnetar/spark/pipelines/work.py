"""The interface between a pipeline and its run."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from magnetar.admin_client import AdminClient, AdminError, CannotConnect, NotAllowed, NotFound
from magnetar.client import Client, PulsarException
from magnetar.client.exceptions import TopicNotFound
from magnetar.io.progress_bar import ProgressBar
from magnetar.spark.options import QueryOptions
from magnetar.spark.pipelines.configuration import Cluster, PipelineError
from magnetar.spark.pipelines.report import Report

__all__ = [
    "Pipeline",
    "ProgressBar",
    "Work",
    "chosen",
    "error_line",
    "follow",
]
T = TypeVar("T")
_LOOK_SECONDS = 0.2
_TRACE = "Traceback (most recent call last):"
_RAISED = re.compile(r"^([A-Za-z_][\w.]*): (.+)$", re.MULTILINE)
"""Matches the line of a Python stack trace that contains the exception's class and text."""
_CHECK_OPTIONS: Mapping[str, int] = {"operation_timeout_seconds": 10}
_TOTALS = ("numInputRows", "processedRowsPerSecond")


@dataclass
class Work:
    """One run of a pipeline: its configuration, session and cluster."""

    config: Any
    """The pipeline's own section."""
    cluster: Cluster
    start_spark: Callable[[], SparkSession]
    """Returns the Spark session, which the first call starts."""
    progress: ProgressBar
    report: Report

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at the first access.

        :raises PipelineError: Spark does not start
        """
        return self.start_spark()

    def check_cluster(self, topic: str, *, create: bool = False) -> None:
        """Checks that the cluster answers at both URLs, and that a topic exists.

        :param create: whether the topic may be missing, because the pipeline creates it
        :raises PipelineError: a check failed; the error text gives the problem and the remedy
        """
        options = QueryOptions.parse(self.cluster.options())
        self._check_admin(lambda admin: admin.partitions(topic))
        try:
            with Client(options.service_url, **{**options.client, **_CHECK_OPTIONS}) as client:
                client.get_topic_partitions(topic, create=False)
        except TopicNotFound:
            if not create:
                raise PipelineError(
                    f"topic {topic} does not exist at service_url {self.cluster.service_url}; check its name"
                ) from None
        except PulsarException as error:
            raise PipelineError(
                f"cannot look up {topic} at service_url {self.cluster.service_url}: {error}; check the "
                "section [cluster], and that the broker runs"
            ) from error

    def check_namespace(self, namespace: str) -> None:
        """Checks that the cluster answers at ``admin_url``, and that a namespace exists.

        :raises PipelineError: a check failed; the error text gives the problem
        """
        self._check_admin(lambda admin: admin.tenants())
        try:
            self.admin.topics(namespace)
        except NotFound as error:
            raise PipelineError(
                f"namespace {namespace} at admin_url {self.cluster.admin_url}: {error}"
            ) from error

    def _check_admin(self, ask: Callable[[AdminClient], object]) -> None:
        where = f"admin_url {self.cluster.admin_url}"
        try:
            ask(self.admin)
        except CannotConnect as error:
            raise PipelineError(
                f"{error} (admin_url); check the section [cluster], and that the broker runs"
            ) from error
        except (NotAllowed, NotFound):
            # The pipeline's role may lack permission for this request; the lookup then finds the topic.
            pass
        except AdminError as error:
            raise PipelineError(f"{where} answers: {error}") from error

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


@runtime_checkable
class Pipeline(Protocol):
    """The interface of a module of this package that is a pipeline."""

    CONFIG: type[Any]
    """The type of the pipeline's section, a frozen dataclass."""
    NEEDS_SPARK: bool
    """Whether a run uses Spark, which is then started in advance. A dry run only starts Spark when the dry
    run itself uses Spark.
    """

    def check(self, work: Work) -> None:
        """Checks the cluster, before Spark starts.

        :raises PipelineError: the pipeline cannot run; the error text gives the remedy
        """
        ...

    def dry_run(self, work: Work) -> Sequence[str]:
        """Checks everything, but changes nothing; returns lines that describe what a run would do."""
        ...

    def run(self, work: Work) -> None:
        """Runs the pipeline; after a crash, continues where the last run ended.

        :raises PipelineError: the pipeline cannot continue
        """
        ...


def chosen(frame: DataFrame, where: str) -> DataFrame:
    """Returns the rows that a Spark SQL expression selects; an empty expression selects all rows.

    :raises PipelineError: the expression is not valid
    """
    if not where:
        return frame
    try:
        return frame.where(where)
    except PySparkException as error:
        raise PipelineError(f"where = {where!r}: {error_line(error)}") from error


def error_line(error: Exception) -> str:
    """Returns the text of an error as one line, without query plans and stack traces.

    If Python code in Spark's workers has failed, returns the text of the Python exception.
    """
    text = str(error).partition("JVM stacktrace")[0]
    _, trace, last = text.rpartition(_TRACE)
    raised = _RAISED.search(last) if trace else None
    if raised is not None:
        own = raised[1].startswith("magnetar.")
        return raised[2] if own else raised[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].partition(" SQLSTATE")[0].rstrip("; ") if lines else type(error).__name__


def follow(query: StreamingQuery, progress: ProgressBar) -> list[dict[str, Any]]:
    """Waits until a query has ended; returns its progress reports.

    :raises Exception: the error of the query
    """
    told: dict[int, dict[str, Any]] = {}
    while query.isActive:
        _gather(query, told)
        # Spark reports the rows of a batch when it has ended.
        if rows := sum(int(each["numInputRows"]) for each in told.values()):
            progress.update(rows)
        time.sleep(_LOOK_SECONDS)
    query.awaitTermination()
    _gather(query, told)
    progress.done(sum(int(each["numInputRows"]) for each in told.values()))
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
