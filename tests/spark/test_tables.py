"""The pipeline ``table``: tables are read by other programs, and compared with what was published."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pulsar
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from object_stores import object_store
from protobuf_messages import Compiled
from pulsar.schema import AvroSchema, ProtobufNativeSchema
from rest_catalog import rest_catalog
from spark_world import Cluster
from table_readers import delta_rows, duck, iceberg_rows

from magnetar.spark.pipelines.table_iceberg import catalog_in

COUNT = 4000
PAGE = Path(__file__).parents[2] / "docs" / "lake.md"
FORMATS = ("delta", "iceberg")
SOAK = "MAGNETAR_PIPELINE_MESSAGES" in os.environ
"""Set by ``make soak``; otherwise some tests have one format, because unit tests have both."""

Run = Callable[..., tuple[int, dict[str, Any]]]


def reading(report: dict[str, Any], topic: str, program: str) -> str:
    """The line of the report that reads a table."""
    [found] = [each for each in report["tables"] if each["title"] == "Reading"]
    return next(row[2] for row in found["rows"] if row[:2] == [topic, program])


def libraries(path: Path, topic: str, form: str) -> pa.Table:
    """The rows of a table as the library of its format reads them."""
    name = topic.removeprefix("persistent://").split("/")
    return delta_rows(path.joinpath(*name)) if form == "delta" else iceberg_rows(path, *name)


def numbers(found: pa.Table) -> list[int]:
    """The ids of generated messages."""
    return sorted(json.loads(each)["id"] for each in found["value"].to_pylist())


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_has_each_message_once(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, form: str
) -> None:
    cluster.client.subscribe(topic, "keep").close()
    assert run("generate", topic=topic, messages=COUNT, seconds=7200)[0] == 0
    by = ["hour(__eventTime)", "bucket(2, __key)"]
    settings = {"topics": [topic], "path": str(tmp_path / "tables"), "format": form, "partition_by": by}
    assert run("table", dry_run=True, **settings)[0] == 0
    code, report = run("table", **settings, max_rows_per_batch=1500)
    assert code == 0, report
    assert report["figures"]["rows added"] == COUNT
    assert report["figures"]["batches"] == 3
    assert report["figures"]["lag in entries"] == 0
    for found in (libraries(tmp_path / "tables", topic, form), duck(reading(report, topic, "DuckDB"))):
        assert numbers(found) == list(range(COUNT))
    assert report["figures"]["files added"] > 2 * report["figures"]["batches"]
    assert run("generate", topic=topic, messages=10)[0] == 0
    code, report = run("table", **settings)
    assert (code, report["figures"]["rows added"]) == (0, 10)
    code, report = run("table", **settings)
    assert (code, report["figures"]["rows added"], report["figures"]["batches"]) == (0, 0, 0)
    place = {name: each for name, each in settings.items() if name != "partition_by"}
    code, upkeep = run("table-maintain", **place)
    assert (code, upkeep["figures"]["small files merged"] > 0) == (0, True), upkeep
    code, report = run("table", **settings, maintain_every=1)
    assert (code, report["figures"]["rows added"]) == (0, 0)
    assert len(duck(reading(report, topic, "DuckDB"))) == COUNT + 10
    copy = f"{topic}-copy"
    cluster.client.subscribe(copy, "keep").close()
    folder = tmp_path.joinpath("tables", *topic.removeprefix("persistent://").split("/"))
    replay = {"path": str(folder), "topic": copy, "work": str(tmp_path / "replay")}
    code, report = run("replay", **replay)
    assert (code, report["figures"].get("messages published")) == (0, COUNT + 10), report["error"]
    assert run("mirror-verify", left=topic, right=copy)[0] == 0
    code, report = run("table", **(settings | {"partition_by": []}))
    assert (code, "partition_by" in report["error"]) == (1, True)


@pytest.mark.parametrize("form", FORMATS)
def test_tables_lie_in_an_object_store(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, form: str
) -> None:
    cluster.client.subscribe(topic, "keep").close()
    assert run("generate", topic=topic, messages=100)[0] == 0
    with object_store() as folder:
        settings = {"topics": [topic], "path": folder.root, "format": form, "storage": dict(folder.access)}
        if form == "iceberg":
            assert run("table", **settings)[0] == 2
            settings["catalog"] = str(tmp_path / "catalog.db")
        code, report = run("table", **settings)
        assert (code, report["figures"]["rows added"]) == (0, 100)
        assert "hidden" not in json.dumps(report)
        name = topic.removeprefix("persistent://")
        if form == "delta":
            options = folder.delta_options()
            found = DeltaTable(f"{folder.root}/{name}", storage_options=options).to_pyarrow_table()
        else:
            catalog = catalog_in(settings["catalog"], folder.iceberg_options())
            found = catalog.load_table(tuple(name.split("/"))).scan().to_arrow()
        assert numbers(found) == list(range(100))
        code, report = run("table", **settings)
        assert (code, report["figures"]["rows added"]) == (0, 0)
        place = {name: settings[name] for name in ("storage", "catalog") if name in settings}
        replayed(run, cluster, topic, tmp_path, path=f"{folder.root}/{name}", **place)


def replayed(run: Run, cluster: Cluster, topic: str, tmp_path: Path, **place: Any) -> None:
    """Checks that a replay of the table of a topic publishes what the topic has."""
    copy = f"{topic}-copy"
    cluster.client.subscribe(copy, "keep").close()
    code, report = run("replay", topic=copy, work=str(tmp_path / "replay"), **place)
    assert code == 0, report["error"]
    assert "hidden" not in json.dumps(report)
    code, report = run("mirror-verify", left=topic, right=copy)
    assert code == 0, report


def test_a_replay_has_the_values_that_only_partitions_have(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Files of Delta do not have them; AVRO is replayed as JSON."""
    send(cluster, topic, FIELDS[:2], 1, 2, 2)
    code, report = run("table", topics=[topic], path=str(tmp_path), partition_by=["number"])
    assert (code, report["figures"]["files added"]) == (0, 2), report
    consumer = cluster.client.subscribe(f"{topic}-copy", "keep")
    folder = tmp_path.joinpath(*topic.removeprefix("persistent://").split("/"))
    code, report = run("replay", path=str(folder), topic=f"{topic}-copy", work=str(tmp_path / "replay"))
    assert code == 0, report["error"]
    messages = [json.loads(consumer.receive(5000).data()) for _ in range(3)]
    assert sorted(each["number"] for each in messages) == [1, 2, 2]


@pytest.mark.skipif(not SOAK, reason="test_rest_catalog.py has what differs; here is the whole pipeline")
def test_tables_are_in_a_rest_catalog(run: Run, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    cluster.client.subscribe(topic, "keep").close()
    with rest_catalog(tmp_path) as port:
        settings = {"topics": [topic], "path": str(tmp_path / "tables"), "format": "iceberg"}
        settings |= {"catalog": f"http://127.0.0.1:{port}", "catalog_options": {"token": "hidden"}}
        for added in (100, 10):
            assert run("generate", topic=topic, messages=added)[0] == 0
            code, report = run("table", **settings)
            assert (code, report["figures"]["rows added"]) == (0, added), report
            assert "hidden" not in json.dumps(report)
        code, upkeep = run("table-maintain", **settings)
        assert (code, upkeep["figures"]["small files merged"] > 0) == (0, True), upkeep
        assert len(duck(reading(run("table", **settings)[1], topic, "DuckDB"))) == 110
        folder = tmp_path.joinpath("tables", *topic.removeprefix("persistent://").split("/"))
        place = {name: settings[name] for name in ("catalog", "catalog_options")}
        replayed(run, cluster, topic, tmp_path, path=str(folder), **place)
    code, report = run("table", **settings)
    assert (code, f"the catalog http://127.0.0.1:{port} cannot be used" in report["error"]) == (1, True)


def test_a_running_pipeline_tells_rows_and_lag(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds, with new messages between them; the third one is where the pipeline is stopped."""
    cluster.client.subscribe(topic, "keep").close()
    assert run("generate", topic=topic, messages=100)[0] == 0
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = int(listening.getsockname()[1])
    told: list[str] = []

    def pause(_seconds: float) -> None:
        told.append(urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
        if len(told) == 2:
            raise KeyboardInterrupt
        producer = cluster.client.create_producer(topic)
        producer.send(b"one more")
        producer.close()

    monkeypatch.setattr("magnetar.spark.pipelines.table.pause", pause)
    settings = {"topics": [topic], "path": str(tmp_path), "trigger": "1 h", "metrics_port": port}
    assert run("table", **settings)[0] == 130
    for text, rows in zip(told, (100, 101), strict=True):
        assert f'magnetar_table_rows_total{{topic="{topic}"}} {rows}' in text
        assert f'magnetar_table_lag_entries{{topic="{topic}"}} 0' in text
        assert "# HELP magnetar_table_rows_total" in text
    assert len(delta_rows(tmp_path.joinpath(*topic.removeprefix("persistent://").split("/")))) == 101


X = {"name": "x", "type": "float"}
FIELDS = [
    {"name": "number", "type": "int"},
    {"name": "text", "type": ["null", "string"], "default": None},
    {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "sizes", "type": {"type": "map", "values": "double"}},
    {
        "name": "place",
        "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "float"}]},
    },
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "raw", "type": "bytes"},
]
ADDED = {"name": "added", "type": ["null", "long"], "default": None}


def send(
    cluster: Cluster, topic: str, fields: list[dict[str, Any]], *numbers: int | str, keys: str = ""
) -> None:
    """Sends AVRO records, with the official client."""
    definition = {"type": "record", "name": "Everything", "fields": fields}
    client = pulsar.Client(cluster.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, schema=AvroSchema(None, schema_definition=definition))
    for number in numbers:
        record = {
            "number": number,
            "text": None if number in (1, 3) else f"text {number}",
            "colour": "BLUE",
            "tags": ["a", "b"],
            "sizes": {"s": 0.5},
            "place": {"x": 1.5},
            "day": date(2024, 5, 1),
            "at": datetime(2024, 5, 1, 12, tzinfo=UTC),
            "price": Decimal("12.34"),
            "raw": b"\x00\xff",
            "added": 0 if isinstance(number, str) else number << 40,
        }
        producer.send(
            {each["name"]: record[each["name"]] for each in fields}, partition_key=keys or f"k{number}"
        )
    client.close()


def ask(cluster: Cluster, method: str, path: str, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{cluster.http_url}{path}", body.encode(), headers, method=method)) as answer:
        assert answer.status in (200, 204)


def allow_all_changes(cluster: Cluster, topic: str) -> None:
    path = f"/admin/v2/persistent/{topic.removeprefix('persistent://')}/schemaCompatibilityStrategy"
    ask(cluster, "PUT", path, '"ALWAYS_COMPATIBLE"')


@pytest.mark.parametrize("form", FORMATS)
def test_avro_fields_become_columns_also_later_ones(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, form: str
) -> None:
    settings = {"topics": [topic], "path": str(tmp_path), "format": form}
    send(cluster, topic, FIELDS, 1)
    assert run("table", **settings)[0] == 0
    send(cluster, topic, [*FIELDS, ADDED], 2)
    send(cluster, topic, [*FIELDS[:1], *FIELDS[2:], ADDED], 3)
    code, report = run("table", **settings)
    assert code == 0, report
    names = [each["name"] for each in FIELDS]
    for found in (libraries(tmp_path, topic, form), duck(reading(report, topic, "DuckDB"))):
        rows = sorted(found.to_pylist(), key=lambda row: row["number"])
        assert [(row["number"], row["text"], row["added"]) for row in rows] == [
            (1, None, None),
            (2, "text 2", 2 << 40),
            (3, None, 3 << 40),
        ]
        for row in rows:
            values = ["BLUE", ["a", "b"], [("s", 0.5)], {"x": 1.5}, date(2024, 5, 1)]
            values += [datetime(2024, 5, 1, 12, tzinfo=UTC), Decimal("12.34"), b"\x00\xff"]
            sizes = list(dict(row["sizes"]).items())
            assert [sizes if each == "sizes" else row[each] for each in names[2:]] == values
            assert (row["__key"], row["__topic"]) == (f"k{row['number']}".encode(), topic)
            assert row["__publishTime"].utcoffset().total_seconds() == 0


@pytest.mark.parametrize("form", FORMATS if SOAK else ("delta",))
def test_fields_of_protobuf_become_columns_also_later_ones(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, form: str
) -> None:
    settings = {"topics": [topic], "path": str(tmp_path / "tables"), "format": form}
    client = pulsar.Client(cluster.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    texts = ("message Order { int32 id = 1; }", "message Order { int64 note = 7; int32 number = 1; }")
    for text, values in zip(texts, ({"id": 1}, {"number": 2, "note": 1 << 40}), strict=True):
        message = Compiled(tmp_path, text).message
        producer = client.create_producer(topic, schema=ProtobufNativeSchema(message))
        producer.send(message(**values))
        code, report = run("table", **settings)
        assert (code, report["figures"]["rows added"]) == (0, 1), report
    client.close()
    for found in (libraries(tmp_path / "tables", topic, form), duck(reading(report, topic, "DuckDB"))):
        assert sorted(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True)) == [
            (1, None),
            (2, 1 << 40),
        ]


@pytest.mark.parametrize("form", FORMATS if SOAK else ("iceberg",))
def test_an_upserted_table_has_the_last_message_of_each_key(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, form: str
) -> None:
    """Empty messages delete, messages without a key are put aside."""
    settings = {"topics": [topic], "path": str(tmp_path), "format": form, "mode": "upsert", "buckets": 2}
    cluster.admin.create_partitioned_topic(topic, 2)
    cluster.client.subscribe(topic, "keep").close()
    send(cluster, topic, FIELDS[:2], 1, 2, 3, 4)
    assert run("table", **settings)[0] == 0
    send(cluster, topic, FIELDS[:2], 2, 5, keys="k1")
    producer = cluster.client.create_producer(topic)
    producer.send(b"", partition_key="k3")
    producer.send(b"", partition_key="k9")
    producer.close()
    code, report = run("table", **settings)
    assert code == 0, report
    names = ("rows changed by upserts", "rows rewritten by upserts", "rows added")
    changed, rewritten, applied = (report["figures"][each] for each in names)
    assert (changed, applied) == (2, 4)
    assert 1 <= rewritten <= 3
    assert report["figures"]["rows rewritten per row changed"] == round(rewritten / 2, 1)
    for found in (libraries(tmp_path, topic, form), duck(reading(report, topic, "DuckDB"))):
        assert sorted(zip(found["__key"].to_pylist(), found["number"].to_pylist(), strict=True)) == [
            (b"k1", 5),
            (b"k2", 2),
            (b"k4", 4),
        ]
    remembered = sorted(tmp_path.rglob("_deletions/*.parquet"))
    keys = [key for each in remembered for key in pq.read_table(each)["__key"].to_pylist()]
    assert sorted(keys) == [b"k3", b"k9"]
    producer = cluster.client.create_producer(topic)
    producer.send(b"\x02\x00")
    producer.send(b"\x0c\x00", partition_key="k4")
    producer.close()
    assert "the message has no key" in run("table", **settings)[1]["error"]
    code, report = run("table", **settings, on_error="quarantine")
    assert (code, report["figures"]["rows quarantined"], report["figures"]["rows changed by upserts"]) == (
        0,
        1,
        1,
    )
    [aside] = libraries(tmp_path, f"{topic}_quarantine", form).to_pylist()
    assert (aside["payload"], aside["reason"], aside["__key"]) == (
        b"\x02\x00",
        "the message has no key",
        None,
    )


def test_a_separate_key_is_the_key_of_a_row(run: Run, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    cluster.admin.create_topic(topic)
    cluster.client.subscribe(topic, "keep").close()
    properties = {"kv.encoding.type": "SEPARATED", "key.schema.type": "STRING", "value.schema.type": "INT32"}
    schema = {"type": "KEY_VALUE", "schema": '{"key": "", "value": ""}', "properties": properties}
    path = f"/admin/v2/schemas/{topic.removeprefix('persistent://')}/schema"
    ask(cluster, "POST", path, json.dumps(schema))
    producer = cluster.client.create_producer(topic)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("b", None)):
        producer.send(b"" if value is None else value.to_bytes(4, "big"), partition_key=key)
    producer.close()
    code, report = run("table", topics=[topic], path=str(tmp_path), mode="upsert")
    assert code == 0, report
    [row] = libraries(tmp_path, topic, "delta").to_pylist()
    assert (row["key"], row["value"]) == ("a", 3)


@pytest.mark.parametrize("form", FORMATS if SOAK else ("delta",))
def test_messages_that_a_table_cannot_hold_are_put_aside(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, form: str
) -> None:
    """A type that changes, and payloads that do not fit the schema; the others become rows."""
    number, text = FIELDS[0], FIELDS[1]
    cluster.client.subscribe(topic, "keep").close()
    send(cluster, topic, [number], 1, 2)
    allow_all_changes(cluster, topic)
    send(cluster, topic, [{"name": "number", "type": "string"}], "three", "four")
    send(cluster, topic, [number, text], 6)
    producer = cluster.client.create_producer(topic)
    producer.send(b"", partition_key="seven", properties={"a": "b"})
    producer.close()
    settings = {"topics": [topic], "path": str(tmp_path), "format": form}
    assert run("table", **settings)[0] == 1
    code, report = run("table", **settings, on_error="quarantine")
    assert (code, report["figures"]["rows added"], report["figures"]["rows quarantined"]) == (0, 3, 3), report
    for found in (libraries(tmp_path, topic, form), duck(reading(report, topic, "DuckDB"))):
        rows = sorted(found.to_pylist(), key=lambda row: row["number"])
        assert [(row["number"], row["text"]) for row in rows] == [(1, None), (2, None), (6, "text 6")]
    for found in (
        libraries(tmp_path, f"{topic}_quarantine", form),
        duck(reading(report, f"{topic}, quarantine", "DuckDB")),
    ):
        rows = sorted(found.to_pylist(), key=lambda row: row["__publishTime"])
        assert [(row["payload"], row["schemaVersion"]) for row in rows] == [
            (b"\x0athree", 1),
            (b"\x08four", 1),
            (b"", None),
        ]
        assert "'number' is int32 in the table and string" in rows[0]["reason"]
        assert "does not fit the schema" in rows[2]["reason"]
        assert [row["__key"] for row in rows] == [b"kthree", b"kfour", b"seven"]
        assert dict(rows[2]["__messageProperties"]) == {"a": "b"}
        assert {row["__topic"] for row in rows} == {topic}
    code, report = run("table", **settings, on_error="quarantine")
    assert (code, report["figures"]["rows added"], report["figures"]["rows quarantined"]) == (0, 0, 0)
    code, upkeep = run("table-maintain", **settings)
    assert (code, upkeep["figures"]["tables"]) == (0, 2)


def test_the_commands_of_the_page(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """As a user runs them, with the address of the cluster, the topic and the folder filled in."""
    cluster.client.subscribe(topic, "keep").close()
    producer = cluster.client.create_producer(topic)
    for number in range(5):
        producer.send(b"%d" % number)
    producer.close()
    text = PAGE.read_text("utf-8")
    first, *others = re.findall(r"^    (magnetar pipeline .*)$", text, re.MULTILINE)
    assert len(others) == 2
    tried(first, tmp_path)
    config = tmp_path / "table.toml"
    filled = config.read_text("utf-8").replace("persistent://public/default/orders", topic)
    for name, value in (
        ("service_url", cluster.url),
        ("admin_url", cluster.http_url),
        ("master", "local[1]"),
    ):
        filled, count = re.subn(rf"^#{name} = .*$", f'{name} = "{value}"', filled, flags=re.MULTILINE)
        assert count == 1, name
    config.write_text(filled, "utf-8")
    for line in others:
        tried(line, tmp_path)
    table = tmp_path.joinpath("tables", *topic.removeprefix("persistent://").split("/"))
    lines = [
        each.replace("/srv/tables/public/default/orders", str(table))
        for each in re.findall(r"^\| (?:DuckDB|Python) \| `(.*)` \|$", text, re.MULTILINE)
    ]
    contents = [b"%d" % number for number in range(5)]
    assert sorted(duck(lines[0])["value"].to_pylist()) == contents
    assert sorted(eval(lines[1], {"deltalake": import_module("deltalake")})["value"]) == contents


def tried(line: str, folder: Path) -> None:
    """Runs a command of the page in a folder."""
    ended = subprocess.run(
        line.replace("magnetar", f"{sys.executable} -m magnetar", 1),
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, (line, ended.stderr)
