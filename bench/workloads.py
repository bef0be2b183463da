"""The measured workloads, and their rows of the report.

A new workload is a function from a :class:`Bench` and a server to figures, with its rows, in ``WORKLOADS``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.generators import JavaPerf, Void, perf, python_client, start_perf
from bench.others import Other
from bench.process import end
from bench.servers import Server
from magnetar.admin_client import AdminClient

Figures = dict[str, float]
_LATENCIES = ("publish", "end_to_end")


@dataclass
class Bench:
    """The common objects of workloads."""

    seconds: float
    java: JavaPerf | None
    count: int = 0

    def topic(self, domain: str = "persistent") -> str:
        self.count += 1
        return f"{domain}://public/default/bench-{self.count}"


@dataclass(frozen=True)
class Row:
    """A line of the report.

    :ivar figure: a key of the workload's figures
    :ivar less: whether less is better
    :ivar ratio: the target: Magnetar's figure over the peer's, at most or at least
    :ivar beside: other groups of servers, each with its own target
    :ivar bound: the target as an upper limit of Magnetar's figure
    """

    title: str
    figure: str
    unit: str
    less: bool
    ratio: float | None = None
    beside: tuple[tuple[str, float], ...] = ()
    bound: float | None = None
    digits: int = 1


@dataclass(frozen=True)
class Workload:
    """:ivar servers: names of its servers; empty: all

    :ivar most_rounds: limit of rounds, for a slow workload
    """

    name: str
    title: str
    measure: Callable[[Bench, Server], Figures]
    rows: tuple[Row, ...]
    servers: tuple[str, ...] = ()
    most_rounds: int = 1000


def _flat(found: dict[str, Any]) -> Figures:
    """Returns only the figures of ``pulsar-perf``."""
    names = ("publish_rate", "deliver_rate", "own_cpu_us_per_message", "own_cores")
    flat = {name: float(found[name]) for name in names}
    for name in ("server_cpu_us_per_message", "server_cores", "server_rss_mb"):
        flat[name] = float(found[name])
    for kind in _LATENCIES:
        for quantile, value in (found[f"{kind}_latency_ms"] or {}).items():
            flat[f"{kind}_{quantile}"] = float(value)
    return flat


def _run(*flags: str, tls: bool = False) -> Callable[[Bench, Server], Figures]:
    def measure(bench: Bench, server: Server) -> Figures:
        if isinstance(server, Other):
            return (server.paced if "-r" in flags else server.as_fast_as_it_goes)(bench.seconds)
        duration = ("-time", str(bench.seconds), "--warmup-time", "2")
        return _flat(perf(server, "run", bench.topic(), *duration, *flags, tls=tls))

    return measure


def _java(*flags: str) -> Callable[[Bench, Server], Figures]:
    def measure(bench: Bench, server: Server) -> Figures:
        if bench.java is None:
            raise Void("there is no Java here")
        return bench.java.run(server, bench.topic(), bench.seconds * 2, *flags)

    return measure


_PASSING = "non-persistent"


def _lost(figures: Figures, lost: float, sent: float) -> Figures:
    return {**figures, "lost_percent": lost / max(1.0, sent) * 100}


def _run_non_persistent(*flags: str) -> Callable[[Bench, Server], Figures]:
    """Returns a run on a non-persistent topic, with lost messages as a figure."""

    def measure(bench: Bench, server: Server) -> Figures:
        duration = ("-time", str(bench.seconds), "--warmup-time", "2")
        found = perf(server, "run", bench.topic(_PASSING), *duration, *flags)
        return _lost(_flat(found), found["lost"], found["published"])

    return measure


def _java_non_persistent(*flags: str) -> Callable[[Bench, Server], Figures]:
    def measure(bench: Bench, server: Server) -> Figures:
        if bench.java is None:
            raise Void("there is no Java here")
        found = bench.java.run(server, bench.topic(_PASSING), bench.seconds * 2, *flags, lossy=True)
        return _lost(found, found["lost"], found["messages"])

    return measure


def _python(bench: Bench, server: Server) -> Figures:
    return python_client(server, "e2e", "--messages", str(int(20_000 * bench.seconds)))


def _many_topics(bench: Bench, server: Server) -> Figures:
    return python_client(server, "topics", "--messages", "1000")


def _delete(server: Server, topics: list[str]) -> None:
    admin = AdminClient(server.admin_url)
    for topic in topics:
        admin.delete_topic(topic, force=True)


def _catch_up(bench: Bench, server: Server) -> Figures:
    topic = bench.topic()
    count = str(int(60_000 * bench.seconds))
    perf(server, "produce", topic, "-m", count, "-r", "0", "-s", "100", "-db", "--warmup-time", "0")
    flags = ("-sp", "Earliest", "-m", count, "-q", "10000")
    found = perf(server, "consume", topic, *flags)
    _delete(server, [topic])
    return _flat(found)


_TOPICS = 1000
_CAUGHT_UP = 100


def _catch_up_among_many(bench: Bench, server: Server) -> Figures:
    """Reads 100 of 1,000 topics from their beginning during publishing to all of them.

    Reading a single topic would be too short to measure.
    """
    prefix = bench.topic()
    each = int(100 * bench.seconds)
    all_topics = ("-t", str(_TOPICS), "-s", "1024", "-db", "-c", "4")
    # Few messages in flight for each topic, so that all get their share.
    unhurried = ("-r", "0", "-o", "20", "--warmup-time", "0")
    perf(server, "produce", prefix, *all_topics, "-m", str(each * _TOPICS), *unhurried)
    writer = start_perf(server, "produce", prefix, *all_topics, "-r", "5000", "-time", "600")
    try:
        time.sleep(3)
        flags = ("-t", str(_CAUGHT_UP), "-sp", "Earliest", "-m", str(each * _CAUGHT_UP), "-q", "1000")
        found = perf(server, "consume", prefix, *flags)
    finally:
        end(writer)
    _delete(server, [f"{prefix}-{number}" for number in range(_TOPICS)])
    return _flat(found)


def _idle(bench: Bench, server: Server) -> Figures:
    """Returns memory and processor time of an idle server."""
    before, began = server.cpu_seconds(), time.monotonic()
    time.sleep(max(10.0, 3 * bench.seconds))
    cores = (server.cpu_seconds() - before) / (time.monotonic() - began)
    return {"idle_cores": cores, "idle_rss_mb": server.resident_mb()}


def _start_again(bench: Bench, server: Server) -> Figures:
    server.stop()
    return {"start_seconds": server.start()}


_CPU = "server_cpu_us_per_message"
_US = "µs per message"
_COMPILED = ("magnetar", "pulsar", "pulsar-small")

_FULL_SPEED = (
    Row("server CPU", _CPU, _US, less=True, ratio=1 / 4, digits=2),
    Row(
        "throughput",
        "deliver_rate",
        "msg/s",
        less=False,
        ratio=4.0,
        digits=0,
        beside=(("redis", 1.5),),
    ),
    Row("memory under this work", "server_rss_mb", "MB", less=True, bound=250),
    Row("the generator's own CPU", "own_cpu_us_per_message", _US, less=True, digits=2),
)

_LOST = Row("lost", "lost_percent", "%", less=True, bound=0.0, digits=3)

_MANY_CONSUMERS = (
    Row("server CPU", _CPU, _US, less=True, digits=2),
    Row("throughput", "deliver_rate", "msg/s", less=False, digits=0),
)

WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "idle",
        "Idle",
        _idle,
        (
            Row("memory, idle", "idle_rss_mb", "MB", less=True, bound=60),
            Row("CPU, idle", "idle_cores", "cores", less=True, bound=0.002, digits=4),
        ),
        _COMPILED,
    ),
    Workload(
        "unbatched-one",
        "100 B, unbatched: published by one producer, delivered and acknowledged, as fast as it goes",
        _run("-s", "100", "-db"),
        _FULL_SPEED,
    ),
    Workload(
        "unbatched",
        "The same with four producers on connections of their own, and a queue of 10,000 messages",
        _run("-s", "100", "-db", "-n", "4", "-c", "4", "-q", "10000"),
        _FULL_SPEED,
    ),
    Workload(
        "shared-twenty",
        "100 B, unbatched, to twenty consumers of a Shared subscription",
        _run("-s", "100", "-db", "-st", "Shared", "--num-consumers", "20", "-q", "10000"),
        _MANY_CONSUMERS,
        _COMPILED,
    ),
    Workload(
        "key-shared-twenty",
        "The same with a Key_Shared subscription, each message with a key of its own",
        _run("-s", "100", "-db", "-st", "Key_Shared", "--num-consumers", "20", "-q", "10000"),
        _MANY_CONSUMERS,
        _COMPILED,
    ),
    Workload(
        "unbatched-java",
        "100 B, unbatched, with Pulsar's own Java pulsar-perf",
        _java("-s", "100", "-db"),
        (Row("server CPU", _CPU, _US, less=True, ratio=1 / 2, digits=2),),
        _COMPILED,
        most_rounds=2,
    ),
    Workload(
        "batched-java",
        "100 B, batched, with Pulsar's own Java pulsar-perf",
        _java("-s", "100"),
        (Row("server CPU", _CPU, _US, less=True, ratio=1 / 3, digits=3),),
        _COMPILED,
        most_rounds=2,
    ),
    Workload(
        "python-client",
        "100 B, unbatched, with the official Python client",
        _python,
        (
            Row("server CPU", _CPU, _US, less=True, digits=2),
            Row("throughput (limited by the client)", "deliver_rate", "msg/s", less=False, digits=0),
        ),
        _COMPILED,
    ),
    Workload(
        "batched",
        "100 B, batched, as fast as it goes",
        _run("-s", "100", "-q", "10000"),
        (
            Row("server CPU", _CPU, _US, less=True, digits=3),
            Row("throughput", "deliver_rate", "msg/s", less=False, digits=0),
        ),
        _COMPILED,
    ),
    Workload(
        "1k-unbatched",
        "1 KB, unbatched",
        _run("-s", "1024", "-db", "-q", "10000"),
        (Row("server CPU", _CPU, _US, less=True, ratio=1 / 4, digits=2),),
        _COMPILED,
    ),
    Workload(
        "1k-batched",
        "1 KB, batched",
        _run("-s", "1024", "-q", "10000"),
        (Row("server CPU", _CPU, _US, less=True, ratio=1 / 3, digits=2),),
        _COMPILED,
    ),
    *(
        Workload(
            f"tls-{name}",
            f"{title}, through TLS",
            _run("-s", size, "-q", "10000", *batching, tls=True),
            (
                Row("server CPU", _CPU, _US, less=True, ratio=1 / 3, digits=3),
                Row("throughput", "deliver_rate", "msg/s", less=False, digits=0),
            ),
            _COMPILED,
        )
        for name, title, size, batching in (
            ("unbatched", "100 B, unbatched", "100", ("-db",)),
            ("batched", "100 B, batched", "100", ()),
            ("1k-unbatched", "1 KB, unbatched", "1024", ("-db",)),
            ("1k-batched", "1 KB, batched", "1024", ()),
        )
    ),
    Workload(
        "tls-paced",
        "100 B, unbatched, 1,000 msg/s on a fixed schedule, through TLS",
        _run("-s", "100", "-db", "-r", "1000", "--acks-delay-millis", "100", tls=True),
        (
            Row("publish, p50", "publish_p50", "ms", less=True, digits=2),
            Row("publish, p99", "publish_p99", "ms", less=True, digits=2),
            Row("end to end, p50", "end_to_end_p50", "ms", less=True, digits=2),
            Row("end to end, p99", "end_to_end_p99", "ms", less=True, digits=2),
            Row("server CPU", "server_cores", "cores", less=True, ratio=1 / 3, digits=3),
        ),
        _COMPILED,
    ),
    Workload(
        "paced",
        "100 B, unbatched, 1,000 msg/s on a fixed schedule",
        _run("-s", "100", "-db", "-r", "1000", "--acks-delay-millis", "100"),
        (
            Row("publish, p50", "publish_p50", "ms", less=True, bound=0.45, digits=2),
            Row("publish, p99", "publish_p99", "ms", less=True, bound=2.0, digits=2),
            Row("end to end, p50", "end_to_end_p50", "ms", less=True, bound=0.6, digits=2),
            Row("end to end, p99", "end_to_end_p99", "ms", less=True, bound=2.5, digits=2),
            Row("server CPU", "server_cores", "cores", less=True, bound=0.12, digits=3),
            Row("server CPU, publishing alone", "publish_only_cores", "cores", less=True, digits=3),
        ),
        ("magnetar", "pulsar", "pulsar-small", "pulsar-no-delay", "redis", "nats"),
    ),
    Workload(
        "non-persistent",
        "100 B, unbatched, on a non-persistent topic, with a queue of 10,000 messages",
        _run_non_persistent("-s", "100", "-db", "-q", "10000"),
        (
            Row("server CPU", _CPU, _US, less=True, ratio=1 / 2, digits=2),
            Row("throughput", "deliver_rate", "msg/s", less=False, digits=0),
            _LOST,
        ),
        _COMPILED,
    ),
    Workload(
        "non-persistent-java",
        "The same with Pulsar's own Java pulsar-perf at 100,000 msg/s",
        _java_non_persistent("-s", "100", "-db", "-r", "100000"),
        (Row("server CPU", _CPU, _US, less=True, ratio=1 / 2, digits=2), _LOST),
        _COMPILED,
        most_rounds=2,
    ),
    Workload(
        "non-persistent-paced",
        "100 B, unbatched, 1,000 msg/s on a fixed schedule, on a non-persistent topic",
        _run_non_persistent("-s", "100", "-db", "-r", "1000", "--acks-delay-millis", "100"),
        (
            Row("publish, p99", "publish_p99", "ms", less=True, digits=2),
            Row("end to end, p50", "end_to_end_p50", "ms", less=True, digits=2),
            Row("end to end, p99", "end_to_end_p99", "ms", less=True, bound=1.0, digits=2),
            Row("server CPU", "server_cores", "cores", less=True, digits=3),
            _LOST,
        ),
        _COMPILED,
    ),
    Workload(
        "blocking",
        "100 B, one blocking send at a time",
        _run("-s", "100", "-db", "-o", "1"),
        (Row("sends", "publish_rate", "msg/s", less=False, ratio=3.0, digits=0),),
        _COMPILED,
    ),
    Workload(
        "catch-up",
        "Catch-up read of a backlog of 100 B unbatched",
        _catch_up,
        (
            Row("server CPU", _CPU, _US, less=True, ratio=1 / 5, digits=2),
            Row("read", "deliver_rate", "msg/s", less=False, digits=0),
        ),
        _COMPILED,
    ),
    Workload(
        "catch-up-among-many",
        "Catch-up read of 100 of 1,000 topics, while messages of 1 KB are published to all of them",
        _catch_up_among_many,
        (Row("read", "deliver_rate", "msg/s", less=False, ratio=2.0, digits=0),),
        _COMPILED,
        most_rounds=2,
    ),
    Workload(
        "fan-out",
        "5 subscriptions on one topic, 100 B unbatched",
        _run("-s", "100", "-db", "-ns", "5", "-q", "10000"),
        (Row("messages out", "deliver_rate", "msg/s", less=False, ratio=3.0, digits=0),),
        _COMPILED,
    ),
    Workload(
        "many-topics",
        "1,000 topics, a producer created on each, 16 at the same time (official Python client)",
        _many_topics,
        (Row("topics", "topics_per_second", "topics/s", less=False, ratio=3.0, digits=0),),
        _COMPILED,
    ),
    Workload(
        "start-again",
        "Start until the broker serves, with the data of all measurements above",
        _start_again,
        (Row("start", "start_seconds", "s", less=True, bound=0.5, digits=2),),
        _COMPILED,
    ),
)
