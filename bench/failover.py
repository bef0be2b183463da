"""Kills one broker of three, and measures how long its topics accept no messages.

``python -m bench.failover`` prints JSON, figures of each run: Magnetar's brokers, then Apache Pulsar's, three
of each on their own ZooKeeper and three bookies. Each topic has a producer, which publishes one message after
the broker was killed. The time runs from the removal of the broker's record in ZooKeeper, when its session
has expired, until the topics that it served have answered with receipts. Clients retry after at most
``--back-off`` seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.cluster_servers import ClusterBroker, several, url_of
from bench.conditions import conditions
from bench.peer_jars import add_jars, chosen_jars
from bench.servers import ServerFailed
from magnetar.admin_client import AdminClient
from magnetar.cli.perf.measure import cpu_seconds
from magnetar.client.aio import Client, Producer
from magnetar.metadata.interface import Change, ChangeKind

Figures = dict[str, Any]
_BROKERS = 3
_SESSION_MS = 6000
_RECORDS = "/loadbalance/brokers"
_NAMESPACE = "public/failover"
_TOGETHER = 50
"""Producers that are created concurrently."""
_PATIENCE = 300.0


@dataclass
class Departures:
    """The times at which records of brokers disappeared, from a separate ZooKeeper session."""

    gone: dict[str, float] = field(default_factory=dict)

    def changed(self, change: Change) -> None:
        if change.kind is ChangeKind.DELETED:
            self.gone.setdefault(change.path.rpartition("/")[2], time.monotonic())


async def until(true: Callable[[], bool], what: str) -> None:
    """:raises ServerFailed: the condition did not become true in time"""
    deadline = time.monotonic() + _PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise ServerFailed(what)
        await asyncio.sleep(0.01)


async def opened(client: Client, topics: int) -> list[Producer]:
    """Returns a producer for each topic, after publishing with each."""
    room = asyncio.Semaphore(_TOGETHER)

    async def one(number: int) -> Producer:
        async with room:
            producer = await client.create_producer(
                f"persistent://{_NAMESPACE}/t{number}", batching_enabled=False, send_timeout_millis=0
            )
            assert isinstance(producer, Producer)
            await producer.send(b"before")
            return producer

    return list(await asyncio.gather(*(one(number) for number in range(topics))))


async def measured(brokers: list[ClusterBroker], topics: int, back_off: float) -> Figures:
    bookkeeper = brokers[0].bookkeeper
    assert bookkeeper is not None
    store = await bookkeeper.session()
    departures = Departures()
    store.listen(_RECORDS, departures.changed)
    client = Client(
        url_of(brokers),
        operation_timeout_seconds=120,
        connections_per_broker=2,
        max_backoff_interval_ms=back_off * 1000,
    )
    try:
        began = time.monotonic()
        producers = await opened(client, topics)
        figures: Figures = {"topics": topics, "opened_seconds": round(time.monotonic() - began, 1)}
        return figures | await _killed(brokers, producers, departures)
    finally:
        # Bounded, because the client cannot close its producers at a killed broker.
        await asyncio.wait([asyncio.ensure_future(client.close())], timeout=20)
        await store.close()


async def _killed(brokers: list[ClusterBroker], producers: list[Producer], departures: Departures) -> Figures:
    lost_broker, *others = brokers
    receipts: dict[int, float] = {}
    problems: Counter[str] = Counter()

    def told(number: int, result: Any, _id: object) -> None:
        receipts[number] = time.monotonic()
        if result.name != "Ok":
            problems[result.name] += 1

    assert lost_broker.process is not None
    lost_broker.process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    lost_broker.process.wait()
    await asyncio.sleep(1.0)
    lost = [number for number, producer in enumerate(producers) if not producer.is_connected()]
    for number in lost:
        producers[number].send_async(b"after", partial(told, number))
    record = f"127.0.0.1:{lost_broker.http_port}"
    await until(lambda: record in departures.gone, "the session of the killed broker does not expire")
    expired = departures.gone[record]
    before = [cpu_seconds(broker.pids()) for broker in others]
    bookies = others[0].bookkeeper
    assert bookies is not None
    zookeeper = [bookies.processes["zookeeper"].pid]
    bookies_before, zookeeper_before, own_before = (
        bookies.cpu_seconds(),
        cpu_seconds(zookeeper),
        time.process_time(),
    )
    await until(lambda: len(receipts) == len(lost), f"{len(lost)} topics are lost")
    used = [cpu_seconds(broker.pids()) - then for broker, then in zip(others, before, strict=True)]
    if problems:
        raise ServerFailed(f"{problems}")
    waits = sorted(at - expired for at in receipts.values())
    return {
        "lost_topics": len(lost),
        "expiry_after_kill_seconds": round(expired - killed, 2),
        "first_receipt_seconds": round(waits[0], 2),
        "half_of_receipts_seconds": round(waits[len(waits) // 2], 2),
        "last_receipt_seconds": round(waits[-1], 2),
        "brokers_cpu_seconds": round(sum(used), 2),
        "bookies_cpu_seconds": round(bookies.cpu_seconds() - bookies_before, 2),
        "zookeeper_cpu_seconds": round(cpu_seconds(zookeeper) - zookeeper_before, 2),
        "client_cpu_seconds": round(time.process_time() - own_before, 2),
    }


def run(name: str, folder: Path, jars: Path, options: argparse.Namespace) -> Figures:
    settings = {"metadataStoreSessionTimeoutMillis": str(_SESSION_MS)}
    with several(name, folder, jars, _BROKERS, settings) as brokers:
        policies = {"bundles": {"numBundles": options.bundles}}
        AdminClient(brokers[0].admin_url).create_namespace(_NAMESPACE, policies)
        return asyncio.run(measured(brokers, options.topics, options.back_off))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--bundles", type=int, default=48)
    parser.add_argument("--back-off", type=float, default=0.5, help="of clients, the longest, in seconds")
    parser.add_argument("--servers", default="magnetar,pulsar")
    parser.add_argument("--rounds", type=int, default=1)
    add_jars(parser)
    parser.add_argument("--keep", type=Path, help="a folder for logs and data, which are removed otherwise")
    options = parser.parse_args()
    jars = chosen_jars(options)
    found: Figures = {
        **conditions(),
        "session_seconds": _SESSION_MS / 1000,
        "back_off_seconds": options.back_off,
        "runs": [],
    }
    for number in range(options.rounds):
        for name in options.servers.split(","):
            folder = Path(tempfile.mkdtemp(prefix="failover-bench-", dir=options.keep))
            try:
                figures = run(name, folder, jars, options)
            finally:
                if options.keep is None:
                    shutil.rmtree(folder, ignore_errors=True)
            found["runs"].append({"server": name, "round": number + 1, **figures})
            sys.stderr.write(f"{found['runs'][-1]}\n")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
