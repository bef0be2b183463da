"""Compares compaction of a topic by key with Apache Pulsar: time, CPU, memory, and publishing meanwhile.

``python -m bench.topic_compaction`` prints figures as JSON. A run is reported as void unless a compacted
reader gets exactly the newest message of each key afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pulsar

from bench.beside import Figures, add_options, side_by_side
from bench.generators import Void, perf
from bench.servers import Server
from magnetar.admin_client import AdminClient, Conflict

TOPIC = "persistent://public/default/compacted"
LOOK_SECONDS = 0.05
_STEP = 7_919
"""Step between the keys of two messages: a prime, so that all keys occur, in another order."""


@dataclass
class Watch:
    """Records the peak memory of a server during a run."""

    server: Server
    most_mb: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.most_mb = max(self.most_mb, self.server.resident_mb())


def fill(server: Server, first: int, options: argparse.Namespace) -> None:
    """Publishes messages from number ``first``; a message's content begins with its number."""
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        TOPIC,
        batching_enabled=options.batch > 1,
        batching_max_messages=options.batch,
        max_pending_messages=10_000,
        block_if_queue_full=True,
    )
    rest = bytes(options.size - 8)
    keys = [f"key-{number}" for number in range(options.keys)]
    for number in range(first, first + options.messages):
        key = keys[number * _STEP % options.keys]
        producer.send_async(number.to_bytes(8, "big") + rest, None, partition_key=key)
    producer.flush()
    client.close()


def compact(server: Server) -> float:
    """Compacts; returns the seconds. :raises Void: it failed"""
    admin = AdminClient(server.admin_url)
    began = time.monotonic()
    admin.compact_topic(TOPIC)
    while (told := admin.compaction_status(TOPIC))["status"] == "RUNNING":
        time.sleep(LOOK_SECONDS)
    if told["status"] != "SUCCESS":
        raise Void(f"not compacted: {told}")
    return time.monotonic() - began


def check(server: Server, end: int, options: argparse.Namespace) -> None:
    """:raises Void: the compacted topic does not have exactly the newest message of each key"""
    newest = {f"key-{number * _STEP % options.keys}": number for number in range(end - options.keys, end)}
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, is_read_compacted=True)
    found: dict[str, int] = {}
    count = 0
    while reader.has_message_available():
        message = reader.read_next(30_000)
        if message.partition_key():
            count += 1
            found[message.partition_key()] = int.from_bytes(message.data()[:8], "big")
    client.close()
    if found != newest or count != len(newest):
        raise Void(f"{count} messages of {len(found)} keys instead of {len(newest)}")


def paced(server: Server, name: str, rate: int, seconds: float) -> Figures:
    """Returns latencies in ms of publishing to another topic on a fixed schedule."""
    flags = ("-s", "100", "-db", "-r", str(rate), "--acks-delay-millis", "100", "--warmup-time", "2")
    found = perf(server, "run", f"persistent://public/default/{name}", "-time", str(seconds), *flags)
    return {quantile: found["publish_latency_ms"][quantile] for quantile in ("p50", "p99")}


def compact_again(server: Server, ended: Callable[[], bool]) -> int:
    """Publishes a message and compacts, repeatedly until ``ended``; returns the number of compactions."""
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(TOPIC)
    runs = 0
    while not ended():
        producer.send(b"12345678", partition_key="again")
        try:
            compact(server)
        except Conflict:
            time.sleep(LOOK_SECONDS)
        runs += 1
    client.close()
    return runs


def beside(server: Server, options: argparse.Namespace) -> Figures:
    """Measures publishing alone, then during repeated compactions of the topic."""
    alone = paced(server, "alone", options.rate, options.seconds)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as one:
        runs = one.submit(compact_again, server, stop.is_set)
        try:
            busy = paced(server, "busy", options.rate, options.seconds)
        finally:
            stop.set()
        return {"alone, ms": alone, "compacting, ms": busy, "compactions": runs.result()}


def measure(server: Server, options: argparse.Namespace) -> Figures:
    """:raises Void: the compacted topic does not have exactly the newest message of each key"""
    AdminClient(server.admin_url).create_topic(TOPIC)
    # From here on, only compacted messages are trimmed.
    compact(server)
    fill(server, 0, options)
    before_mb, before = server.resident_mb(), server.cpu_seconds()
    with Watch(server) as watch:
        seconds = compact(server)
    found: Figures = {
        "seconds": round(seconds, 2),
        "cpu, s": round(server.cpu_seconds() - before, 2),
        "messages a second": round(options.messages / seconds),
        "memory before, MB": round(before_mb),
        "memory at most, MB": round(watch.most_mb),
    }
    check(server, options.messages, options)
    if options.seconds:
        found["publishing beside"] = beside(server, options)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=100, help="messages in a batch; 1: none")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message, 8 or more")
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second published beside it")
    parser.add_argument("--seconds", type=float, default=10, help="of publishing beside it; 0: none")
    add_options(parser)
    options = parser.parse_args()
    try:
        found = side_by_side(options, lambda server: measure(server, options))
    except Void as void:
        sys.stderr.write(f"void: {void}\n")
        return 1
    found |= {"messages": options.messages, "keys": options.keys, "batch": options.batch}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
