"""Real Spark sessions, a real server, and messages put in by a client."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_world import Cluster, end, served, session

from magnetar.spark.pipelines.run import run_pipeline

_topics = count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sessions: runs tasks of Spark, so that it matters where they run")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("sessions")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests; ``MAGNETAR_SPARK_MASTER`` says where it runs."""
    master = os.environ.get("MAGNETAR_SPARK_MASTER", "local[2]")
    made = session(master, tmp_path_factory.mktemp("spark"))
    yield made
    end(made)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Magnetar; or, where MAGNETAR_SPARK_SERVICE_URL and _ADMIN_URL say so, what runs there."""
    settings = {"managedLedgerMaxEntriesPerLedger": 50, "magnetarMinLedgerRolloverSeconds": 0}
    with served(tmp_path_factory.mktemp("server"), settings) as found:
        yield found


@pytest.fixture
def topic() -> str:
    """A topic nobody else uses."""
    return f"persistent://public/default/spark-{os.getpid()}-{next(_topics)}"


Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Read:
    """A batch read with options; names with dots go in as a dictionary."""

    def load(more: dict[str, str] | None = None, **options: str) -> DataFrame:
        return spark.read.format("pulsar").options(**cluster.options(**options, **(more or {}))).load()

    return load


Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Run:
    """Runs a pipeline with a configuration of its own; exit code and report."""
    assert spark is not None

    def do(name: str, dry_run: bool = False, **section: Any) -> tuple[int, dict[str, Any]]:
        config = tmp_path / "config.json"
        addresses = {"service_url": cluster.url, "admin_url": cluster.http_url}
        settings = {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "2"}}
        own = name.replace("-", "_")
        config.write_text(json.dumps({"cluster": addresses, "spark": settings, own: section}))
        code = run_pipeline(name, config, dry_run=dry_run, quiet=True)
        reports = sorted((tmp_path / "reports").glob(f"{name}-[0-9]*.json"))
        report = json.loads(reports[-1].read_text()) if reports else {}
        print(f"{name} ended with exit code {code}: {report.get('error')}")
        return code, report

    return do
