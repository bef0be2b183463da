"""``mirror-verify`` over two brokers that replicate a namespace to each other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from polling import until
from pyspark.sql import SparkSession
from replicated_sites import Site, connect, make_namespace
from server import Server

from magnetar.spark.pipelines.run import run_pipeline

Pair = tuple[Site[Server], Site[Server]]
Compare = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    servers = []
    for name in ("east", "west"):
        (tmp_path / name).mkdir()
        settings = {"managedLedgerMaxEntriesPerLedger": 5, "magnetarMinLedgerRolloverSeconds": 0}
        servers.append(Server(tmp_path / name, {"clusterName": name, **settings}))
    try:
        for server in servers:
            server.start()
        east, west = Site("east", servers[0]), Site("west", servers[1])
        connect(east, west)
        yield east, west
        east.client.close()
        west.client.close()
    finally:
        for server in servers:
            server.close()


@pytest.fixture
def compare(spark: SparkSession, pair: Pair, tmp_path: Path) -> Compare:
    """Compares a namespace of both clusters; exit code and report."""
    assert spark is not None
    east, west = (site.server for site in pair)

    def do(name: str, **more: Any) -> tuple[int, dict[str, Any]]:
        own = {"left": name, "right": name, "left_name": "east", "right_name": "west", "order": True}
        own |= {"right_service_url": west.url, "right_admin_url": west.http_url, **more}
        sections = {
            "cluster": {"service_url": east.url, "admin_url": east.http_url},
            "spark": {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "2"}},
            "mirror_verify": own,
        }
        config = tmp_path / "config.json"
        config.write_text(json.dumps(sections))
        code = run_pipeline("mirror-verify", config, quiet=True)
        return code, json.loads(sorted((tmp_path / "reports").glob("*.json"))[-1].read_text())

    return do


def count(site: Site[Server], topic: str) -> int:
    found: int = site.internal(topic)["numberOfEntries"]
    return found


def is_replicated(east: Site[Server], west: Site[Server], topic: str) -> bool:
    """Whether both have the same and know that."""
    if count(east, topic) != count(west, topic):
        return False
    backlogs = (east.replication(topic, "west"), west.replication(topic, "east"))
    return not any(each["replicationBacklog"] for each in backlogs)


def ranges(report: dict[str, Any]) -> set[tuple[str, ...]]:
    """Kind, side, topic and number of messages of each range."""
    (rows,) = (each["rows"] for each in report["tables"] if each["title"].startswith("Ranges"))
    return {(row[0], row[1], row[2].rpartition("/")[2], row[4]) for row in rows}


def test_what_replication_has_not_done_yet_is_told_apart_from_what_is_missing(
    pair: Pair, compare: Compare
) -> None:
    east, west = pair
    name = make_namespace("mirror", east, west)
    east.ask("PUT", f"/persistent/{name}/parts/partitions", 2)
    for site in pair:
        for topic in ("plain", "parts", "old"):
            site.subscribe(f"{name}/{topic}", "keep").close()
    east.publish(f"{name}/plain", [f"e{n}" for n in range(20)], properties={"k": "v"}, partition_key="key")
    west.publish(f"{name}/plain", [f"w{n}" for n in range(10)])
    east.publish(f"{name}/old", [str(n) for n in range(20)])
    producer = east.client.create_producer(f"persistent://{name}/parts", batching_enabled=True)
    for number in range(40):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    producer.close()
    topics = ("plain", "old", "parts-partition-0", "parts-partition-1")
    until(lambda: all(is_replicated(east, west, f"{name}/{topic}") for topic in topics), "all is replicated")
    code, report = compare(name)
    assert code == 0, report
    assert (report["figures"]["messages left"], report["figures"]["messages right"]) == (90, 90)

    # Kept from the west by its producer; then on its way while the west cannot be reached.
    east.publish(f"{name}/plain", ["stays"], disable_replication=True)
    until(
        lambda: not east.replication(f"{name}/plain", "west")["replicationBacklog"], "the message is skipped"
    )
    nowhere = {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"}
    east.ask("POST", "/clusters/west", nowhere)
    until(lambda: not east.replication(f"{name}/plain", "west")["connected"], "the link is cut")
    east.publish(f"{name}/plain", ["late 1", "late 2", "late 3"])
    # The west deletes what its only subscription has read.
    west.ask("POST", f"/persistent/{name}/old/subscription/keep/skip_all")
    west.ask("POST", f"/persistent/{name}/old/trim")
    until(lambda: count(west, f"{name}/old") < 20, "ledgers are trimmed")
    gone = 20 - count(west, f"{name}/old")
    code, report = compare(name)
    figures = report["figures"]
    assert code == 3
    assert (figures["filtered right"], figures["in flight right"]) == (1, 3)
    assert (figures["missing right"], figures["too many right"], figures["order breaks"]) == (gone, 0, 0)
    wanted = {("filtered", "right", "plain", 1), ("in flight", "right", "plain", 3)}
    assert ranges(report) == {*wanted, ("missing", "right", "old", gone)}

    west.ask("POST", f"/namespaces/{name}/messageTTL", 1)
    time.sleep(1.1)
    code, report = compare(name)
    assert (code, report["figures"]["expired right"], report["figures"]["missing right"]) == (0, gone, 0)
    assert ranges(report) == {*wanted, ("expired", "right", "old", gone)}
    topic = f"persistent://{name}/plain"
    code, report = compare(topic, right_name="")
    assert (code, report["figures"]["missing right"]) == (0, 0), "all is older than its time to live"
