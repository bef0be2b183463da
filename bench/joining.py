"""Adds a third broker to two, and measures how soon it carries its share and how many bundles move.

``python -m bench.joining`` prints JSON, figures of each run: Magnetar's brokers, then Apache Pulsar's. Each
of 48 topics in 24 bundles is published to at the same rate; load is shed once a minute by
``UniformLoadShedder``. The owners of bundles are read from ZooKeeper. The imbalance is the number of topics
of the fullest broker, as a multiple of the average.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cluster_servers import ClusterBroker, several, url_of
from bench.conditions import conditions
from bench.peer_jars import add_jars, chosen_jars
from magnetar.admin_client import AdminClient
from magnetar.client.aio import Client, Producer, Result
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore
from magnetar.naming.bundles import BundleRange
from magnetar.naming.hashes import bundle_hash

Figures = dict[str, Any]
_NAMESPACE = "public/joining"
_TOPICS, _BUNDLES = 48, 24
_RATE = 50
"""Messages per second to each topic."""
_SETTLED_SECONDS = 135.0
"""Time without a move, two rounds of shedding, after which the division is stable."""
_LONGEST_SECONDS = 600.0
_SETTINGS = {
    "loadBalancerSheddingIntervalMinutes": "1",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "loadBalancerReportUpdateThresholdPercentage": "1",
    "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "statsUpdateFrequencyInSecs": "5",
    "minUnloadMessage": "100",
    "maxUnloadPercentage": "0.5",
}


@dataclass
class Division:
    """The owners of bundles, polled from ZooKeeper."""

    store: ZooKeeperMetadataStore
    owners: dict[str, str] = field(default_factory=dict)
    """Addresses by the text of a bundle's range."""
    moves: list[float] = field(default_factory=list)
    """The times at which a bundle had a new owner."""

    async def look(self) -> None:
        path = f"/namespace/{_NAMESPACE}"
        for bundle in await self.store.children(path):
            node = await self.store.get(f"{path}/{bundle}")
            if node is None:
                continue
            owner = json.loads(node.value)["nativeUrl"]
            if self.owners.setdefault(bundle, owner) != owner:
                self.moves.append(time.monotonic())
                self.owners[bundle] = owner

    def imbalance(self, brokers: int) -> float:
        counts: Counter[str] = Counter()
        for number in range(_TOPICS):
            place = bundle_hash(topic(number))
            counts.update(
                owner for bundle, owner in self.owners.items() if place in BundleRange.parse(bundle)
            )
        return round(max(counts.values()) * brokers / _TOPICS, 2)


def topic(number: int) -> str:
    return f"persistent://{_NAMESPACE}/t{number}"


@dataclass
class Publishing:
    """Publishes to all topics at the same rate, without end."""

    producers: list[Producer]
    errors: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    """Number of messages that were not published because too many waited for receipts."""

    async def run(self) -> None:
        due = time.monotonic()
        while True:
            for producer in self.producers:
                if producer.pending_messages < 500:
                    producer.send_async(b"x" * 100, self._told)
                else:
                    self.skipped += 1
            due += 1 / _RATE
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _told(self, result: Result, _id: object) -> None:
        if result is not Result.Ok:
            self.errors[result.name] += 1


async def measured(brokers: list[ClusterBroker]) -> Figures:
    """:param brokers: the last one is not started yet"""
    *there, joining = brokers
    assert joining.bookkeeper is not None
    store = await joining.bookkeeper.session()
    client = Client(url_of(there), operation_timeout_seconds=60, max_backoff_interval_ms=500)
    made = [
        await client.create_producer(topic(number), batching_enabled=False, send_timeout_millis=0)
        for number in range(_TOPICS)
    ]
    publishing = Publishing([producer for producer in made if isinstance(producer, Producer)])
    work = asyncio.create_task(publishing.run())
    division = Division(store)
    try:
        # The first two report their load before the third one starts.
        await asyncio.sleep(30)
        await division.look()
        before = division.imbalance(len(brokers))
        division.moves.clear()
        await asyncio.to_thread(joining.start)
        joined = time.monotonic()
        end = joined + _SETTLED_SECONDS
        while time.monotonic() < min(end, joined + _LONGEST_SECONDS):
            await division.look()
            if division.moves:
                end = division.moves[-1] + _SETTLED_SECONDS
            await asyncio.sleep(0.5)
        return {
            "imbalance_before": before,
            "imbalance_after": division.imbalance(len(brokers)),
            "moves": len(division.moves),
            "first_move_seconds": round(division.moves[0] - joined, 1) if division.moves else None,
            "last_move_seconds": round(division.moves[-1] - joined, 1) if division.moves else None,
            "errors": dict(publishing.errors),
            "skipped": publishing.skipped,
        }
    finally:
        work.cancel()
        await asyncio.wait([asyncio.ensure_future(client.close())], timeout=20)
        await store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", default="magnetar,pulsar")
    add_jars(parser)
    options = parser.parse_args()
    jars = chosen_jars(options)
    found: Figures = {
        **conditions(),
        "runs": [],
    }
    for name in options.servers.split(","):
        with (
            tempfile.TemporaryDirectory(prefix="joining-bench-") as folder,
            several(name, Path(folder), jars, 3, _SETTINGS, started=2) as brokers,
        ):
            policies = {"bundles": {"numBundles": _BUNDLES}}
            AdminClient(brokers[0].admin_url).create_namespace(_NAMESPACE, policies)
            found["runs"].append({"server": name, **asyncio.run(measured(brokers))})
        sys.stderr.write(f"{found['runs'][-1]}\n")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
