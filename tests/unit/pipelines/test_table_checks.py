"""What the pipeline ``table`` checks before Spark starts, and how an interrupted pipeline ends."""

from __future__ import annotations

import socket
import subprocess
from datetime import timedelta
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake")

from pyspark import SparkContext

from magnetar.spark.pipelines import session, table_section
from magnetar.spark.pipelines import table as pipeline
from magnetar.spark.pipelines.configuration import PipelineError
from magnetar.spark.pipelines.table_section import TableConfig


@pytest.mark.parametrize("domain", ["", "persistent://"])
def test_the_namespace_of_a_pattern_is_asked_for(tmp_path: Path, domain: str) -> None:
    asked: list[str] = []
    config = TableConfig((), str(tmp_path), pattern=f"{domain}tenant/space/orders-.*")
    work: Any = SimpleNamespace(config=config, check_namespace=asked.append)
    pipeline.check(work)
    assert asked == ["tenant/space"]


def test_a_pattern_without_a_namespace_is_refused(tmp_path: Path) -> None:
    config = TableConfig((), str(tmp_path), pattern="orders-.*")
    work: Any = SimpleNamespace(config=config, check_namespace=pytest.fail)
    with pytest.raises(PipelineError, match=r"pattern = 'orders-\.\*' must begin with a tenant and a namesp"):
        pipeline.check(work)


class Ended(BaseRequestHandler):
    """The connection of a JVM that has ended."""

    def handle(self) -> None:
        raise EOFError


def test_the_end_of_an_interrupted_jvm_prints_no_stack_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm,
        TCPServer(("127.0.0.1", 0), Ended) as server,
    ):
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
        context = SimpleNamespace(_accumulatorServer=server)
        monkeypatch.setattr(SparkContext, "_active_spark_context", context)
        session._end_jvm()
        assert jvm.returncode == 0
        with socket.create_connection(server.server_address):
            server.handle_request()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "age"),
    [("3 d", timedelta(days=3)), ("1.5h", timedelta(minutes=90)), ("72 min", timedelta(minutes=72))],
)
def test_the_age_of_orphans_is_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, age: timedelta
) -> None:
    given: list[object] = []
    monkeypatch.setattr(table_section, "maintain", lambda *arguments: given.extend(arguments))
    config = TableConfig(("public/default",), str(tmp_path), orphan_age=text)
    config.keep_up(None, None)  # type: ignore[arg-type]
    assert given[-1] == age
    assert TableConfig(("public/default",), str(tmp_path)).orphan_age == "3 d"
