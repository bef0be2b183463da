"""The lag of replication as users see it: in ``magnetar top`` and in what the page is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from replicated_sites import Site, connect, make_namespace, until
from server import Server


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Server]) -> Iterator[tuple[Site[Server], Site[Server]]]:
    east, west = (Site(name, start_server(clusterName=name)) for name in ("east", "west"))
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
