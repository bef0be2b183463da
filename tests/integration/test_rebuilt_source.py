"""A topic that was made again in its cluster with lower ledger ids, while the other cluster deduplicates."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from polling import until
from replicated_sites import Site, connect, make_namespace, nothing_more, received
from server import Server


@pytest.fixture
def pair(start_server: Callable[..., Server]) -> Iterator[tuple[Site[Server], Site[Server]]]:
    east, west = (
        Site("east", start_server(clusterName="east")),
        Site("west", start_server(clusterName="west")),
    )
    yield east, west
    east.client.close()
    west.client.close()


def explained(site: Site[Server], topic: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(site.ask("GET", f"/persistent/{topic}/explain"))
    return found


def run(site: Site[Server], command: str) -> None:
    program, *arguments = shlex.split(command)
    path = Path(sys.executable).with_name(program)
    done = subprocess.run(
        [path, "--admin-url", site.server.http_url, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def rebuild(east: Site[Server], west: Site[Server]) -> None:
    """Has the east begin again without data."""
    east.client.close()
    east.server.stop()
    shutil.rmtree(east.server.folder / "data")
    east.server.start()
    east.client = pulsar.Client(east.server.url)
    record = {"serviceUrl": west.server.http_url, "brokerServiceUrl": west.server.url}
    east.ask("PUT", "/clusters/west", record)
    east.ask("PUT", "/tenants/geo", {"allowedClusters": ["east", "west"]})
    make_namespace("rebuilt", east, clusters=["east", "west"])


def test_a_source_that_was_rebuilt_stops_until_its_positions_are_forgotten(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    east, west = pair
    for number in range(5):
        east.publish(f"public/default/other-{number}", ["takes a ledger id"])
    connect(east, west)
    topic = f"{make_namespace('rebuilt', east, west)}/t"
    west.ask("POST", "/namespaces/geo/rebuilt/deduplication", True)
    there = west.subscribe(topic)
    east.publish(topic, ["1", "2", "3"])
    received(there, 3)
    rebuild(east, west)
    east.publish(topic, ["4", "5"])

    def told() -> bool:
        return "pulsar-admin topicPolicies" in east.replication(topic, "west").get("magnetarHindrance", "")

    until(told, "the source knows that its messages are dropped")
    here = explained(east, topic)["replication"]["west"]
    forget = f"pulsar-admin topicPolicies set-deduplication --disable persistent://{topic}"
    assert here["reason"] == "not_replicated"
    assert forget in here["sentence"]
    assert "2 entries wait" in here["sentence"]
    until(lambda: "replicatedFrom" in explained(west, topic), "the other cluster says it as well")
    from_east = explained(west, topic)["replicatedFrom"]["east"]
    assert from_east["reason"] == "duplicates"
    assert from_east["try"] == forget
    assert nothing_more(there)
    # Entries go one by one now, and the cursor stays before the first.
    assert east.replication(topic, "west")["replicationBacklog"] == 2
    warnings = [line for line in east.server.log.splitlines() if "topicPolicies set-deduplication" in line]
    assert len(warnings) == 1, warnings
    run(west, forget)
    run(west, forget.replace("--disable", "--enable"))
    assert [message.data() for message in received(there, 2)] == [b"4", b"5"]
    until(lambda: not east.replication(topic, "west")["replicationBacklog"], "all is confirmed")
    assert explained(east, topic)["replication"]["west"]["reason"] == "at_end"
    assert "replicatedFrom" not in explained(west, topic)
    east.publish(topic, [str(number) for number in range(100)])
    assert [message.data() for message in received(there, 100)] == [b"%d" % number for number in range(100)]
    assert nothing_more(there)
