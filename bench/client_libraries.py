"""Measures Python client libraries against each other, with the same programs on the same broker.

    python -m bench.client_libraries [--rounds 3] [--only NAME,...] [--size 100,1024]

The libraries are the official ``pulsar-client``, ``magnetar.pulsar`` with the same interface, and
``magnetar.client`` where its interface is another one. Each run is a process of its own against a standalone
broker with default settings, and the libraries take turns within each round. Processor time is that of the
client's process with all its threads. ``docs/measurements/client-libraries.md`` has the results, which are
printed as a table here.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.conditions import conditions
from bench.generators import Void
from bench.servers import Magnetar

OFFICIAL = "pulsar"
FACADE = "magnetar.pulsar"
OWN = "magnetar.client"
_WINDOW = 1000
"""Messages in flight in asyncio programs."""
_RATE = 1000
"""Messages per second of the latency row."""
_KEPT: list[str] = []


@dataclass(frozen=True)
class Row:
    """One program; ``libraries`` are those that can run it."""

    name: str
    title: str
    run: Callable[..., dict[str, float]]
    libraries: Sequence[str]
    messages: int
    batched: bool = True


def _quiet(pulsar: Any) -> Any:
    return pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def _measured(messages: int, work: Callable[[], None]) -> dict[str, float]:
    began, before = time.perf_counter(), time.process_time()
    work()
    took, spent = time.perf_counter() - began, time.process_time() - before
    return {"rate": messages / took, "cpu_us": spent / messages * 1e6}


def _client(library: str, url: str) -> Any:
    pulsar = importlib.import_module(library)
    return pulsar.Client(url, logger=_quiet(pulsar))


# Publishing


def send(library: str, url: str, topic: str, count: int, size: int, batched: bool) -> dict[str, float]:
    """One message after the other, each awaited."""
    client = _client(library, url)
    producer = client.create_producer(topic, batching_enabled=batched)
    content = b"x" * size

    def work() -> None:
        for _ in range(count):
            producer.send(content)

    _measured(count // 10, lambda: [producer.send(content) for _ in range(count // 10)] and None)
    found = _measured(count, work)
    client.close()
    return found


def send_async(library: str, url: str, topic: str, count: int, size: int, batched: bool) -> dict[str, float]:
    """Callbacks: as fast as the producer's queue takes messages."""
    client = _client(library, url)
    pulsar = importlib.import_module(library)
    producer = client.create_producer(
        topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=5_000
    )
    content = b"x" * size
    failed: list[str] = []
    done = [0]

    def acknowledged(result: Any, _message_id: Any) -> None:
        done[0] += 1
        if result != pulsar.Result.Ok:
            failed.append(str(result))

    def work(messages: int = count) -> None:
        for _ in range(messages):
            producer.send_async(content, acknowledged)
        producer.flush()

    work(count // 5)
    found = _measured(count, work)
    client.close()
    if failed or done[0] != count + count // 5:
        raise Void(f"{done[0]} callbacks, failures: {failed[:3]}")
    return found


def latency(library: str, url: str, topic: str, count: int, size: int, batched: bool) -> dict[str, float]:
    """Callbacks at a fixed rate: the latency of a publish, and processor time."""
    client = _client(library, url)
    producer = client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=1)
    content = b"x" * size
    taken: list[float] = []

    def work() -> None:
        start = time.perf_counter() + 0.01
        for number in range(count):
            due = start + number / _RATE
            left = due - time.perf_counter()
            if left > 0:
                time.sleep(left)
            producer.send_async(content, lambda _r, _m, due=due: taken.append(time.perf_counter() - due))
        producer.flush()

    found = _measured(count, work)
    client.close()
    found["p99_ms"] = statistics.quantiles(taken, n=100)[98] * 1000
    found["p50_ms"] = statistics.median(taken) * 1000
    return found


def asyncio_send(
    library: str, url: str, topic: str, count: int, size: int, batched: bool
) -> dict[str, float]:
    """``await producer.send`` by tasks that keep 1,000 messages in flight."""
    content = b"x" * size

    async def turns(producer: Any, messages: int) -> None:
        left = messages

        async def one() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send(content)

        await asyncio.gather(*(one() for _ in range(_WINDOW)))

    async def main() -> dict[str, float]:
        if library == OWN:
            from magnetar.client import aio

            async with aio.Client(url) as client:
                producer = await client.create_producer(
                    topic, batching_enabled=batched, max_pending_messages=5_000
                )
                return await measured(producer)
        asynchronous = importlib.import_module(f"{library}.asyncio")
        client = asynchronous.Client(url, logger=_quiet(importlib.import_module(library)))
        producer = await client.create_producer(topic, batching_enabled=batched, max_pending_messages=5_000)
        found = await measured(producer)
        await client.close()
        return found

    async def measured(producer: Any) -> dict[str, float]:
        await turns(producer, count // 5)
        began, before = time.perf_counter(), time.process_time()
        await turns(producer, count)
        took, spent = time.perf_counter() - began, time.process_time() - before
        return {"rate": count / took, "cpu_us": spent / count * 1e6}

    return asyncio.run(main())


# Consuming. The topic has been filled; each run has a subscription of its own.


def receive(library: str, url: str, topic: str, count: int, size: int, batched: bool) -> dict[str, float]:
    """``receive``, look at the content, ``acknowledge``."""
    client = _client(library, url)
    pulsar = importlib.import_module(library)
    consumer = client.subscribe(
        topic,
        f"s{time.time_ns()}",
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=5_000,
    )

    def work(messages: int = count) -> None:
        for _ in range(messages):
            message = consumer.receive(30_000)
            if len(message.data()) != size:
                raise Void("a message has another size")
            consumer.acknowledge(message)

    work(count // 5)
    found = _measured(count, work)
    client.close()
    return found


def listener(library: str, url: str, topic: str, count: int, size: int, batched: bool) -> dict[str, float]:
    """A ``message_listener`` that looks at the content and acknowledges."""
    client = _client(library, url)
    pulsar = importlib.import_module(library)
    began, done = threading.Event(), threading.Event()
    seen = 0
    marks: list[tuple[float, float]] = []

    def heard(consumer: Any, message: Any) -> None:
        nonlocal seen
        if len(message.data()) == size:
            seen += 1
        consumer.acknowledge(message)
        if seen == count // 5:
            marks.append((time.perf_counter(), time.process_time()))
            began.set()
        elif seen == count + count // 5:
            marks.append((time.perf_counter(), time.process_time()))
            done.set()

    client.subscribe(
        topic,
        f"s{time.time_ns()}",
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=5_000,
        message_listener=heard,
    )
    if not done.wait(120):
        raise Void(f"{seen} messages came")
    client.close()
    (first, first_cpu), (last, last_cpu) = marks
    return {"rate": count / (last - first), "cpu_us": (last_cpu - first_cpu) / count * 1e6}


def asyncio_receive(
    library: str, url: str, topic: str, count: int, size: int, batched: bool
) -> dict[str, float]:
    """``await consumer.receive()``, look at the content, ``await consumer.acknowledge``."""

    async def measured(consumer: Any) -> dict[str, float]:
        async def work(messages: int) -> None:
            for _ in range(messages):
                message = await consumer.receive()
                if len(message.data()) != size:
                    raise Void("a message has another size")
                await consumer.acknowledge(message)

        await work(count // 5)
        began, before = time.perf_counter(), time.process_time()
        await work(count)
        took, spent = time.perf_counter() - began, time.process_time() - before
        return {"rate": count / took, "cpu_us": spent / count * 1e6}

    async def main() -> dict[str, float]:
        name = f"s{time.time_ns()}"
        if library == OWN:
            from magnetar.client import InitialPosition, aio

            async with aio.Client(url) as client:
                consumer = await client.subscribe(
                    topic, name, initial_position=InitialPosition.Earliest, receiver_queue_size=5_000
                )
                return await measured(consumer)
        asynchronous = importlib.import_module(f"{library}.asyncio")
        pulsar = importlib.import_module(library)
        client = asynchronous.Client(url, logger=_quiet(pulsar))
        consumer = await client.subscribe(
            topic, name, initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=5_000
        )
        found = await measured(consumer)
        await client.close()
        return found

    return asyncio.run(main())


_BOTH = (OFFICIAL, FACADE)
_ALL = (OFFICIAL, FACADE, OWN)
ROWS = (
    Row("send", "`send`, one at a time", send, _BOTH, 3_000, batched=False),
    Row("send_async", "`send_async`, batched", send_async, _BOTH, 200_000),
    Row("send_async-unbatched", "`send_async`, unbatched", send_async, _BOTH, 50_000, batched=False),
    Row("asyncio-send", "`await send`, batched", asyncio_send, _ALL, 100_000),
    Row("asyncio-send-unbatched", "`await send`, unbatched", asyncio_send, _ALL, 30_000, batched=False),
    Row("receive", "`receive`, batched", receive, _BOTH, 200_000),
    Row("receive-unbatched", "`receive`, unbatched", receive, _BOTH, 50_000, batched=False),
    Row("listener", "`message_listener`, batched", listener, _BOTH, 200_000),
    Row("listener-unbatched", "`message_listener`, unbatched", listener, _BOTH, 50_000, batched=False),
    Row("asyncio-receive", "`await receive`, batched", asyncio_receive, _ALL, 100_000),
    Row(
        "asyncio-receive-unbatched",
        "`await receive`, unbatched",
        asyncio_receive,
        _ALL,
        30_000,
        batched=False,
    ),
    Row("latency", "`send_async` at 1,000/s", latency, _BOTH, 5_000),
)


def filled(url: str, row: Row, size: int) -> str:
    """Returns a topic with as many messages as a run of the row consumes, from the official client."""
    name = f"persistent://public/default/filled-{row.messages}-{size}-{row.batched}"
    if name not in _KEPT:
        send_async(OFFICIAL, url, name, row.messages, size, row.batched)
        _KEPT.append(name)
    return name


def run(server: Magnetar, row: Row, library: str, size: int) -> dict[str, float]:
    """Runs one row in a process of its own. :raises Void: the program failed"""
    if row.run in (receive, listener, asyncio_receive):
        topic = filled(server.url, row, size)
    else:
        topic = f"persistent://public/default/{row.name}-{time.time_ns()}"
    before = server.cpu_seconds()
    ended = subprocess.run(
        [sys.executable, "-m", __spec__.name, "--run", row.name, library, server.url, topic, str(size)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if ended.returncode:
        raise Void(f"{row.name} with {library}: {ended.stderr.strip()[-600:]}")
    found: dict[str, float] = json.loads(ended.stdout)
    found["broker_cpu_us"] = (server.cpu_seconds() - before) / (1.2 * row.messages) * 1e6
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.client_libraries")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows, separated by commas")
    parser.add_argument("--size", default="100,1024", help="sizes of messages in bytes, separated by commas")
    parser.add_argument("--run", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        name, library, url, topic, size = arguments.run
        row = next(each for each in ROWS if each.name == name)
        print(json.dumps(row.run(library, url, topic, row.messages, int(size), row.batched)))
        return 0
    only = {name for name in arguments.only.split(",") if name}
    unknown = only - {row.name for row in ROWS}
    if unknown:
        raise SystemExit(f"no row is called {', '.join(sorted(unknown))}")
    runs: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = Magnetar("magnetar", "Magnetar", "magnetar", Path(folder) / "magnetar")
        server.start()
        try:
            for _ in range(arguments.rounds):
                for size in map(int, arguments.size.split(",")):
                    for row in ROWS:
                        for library in row.libraries if not only or row.name in only else ():
                            found = run(server, row, library, size)
                            runs.setdefault((row.name, size, library), []).append(found)
                            print(row.name, size, library, json.dumps(found), file=sys.stderr)
        finally:
            server.stop()
    print(conditions())
    print(table(runs))
    return 0


def table(runs: dict[tuple[str, int, str], list[dict[str, float]]]) -> str:
    """Returns the medians as a table."""
    lines = [
        "| | bytes | library | messages/s | CPU of the client, µs a message | of the broker |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    titles = {row.name: row.title for row in ROWS}
    for (name, size, library), found in runs.items():
        rate, cpu, broker = (
            statistics.median(each[key] for each in found) for key in ("rate", "cpu_us", "broker_cpu_us")
        )
        p99 = [each["p99_ms"] for each in found if "p99_ms" in each]
        shown = f"p99 {statistics.median(p99):.1f} ms" if p99 else f"{rate:,.0f}"
        lines.append(f"| {titles[name]} | {size:,} | {library} | {shown} | {cpu:.1f} | {broker:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
