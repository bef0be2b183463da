"""The pipelines on real Spark; what they bring about is computed again by DuckDB or by hand."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_world import Cluster

from magnetar.client import Message, MessageId
from magnetar.spark.pipelines.generate import CAUSES, FIRST_SECOND
from magnetar.spark.pipelines.lake import Lake
from magnetar.spark.pipelines.outbox import Outbox

COUNT = 4000

Run = Callable[..., tuple[int, dict[str, Any]]]


def messages(cluster: Cluster, topic: str) -> list[Message]:
    reader = cluster.client.create_reader(topic, MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(120_000))
    reader.close()
    return found


def table(cluster: Cluster, topic: str) -> pd.DataFrame:
    """The orders of a topic, read by a client; named ``orders`` in queries."""
    rows = [
        {"event": each.event_timestamp() // 1000, "key": each.partition_key(), **json.loads(each.data())}
        for each in messages(cluster, topic)
    ]
    return pd.DataFrame(rows)


def keep(cluster: Cluster, *topics: str) -> None:
    for topic in topics:
        cluster.client.subscribe(topic, "keep").close()


def archived(path: Path) -> list[tuple[Any, ...]]:
    """What DuckDB finds in the files of an archive."""
    query = (
        "select cast(json_extract(decode(value), '$.id') as int), decode(__key), "
        f"epoch(__eventTime) from read_parquet('{path}/data/**/*.parquet') order by 1"
    )
    return duckdb.sql(query).fetchall()


def expected(cluster: Cluster, topic: str) -> list[tuple[Any, ...]]:
    orders = table(cluster, topic)
    assert len(orders)
    return duckdb.sql("select id, key, cast(event as double) from orders order by id").fetchall()


def test_archive_has_each_message_once_and_says_so(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    keep(cluster, topic)
    assert run("generate", topic=topic, messages=COUNT, seconds=7200)[0] == 0
    lake = tmp_path / "lake"
    settings = {"topic": topic, "path": str(lake), "partition_by": "hour", "time": "event"}
    assert run("archive", dry_run=True, **settings)[0] == 0
    assert not lake.exists(), "a dry run changes nothing"
    code, report = run("archive", **settings, max_rows_per_batch=1500)
    assert code == 0
    assert archived(lake) == expected(cluster, topic)
    assert len(archived(lake)) == COUNT
    assert report["figures"]["messages added"] == COUNT
    assert report["figures"]["small files merged"] > 0
    hours = duckdb.sql(
        f"select count(*), count(distinct (date, hour)) from read_parquet('{lake}/data/**/*.parquet', "
        "hive_partitioning=true) where strftime(__eventTime, '%Y-%m-%d %H') = date || ' ' || "
        "lpad(cast(hour as varchar), 2, '0')"
    ).fetchall()
    assert hours == [(COUNT, len(report["tables"][0]["rows"]))]
    manifest = json.loads((lake / "manifest.json").read_text())
    assert {each["path"] for each in manifest["files"]} == {
        str(path.relative_to(lake)) for path in lake.rglob("data/**/*.parquet")
    }
    assert manifest["rows"] == COUNT
    code, report = run("archive", **settings)
    assert (code, report["figures"]["messages added"]) == (0, 0)


@pytest.mark.parametrize(
    "when", ["before the manifest", "after the manifest", "while small files are merged"]
)
def test_archive_goes_on_after_a_crash(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    keep(cluster, topic)
    run("generate", topic=topic, messages=1000)
    lake = tmp_path / "lake"
    settings = {"topic": topic, "path": str(lake), "max_rows_per_batch": 400}
    name = "_decide" if when == "before the manifest" else "_move"
    original = getattr(Lake, name)
    calls = [0]

    def crash(self: Lake, *given: Any, **more: Any) -> None:
        calls[0] += 1
        merging = name == "_move" and given[0]["replaces"]
        if merging if when.startswith("while") else calls[0] == 2:
            raise OSError("the power went")
        original(self, *given, **more)

    monkeypatch.setattr(Lake, name, crash)
    code, report = run("archive", **settings)
    assert code == 1
    assert "the power went" in report["error"]
    assert report["outcome"] == "failed"
    monkeypatch.undo()
    assert run("archive", **settings)[0] == 0
    assert archived(lake) == expected(cluster, topic)
    assert len(archived(lake)) == 1000


def test_replay_publishes_an_archive_once_although_it_was_interrupted(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, later = f"{topic}-copy", f"{topic}-later"
    keep(cluster, topic, copy, later)
    run("generate", topic=topic, messages=1000)
    run("archive", topic=topic, path=str(tmp_path / "lake"))
    settings = {"path": str(tmp_path / "lake"), "topic": copy, "work": str(tmp_path / "replay"), "rate": 60.0}
    original = Outbox.publish
    calls = [0]

    def crash(self: Outbox, *given: Any) -> None:
        calls[0] += 1
        original(self, *given)
        if calls[0] == 2:
            raise OSError("the power went")

    monkeypatch.setattr(Outbox, "publish", crash)
    monkeypatch.setattr("magnetar.spark.pipelines.replay._SECONDS_A_SLICE", 1)
    assert run("replay", **(settings | {"rate": 300.0}))[0] == 1
    monkeypatch.undo()
    interrupted = len(messages(cluster, copy))
    assert 0 < interrupted < 1000
    code, report = run("replay", **(settings | {"rate": 0.0}))
    assert code == 0
    assert len(messages(cluster, copy)) == 1000
    assert run("replay", **settings)[1]["figures"]["messages published"] == 0
    assert len(messages(cluster, copy)) == 1000
    code, report = run("mirror-verify", left=topic, right=copy)
    assert code == 0, report["tables"]
    assert report["figures"]["messages left"] == report["figures"]["messages right"] == 1000
    shifted = settings | {"topic": later, "work": str(tmp_path / "other"), "rate": 0.0, "shift_seconds": 90.0}
    assert run("replay", **shifted, where="__key = 'customer-5'")[0] == 0
    wanted = [each for each in messages(cluster, topic) if each.partition_key() == "customer-5"]
    got = [(each.data(), each.event_timestamp()) for each in messages(cluster, later)]
    assert got == [(each.data(), each.event_timestamp() + 90_000) for each in wanted]


@pytest.mark.parametrize("keys", [[b"a", "ż".encode()], [b"a", b"\xff"]])
def test_replayed_keys_are_text_again_unless_they_cannot_be(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, keys: list[bytes]
) -> None:
    keep(cluster, topic)
    (tmp_path / "lake").mkdir()
    rows = pa.table({"value": pa.array([b"1", b"2"]), "__key": pa.array(keys, pa.binary())})
    pq.write_table(rows, tmp_path / "lake" / "rows.parquet")
    assert run("replay", path=str(tmp_path / "lake"), topic=topic, work=str(tmp_path / "work"))[0] == 0
    found = [each.partition_key() for each in messages(cluster, topic)]
    if keys[1] == b"\xff":
        assert found == [base64.b64encode(key).decode() for key in keys]
    else:
        assert found == [key.decode() for key in keys]


def test_fields_that_are_called_like_partitions_are_not_lost(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    keep(cluster, topic, source)
    (tmp_path / "lake").mkdir()
    rows = pa.table({"id": [1, 2], "date": ["monday", "friday"], "hour": [7, 8]})
    pq.write_table(rows, tmp_path / "lake" / "rows.parquet")
    assert run("replay", path=str(tmp_path / "lake"), topic=topic, work=str(tmp_path / "work"))[0] == 0
    assert [json.loads(each.data()) for each in messages(cluster, topic)] == rows.to_pylist()
    definition = {"type": "record", "name": "r", "fields": [{"name": "Date", "type": "string"}]}
    schema = json.dumps({"type": "JSON", "schema": json.dumps(definition), "properties": {}})
    path = source.removeprefix("persistent://")
    cluster.admin._http.ask("POST", f"/admin/v2/schemas/{path}/schema", body=schema)
    cluster.client.create_producer(source).send(b'{"Date": "monday"}')
    settings = {"topic": source, "path": str(tmp_path / "archive")}
    code, report = run("archive", **settings)
    assert (code, f"{source} has a field 'Date'" in report["error"]) == (1, True)
    assert run("archive", **settings, options={"value.format": "bytes"})[0] == 0
    found = duckdb.sql(f"select decode(value) from read_parquet('{tmp_path}/archive/data/**/*.parquet')")
    assert [json.loads(row[0]) for row in found.fetchall()] == [{"Date": "monday"}]


def test_mirror_verify_finds_one_message_more_and_one_that_differs(
    run: Run, cluster: Cluster, topic: str
) -> None:
    copy = f"{topic}-copy"
    keep(cluster, topic, copy)
    left, right = cluster.client.create_producer(topic), cluster.client.create_producer(copy)
    for number in range(50):
        left.send(b"%d" % number, partition_key="k", properties={"own": "1"})
        right.send(b"%d" % number, partition_key="k", properties={"own": "2"})
    code, report = run("mirror-verify", left=topic, right=copy)
    assert code == 3
    assert report["figures"]["missing right"] == 50
    ignoring = {"left": topic, "right": copy, "ignored_properties": ["own"]}
    assert run("mirror-verify", **ignoring)[0] == 0
    right.send(b"7", partition_key="k")
    left.send(b"a", partition_key="k")
    right.send(b"a", partition_key="other")
    code, report = run("mirror-verify", **ignoring)
    assert code == 3
    assert report["outcome"] == "differences"
    assert (report["figures"]["missing right"], report["figures"]["too many right"]) == (1, 2)
    columns = ["key", "event time", "properties", "content", "left", "right"]
    wanted = {"title": "Differences", "columns": columns}
    rows = [["k", "-", "-", "7", 1, 2], ["k", "-", "-", "a", 1, 0], ["other", "-", "-", "a", 0, 1]]
    assert report["tables"][0] == wanted | {"rows": rows}
    found = [(row[0], row[1], row[2], row[4]) for row in report["tables"][1]["rows"]]
    assert found == [("missing", "right", topic, 1), ("missing", "left", copy, 2)]
    _, report = run("mirror-verify", **ignoring, samples=2)
    wanted["title"] = "Differences (2 of 3)"
    assert report["tables"][0] == wanted | {"rows": rows[:2]}
    assert [each["title"] for each in report["tables"][1:]] == ["Ranges"]


def test_mirror_verify_compares_the_order_of_each_producer(run: Run, cluster: Cluster, topic: str) -> None:
    copy = f"{topic}-copy"
    keep(cluster, topic, copy)
    for name, contents in ((topic, "abc"), (copy, "bac")):
        for producer_name in ("p", "q"):
            producer = cluster.client.create_producer(name, producer_name=producer_name)
            for content in contents if producer_name == "p" else "xyz":
                producer.send(content.encode())
            producer.close()
    assert run("mirror-verify", left=topic, right=copy)[0] == 0
    code, report = run("mirror-verify", left=topic, right=copy, order=True)
    assert (code, report["figures"]["order breaks"]) == (3, 1)
    (rows,) = (each["rows"] for each in report["tables"] if each["title"] == "Order")
    assert [row[:2] for row in rows] == [[topic, "p"]]
    assert run("mirror-verify", left=topic, right=topic, order=True)[0] == 0


def test_dead_letters_are_counted_and_sent_again_once(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = f"{topic}-billing-DLQ"
    keep(cluster, topic, letters)
    run("generate", topic=letters, messages=1000, kind="dead-letters", origin=topic)
    found = Counter(each.properties()["EXCEPTION"] for each in messages(cluster, letters))
    assert set(found) == set(CAUSES)
    code, report = run("dlq-report", topic=letters)
    assert code == 0
    rows = report["tables"][0]["rows"]
    assert {row[0]: row[3] for row in rows} == found
    assert {(row[1], row[2], row[4]) for row in rows} == {(topic, "billing", 3)}
    settings = {"topic": letters, "work": str(tmp_path / "work"), "where": "cause = 'ValidationError'"}
    assert run("dlq-redrive", dry_run=True, **settings)[0] == 0
    assert not messages(cluster, topic)
    monkeypatch.setattr(Outbox, "close", lambda _: (_ for _ in ()).throw(OSError("the power went")))
    assert run("dlq-redrive", **settings)[0] == 1
    monkeypatch.undo()
    for _ in range(2):
        assert run("dlq-redrive", **settings)[0] == 0
    chosen = [each for each in messages(cluster, letters) if each.properties()["EXCEPTION"] == CAUSES[1]]
    again = messages(cluster, topic)
    assert Counter(each.data() for each in again) == Counter(each.data() for each in chosen)
    assert len(again) == found[CAUSES[1]]
    assert all(set(each.properties()) == {"EXCEPTION", "REDRIVEN_FROM"} for each in again)
    code, report = run("dlq-redrive", topic=letters, work=str(tmp_path / "work"), most=10)
    assert report["figures"]["messages sent again"] == 10
    assert len(messages(cluster, topic)) == found[CAUSES[1]] + 10
    # One that was sent again has become a dead letter again.
    properties = again[0].properties() | {"REAL_TOPIC": topic}
    cluster.client.create_producer(letters).send(b"once more", properties=properties)
    settings["where"] = "cast(value as string) = 'once more'"
    assert run("dlq-redrive", **settings)[0] == 0
    last = messages(cluster, topic)[-1]
    assert last.data() == b"once more"
    assert set(last.properties()) == {"EXCEPTION", "REDRIVEN_FROM"}
    assert last.properties()["REDRIVEN_FROM"] != properties["REDRIVEN_FROM"]


def test_windows_are_what_duckdb_computes_and_late_messages_are_counted(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    keep(cluster, topic)
    run("generate", topic=topic, messages=COUNT, seconds=36_000)
    settings: dict[str, Any] = {
        "topic": topic,
        "path": str(tmp_path / "windows"),
        "window": "10 minutes",
        "watermark": "2 hours",
        "group_by": {"region": "get_json_object(cast(value as string), '$.region')"},
        "aggregates": {
            "orders": "count(*)",
            "amount": "sum(cast(get_json_object(cast(value as string), '$.amount') as double))",
        },
    }
    code, report = run("window-aggregate", **settings, max_rows_per_batch=1000)
    assert code == 0
    orders = table(cluster, topic)
    assert len(orders) == COUNT
    ended = int(orders["event"].max()) - 7200
    wanted = duckdb.sql(
        "select event - event % 600 as start, region, count(*), round(sum(amount), 6) from orders "
        f"where event - event % 600 + 600 <= {ended} group by all order by all"
    ).fetchall()
    got = duckdb.sql(
        f"select cast(epoch(window_start) as bigint), region, orders, round(amount, 6) "
        f"from read_parquet('{tmp_path}/windows/data/*.parquet') order by all"
    ).fetchall()
    assert got == wanted
    assert len(got) == report["figures"]["rows in the results"] > 150
    assert report["figures"]["late groups left out"] == 0
    late = cluster.client.create_producer(topic)
    late.send(b'{"region": "north", "amount": 1}', event_timestamp=FIRST_SECOND * 1000)
    code, report = run("window-aggregate", **settings)
    assert (code, report["figures"]["late groups left out"]) == (0, 1)
    code, report = run("window-aggregate", **(settings | {"window": "soon"}))
    assert (code, "cannot aggregate" in report["error"]) == (1, True)


@pytest.mark.parametrize(
    ("where", "wanted", "reason"),
    [
        ("caus = 5", 1, ": [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("cause ==", 2, " is not a Spark SQL expression: '==' at line 1, column 7 lacks an operand"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_wrong_expression_is_reported_in_one_line(
    run: Run,
    cluster: Cluster,
    topic: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    where: str,
    wanted: int,
    reason: str,
    dry_run: bool,
) -> None:
    keep(cluster, topic)
    work = str(tmp_path / "work")
    code, report = run("dlq-redrive", dry_run, topic=topic, work=work, where=where)
    assert code == wanted
    told = capfd.readouterr().err
    [line] = [line for line in told.splitlines() if line.startswith("magnetar: ")]
    assert f"where = {where!r}{reason}" in line
    assert "+- Project" not in told
    assert bool(report) == (code == 1 and not dry_run)


def test_the_report_of_a_failure_has_the_details(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keep(cluster, topic)
    cluster.client.create_producer(topic).send(b"x")
    lake = tmp_path / "lake"
    settings = {"topic": topic, "path": str(lake), "options": {"value.format": "nothing"}}
    code, report = run("archive", **settings)
    assert code == 1
    [line] = [line for line in capfd.readouterr().err.splitlines() if line.startswith("magnetar: ")]
    assert line == f"magnetar: archive: {report['error']}"
    assert "value.format" in report["error"]
    assert "Traceback (most recent call last)" in report["details"]
    assert "Traceback" not in report["error"]


def test_an_interrupt_ends_a_pipeline_without_stack_traces(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """While Spark starts and while a query runs; the next run continues."""
    keep(cluster, topic)
    producer = cluster.client.create_producer(topic)
    producer.send(b"x")
    config = tmp_path / "archive.json"
    addresses = {"service_url": cluster.url, "admin_url": cluster.http_url}
    own = {"topic": topic, "path": str(tmp_path / "lake")}
    config.write_text(json.dumps({"cluster": addresses, "spark": {"master": "local[1]"}, "archive": own}))
    command = [sys.executable, "-m", "magnetar", "pipeline", "archive", "--config", str(config)]
    # The JVM is launched, Spark starts, a query runs.
    for step, seconds in (("starting Spark", 0.0), ("starting Spark", 1.5), ("archiving", 0.0)):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stderr is not None
            told = ""
            while f"archive: {step}\n" not in told:
                told += process.stderr.readline()
            time.sleep(seconds)
            # As a terminal does: to the JVM as well.
            os.killpg(process.pid, signal.SIGINT)
            # Ends once the JVM and its workers have ended too, which hold the pipe.
            told += process.stderr.read()
        assert process.returncode == 130, told
        assert told.endswith("archive: interrupted; the next run continues\n")
        assert "Traceback" not in told


def test_capacity_is_what_the_topics_hold_and_grows_as_they_do(
    run: Run, cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(cluster, topic)
    producer = cluster.client.create_producer(topic)
    settings = {"history": str(tmp_path / "history.jsonl"), "capacity_gb": 1.0, "tenants": ["public"]}
    now = [1_800_000_000.0]
    monkeypatch.setattr("magnetar.spark.pipelines.capacity_report.time.time", lambda: now[0])
    reports = []
    for _ in range(2):
        for _ in range(20):
            producer.send(bytes(1000))
        code, report = run("capacity-report", **settings)
        assert code == 0
        stats = [cluster.admin.topic_stats(each) for each in cluster.admin.topics("public/default")]
        row = report["tables"][0]["rows"][0]
        assert row[:2] == ["public", len(stats)]
        assert row[2] == sum(each["storageSize"] for each in stats)
        assert row[4] == sum(sub["msgBacklog"] for each in stats for sub in each["subscriptions"].values())
        reports.append(row)
        now[0] += 43_200
        with (tmp_path / "history.jsonl").open("a") as file:
            # As a run leaves it that is killed while it writes.
            file.write('{"tenant": "pub')
    grown = reports[1][2] - reports[0][2]
    assert grown > 20_000
    assert reports[0][5] == "one sample"
    assert reports[1][5] == pytest.approx(2 * grown, abs=1)
    assert reports[1][6] == pytest.approx((1e9 - reports[1][2]) / (2 * grown), rel=0.01)
