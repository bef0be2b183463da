"""The pipeline ``table`` as a command: two drivers at once, one of them killed, and a restarted broker.

``MAGNETAR_PIPELINE_MESSAGES`` (20,000) says how many messages, ``MAGNETAR_FIRST_SEED`` replays. With
``MAGNETAR_TABLE_SPARK``, a Python with Spark 4.1, Spark reads the tables, too.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pulsar
import pyarrow as pa
import pytest
from object_stores import object_store
from pipeline_process import PipelineProcess, Pipelines
from server import Server
from table_readers import delta_rows, duck, iceberg_rows

MESSAGES = int(os.environ.get("MAGNETAR_PIPELINE_MESSAGES", "20000"))
SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "1"))
OTHER_SPARK = os.environ.get("MAGNETAR_TABLE_SPARK", "")
PROGRAM = Path(__file__).parent / "programs" / "count_orders.py"
LIVES = 6
TOPIC = "persistent://public/default/orders"
NAME = ("public", "default", "orders")

pytestmark = pytest.mark.timeout(1200 + MESSAGES // 200)


class Order(pulsar.schema.Record):
    number = pulsar.schema.Integer()
    text = pulsar.schema.String()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker with ``MESSAGES`` orders in a topic of two partitions."""
    server = Server(tmp_path_factory.mktemp("server"), {})
    server.start()
    try:
        path = f"/admin/v2/persistent/{'/'.join(NAME)}/partitions"
        assert server.ask("PUT", path, "2")[0] == 204
        client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.subscribe(TOPIC, "keep").close()
        producer = client.create_producer(
            TOPIC,
            schema=pulsar.schema.AvroSchema(Order),
            batching_max_messages=100,
            block_if_queue_full=True,
        )
        for number in range(MESSAGES):
            producer.send_async(Order(number=number, text=f"order {number}"), lambda result, _: None)
        producer.flush()
        client.close()
        yield server
    finally:
        server.close()


def differing(found: pa.Table) -> int:
    """How many orders a table has too often or not at all."""
    assert found is not None
    wanted = f"select i as number, 'order ' || i as text from range({MESSAGES}) as numbers(i)"
    has = "select number, text from found"
    more = duckdb.sql(f"select count(*) from ({has} except all {wanted})").fetchall()
    less = duckdb.sql(f"select count(*) from ({wanted} except all {has})").fetchall()
    return int(more[0][0]) + int(less[0][0])


SOAK = "MAGNETAR_PIPELINE_MESSAGES" in os.environ
FORMS = ["delta", "iceberg"] if SOAK else ["delta"]
"""Iceberg in `make soak`: the commits of both are tried in all orders by the unit tests."""
VICTIMS = ["driver", "JVM", "workers", "all"] if SOAK else ["driver"]
"""What is killed of one of the two drivers."""


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("form", FORMS)
def test_tables_have_each_message_once_whatever_happens(
    server: Server, tmp_path: Path, form: str, victim: str
) -> None:
    chosen = random.Random(SEED)
    tables = tmp_path / "tables"
    section = {
        "topics": [TOPIC],
        "path": str(tables),
        "format": form,
        "max_rows_per_batch": max(1000, MESSAGES // 8),
    }
    processes = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        addresses = {"service_url": server.url, "admin_url": server.http_url}
        pipelines = Pipelines(folder, addresses, "local[2]", SEED)
        processes.append((pipelines, PipelineProcess("table", pipelines.configured("table", section))))
    processes[0][1].kill_after(chosen.uniform(0, 6), victim)
    server.restart(kill=True)
    first, result = [process.end() for _, process in processes]
    assert {first.code, result.code} <= {0, 1, -9}, (first.code, result.code, victim)
    for _ in range(LIVES):
        if result.code != 0:
            # The broker was away for too long, or a commit was in its way.
            result = PipelineProcess("table", processes[1][0].configured("table", section)).end()
    assert result.code == 0, result.report.get("error")
    line = next(row[2] for row in result.report["tables"][1]["rows"] if row[1] == "DuckDB")
    library = delta_rows(tables.joinpath(*NAME)) if form == "delta" else iceberg_rows(tables, *NAME)
    assert [differing(found) for found in (library, duck(line))] == [0, 0]
    assert result.report["figures"]["lag in entries"] == 0
    if OTHER_SPARK:
        line = next(row[2] for row in result.report["tables"][1]["rows"] if row[1] == "Spark")
        counted = {"rows": MESSAGES, "orders": MESSAGES, "first": 0, "last": MESSAGES - 1, "wrong": 0}
        assert counted_by_spark(line) == counted


@pytest.mark.skipif(not OTHER_SPARK, reason="set by make soak")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_spark_reads_tables_in_an_object_store(server: Server, tmp_path: Path, form: str) -> None:
    """With the lines of the report; the credentials are in the environment."""
    with object_store() as store:
        section = {"topics": [TOPIC], "path": store.root, "format": form, "storage": dict(store.access)}
        if form == "iceberg":
            section["catalog"] = str(tmp_path / "catalog.db")
        addresses = {"service_url": server.url, "admin_url": server.http_url}
        pipelines = Pipelines(tmp_path, addresses, "local[2]", SEED)
        result = PipelineProcess("table", pipelines.configured("table", section)).end()
        assert result.code == 0, result.report.get("error")
        lines = {row[1]: row[2] for row in result.report["tables"][1]["rows"]}
        keys = {"AWS_ACCESS_KEY_ID": "access_key_id", "AWS_SECRET_ACCESS_KEY": "secret_access_key"}
        found = counted_by_spark(
            lines["Spark"], lines["Spark, once"], {name: store.access[key] for name, key in keys.items()}
        )
    assert found == {"rows": MESSAGES, "orders": MESSAGES, "first": 0, "last": MESSAGES - 1, "wrong": 0}


def counted_by_spark(line: str, once: str = "", more: Mapping[str, str] | None = None) -> object:
    """What Spark 4.1 with the packages of the formats finds in the table that a line of the report reads.

    :param once: the options of the report
    :param more: variables of the environment
    """
    # Its Spark is another one than that of this process.
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    ended = subprocess.run(
        [OTHER_SPARK, PROGRAM, line, *once.split()],
        capture_output=True,
        text=True,
        timeout=1200,
        env={**variables, **(more or {})},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: object = json.loads(ended.stdout.splitlines()[-1])
    return found
