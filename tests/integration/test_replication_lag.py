"""The lag of replication as users see it, and the metrics that the alerts for replication read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from polling import until
from replicated_sites import Site, connect, make_namespace
from server import Server


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Server]) -> Iterator[tuple[Site[Server], Site[Server]]]:
    east, west = (
        Site(name, start_server(clusterName=name, backlogQuotaCheckIntervalInSeconds=1))
        for name in ("east", "west")
    )
    connect(east, west)
    yield east, west
    east.client.close()
    west.client.close()


def event(site: Site[Server], path: str) -> dict[str, Any]:
    """What the page is told first."""
    with urllib.request.urlopen(f"{site.server.http_url}/dashboard/events/{path}", timeout=30) as told:
        for text in told:
            if text.startswith(b"data:"):
                found: dict[str, Any] = json.loads(text.removeprefix(b"data:"))
                return found
    raise AssertionError("the broker told nothing")


def top(site: Site[Server], *arguments: str) -> str:
    environment = {**os.environ, "PULSAR_ADMIN_URL": site.server.http_url}
    environment.pop("PULSAR_CLIENT_CONF", None)
    command = [sys.executable, "-m", "magnetar", "top", "--once", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_top_and_the_page_show_how_far_a_cluster_is_behind(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    east.publish("public/default/local", ["stays"])
    assert "replication" not in top(east)
    assert event(east, "topic/persistent/public/default/local")["replication"] == []

    topic = f"{make_namespace('lag', *pair)}/t"
    east.publish(topic, ["arrives"])
    until(lambda: east.replication(topic, "west")["replicationBacklog"] == 0, "it has arrived")
    assert event(east, f"topic/persistent/{topic}")["replication"] == [
        {"cluster": "west", "connected": True, "lagSeconds": 0.0, "backlog": 0}
    ]

    west.server.stop()
    until(lambda: not east.replication(topic, "west")["connected"], "the cut is known")
    for _ in range(3):
        east.publish(topic, ["waits"])

    def lag() -> dict[str, Any]:
        # Each look opens a stream of events, which a busy broker may take a while to end.
        time.sleep(0.3)
        [found] = event(east, f"topic/persistent/{topic}")["replication"]
        return dict(found)

    until(lambda: lag()["lagSeconds"] > 0, "the lag grows")
    assert {**lag(), "lagSeconds": 0} == {
        "cluster": "west",
        "connected": False,
        "lagSeconds": 0,
        "backlog": 3,
    }
    lines = event(east, "topics?words=geo/lag/t")["topics"]
    assert [each["replication"][0]["backlog"] for each in lines] == [3]
    assert re.search(r"geo/lag/t +west \d+\.\d s, 3 \(disconnected\)", top(east))
    told = json.loads(top(east, "-o", "json"))
    by_name = {each["topic"]: each for each in told["topics"]}
    assert by_name[f"persistent://{topic}"]["replication"][0]["cluster"] == "west"
    assert "replication" not in by_name["persistent://public/default/local"]
    west.server.start()
    until(lambda: lag()["backlog"] == 0, "the rest has arrived")


def metric(site: Site[Server], name: str, topic: str) -> int:
    status, text = site.server.ask("GET", "/metrics")
    assert status == 200
    label = re.escape(f'topic="persistent://{topic}"')
    [found] = re.findall(rf"^{name}{{[^}}]*{label}[^}}]*}} (\d+)", text.decode(), re.MULTILINE)
    return int(found)


def cut(east: Site[Server], west: Site[Server], topic: str) -> None:
    """The west is not reached any more; it has all that came before."""
    east.publish(topic, ["before"])
    until(lambda: east.replication(topic, "west")["msgOutCount"] == 1, "it has arrived")
    until(lambda: east.replication(topic, "west")["replicationBacklog"] == 0, "it is confirmed")
    east.ask("POST", "/clusters/west", {"brokerServiceUrl": "pulsar://127.0.0.1:1"})
    until(lambda: not east.replication(topic, "west")["connected"], "the record counts")


def reached_again(east: Site[Server], west: Site[Server]) -> None:
    record = {"serviceUrl": west.server.http_url, "brokerServiceUrl": west.server.url}
    east.ask("POST", "/clusters/west", record)


def test_entries_that_expired_before_they_were_sent_are_counted(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    east, west = pair
    namespace = make_namespace("expired", *pair)
    topic = f"{namespace}/t"
    cut(east, west, topic)
    east.publish(topic, ["old"])
    assert metric(east, "pulsar_replication_disconnected_count", topic) == 1
    assert metric(east, "pulsar_replication_backlog", topic) == 1
    assert metric(east, "magnetar_replication_unreplicated_total", topic) == 0
    time.sleep(1.1)
    east.ask("POST", f"/namespaces/{namespace}/messageTTL", 1)
    reached_again(east, west)
    until(
        lambda: metric(east, "magnetar_replication_unreplicated_total", topic) == 1, "what expired is counted"
    )
    until(lambda: metric(east, "pulsar_replication_disconnected_count", topic) == 0, "it is connected")


def test_entries_that_a_backlog_quota_evicts_are_counted(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    namespace = make_namespace("evicted", *pair)
    topic = f"{namespace}/t"
    cut(east, west, topic)
    for _ in range(4):
        east.publish(topic, ["x" * 1000])
    east.ask(
        "POST",
        f"/namespaces/{namespace}/backlogQuota?backlogQuotaType=destination_storage",
        {"limitSize": 2000, "limitTime": -1, "policy": "consumer_backlog_eviction"},
    )
    until(lambda: metric(east, "magnetar_replication_unreplicated_total", topic) > 0, "eviction is counted")
    evicted = metric(east, "magnetar_replication_unreplicated_total", topic)
    assert metric(east, "pulsar_replication_backlog", topic) == 4 - evicted
    reached_again(east, west)
