"""Runs the official Python client; prints one JSON object.

``e2e URL``: one producer, one consumer, unbatched, every message checked. ``topics URL``: a
producer on each of a number of new topics, 16 at a time.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pulsar

from magnetar.cli.perf.measure import cpu_seconds

_NUMBER = struct.Struct("<Q")
_RECEIVE_MS = 30_000


def end_to_end(arguments: argparse.Namespace) -> dict[str, object]:
    client = pulsar.Client(arguments.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    topic = f"persistent://public/default/bench-py-{time.time_ns()}"
    consumer = client.subscribe(topic, "s", receiver_queue_size=10_000)
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=5_000)
    failures: list[str] = []
    filler = b"x" * (arguments.size - _NUMBER.size)

    def publish(first: int, after: int) -> None:
        def acknowledged(result: pulsar.Result, _id: object) -> None:
            if result != pulsar.Result.Ok:
                failures.append(str(result))

        for number in range(first, after):
            producer.send_async(_NUMBER.pack(number) + filler, acknowledged)
        producer.flush()

    def turn(first: int, after: int) -> float:
        began = time.monotonic()
        sender = threading.Thread(target=publish, args=(first, after))
        sender.start()
        for expected in range(first, after):
            message = consumer.receive(_RECEIVE_MS)
            if _NUMBER.unpack_from(message.data())[0] != expected:
                failures.append(f"message {expected} came as another")
            consumer.acknowledge(message)
        sender.join()
        return time.monotonic() - began

    turn(0, arguments.messages // 4)
    before = cpu_seconds([arguments.server_pid])
    first = arguments.messages // 4
    took = turn(first, first + arguments.messages)
    spent = cpu_seconds([arguments.server_pid]) - before
    client.close()
    if failures:
        raise SystemExit(f"{len(failures)} failures, the first: {failures[0]}")
    return {
        "deliver_rate": arguments.messages / took,
        "server_cpu_us_per_message": spent / arguments.messages * 1e6,
    }


def topics(arguments: argparse.Namespace) -> dict[str, object]:
    client = pulsar.Client(arguments.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    prefix = f"persistent://public/default/bench-many-{time.time_ns()}"
    client.create_producer(f"{prefix}-first")
    with ThreadPoolExecutor(16) as threads:
        began = time.monotonic()
        list(threads.map(lambda n: client.create_producer(f"{prefix}-{n}"), range(arguments.messages)))
        took = time.monotonic() - began
    client.close()
    return {"topics_per_second": arguments.messages / took}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("e2e", "topics"))
    parser.add_argument("url")
    parser.add_argument("--server-pid", type=int, required=True)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100)
    arguments = parser.parse_args()
    figures = end_to_end(arguments) if arguments.mode == "e2e" else topics(arguments)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
