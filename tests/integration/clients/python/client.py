"""The official Python client through every scenario; see ../README.md."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pulsar

TIMEOUT_MS = 30_000
CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")


class CheckFailed(Exception):
    """The broker did something else than it should."""


@dataclass
class Run:
    client: pulsar.Client
    url: str
    prefix: str
    messages: int
    sync_messages: int

    def topic(self, name: str) -> str:
        return f"persistent://public/default/{self.prefix}-{name}"


def payload(index: int) -> bytes:
    return f"{index}:".encode() + b"x" * (index % 100)


def expect(condition: bool, reason: str) -> None:
    if not condition:
        raise CheckFailed(reason)


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


@contextmanager
def check(name: str, messages: int) -> Iterator[None]:
    """Reports the body as one check."""
    begin = time.monotonic()
    try:
        yield
    except (CheckFailed, pulsar.PulsarException) as error:
        say(check=name, ok=False, reason=f"{type(error).__name__}: {error}")
        raise SystemExit(1) from error
    say(check=name, ok=True, messages=messages, seconds=round(time.monotonic() - begin, 3))


def make_producer(run: Run, topic: str, batched: bool, codec: str = "NONE") -> pulsar.Producer:
    return run.client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_publish_delay_ms=1 if batched else 10,
        compression_type=getattr(pulsar.CompressionType, codec),
        block_if_queue_full=True,
        max_pending_messages=1000,
        send_timeout_millis=TIMEOUT_MS,
    )


def send_all(producer: pulsar.Producer, first: int, count: int) -> list[pulsar.MessageId]:
    """Sends without waiting for each; the ids, in order."""
    ids: list[Any] = [None] * count
    failures: list[str] = []
    left = threading.Semaphore(0)

    def sent(index: int, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            failures.append(f"message {first + index}: {result}")
        ids[index] = message_id
        left.release()

    for index in range(count):
        producer.send_async(payload(first + index), lambda r, m, i=index: sent(i, r, m))
    producer.flush()
    for _ in range(count):
        expect(left.acquire(timeout=TIMEOUT_MS / 1000), "a send was never answered")
    expect(not failures, f"sends failed: {failures[:3]}")
    return ids


class Collector:
    """A message listener that keeps what arrives."""

    def __init__(self, wanted: int) -> None:
        self.payloads: list[bytes] = []
        self._wanted = wanted
        self._done = threading.Event()

    def __call__(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        self.payloads.append(message.data())
        consumer.acknowledge(message)
        if len(self.payloads) >= self._wanted:
            self._done.set()

    def wait(self) -> None:
        if not self._done.wait(60):
            raise CheckFailed(f"{len(self.payloads)} of {self._wanted} messages arrived")


def expect_in_order(payloads: list[bytes], first: int, count: int) -> None:
    for index, data in enumerate(payloads):
        expect(
            data == payload(first + index), f"at {index}: {data[:20]!r} instead of message {first + index}"
        )
    expect(len(payloads) == count, f"{len(payloads)} messages instead of {count}")


def keep(run: Run, topic: str) -> None:
    """Subscribes and leaves: from now on the broker keeps all messages, consumed or not."""
    run.client.subscribe(topic, "keep").close()


def receive_from(source: pulsar.Consumer | pulsar.Reader, first: int, count: int) -> None:
    """Receives exactly the messages from ``first`` on."""
    read = source.receive if isinstance(source, pulsar.Consumer) else source.read_next
    payloads = []
    for _ in range(count):
        message = read(timeout_millis=TIMEOUT_MS)
        payloads.append(message.data())
        if isinstance(source, pulsar.Consumer):
            source.acknowledge(message)
    expect_in_order(payloads, first, count)


def expect_nothing(source: pulsar.Consumer | pulsar.Reader) -> None:
    read = source.receive if isinstance(source, pulsar.Consumer) else source.read_next
    try:
        message = read(timeout_millis=300)
    except pulsar.Timeout:
        return
    raise CheckFailed(f"unexpected message {message.data()[:20]!r}")


def asynchronous(run: Run, batched: bool) -> None:
    for codec in CODECS:
        topic = run.topic(f"async-{batched}-{codec}")
        collector = Collector(run.messages)
        with check(f"{codec} {'batched' if batched else 'unbatched'} async", run.messages):
            consumer = run.client.subscribe(topic, "s", message_listener=collector)
            with closing(make_producer(run, topic, batched, codec)) as producer:
                send_all(producer, 0, run.messages)
                collector.wait()
            consumer.close()
            expect_in_order(collector.payloads, 0, run.messages)


def synchronous(run: Run, batched: bool) -> None:
    for codec in CODECS:
        topic = run.topic(f"sync-{batched}-{codec}")
        with (
            check(f"{codec} {'batched' if batched else 'unbatched'} sync", run.sync_messages),
            closing(run.client.subscribe(topic, "s")) as consumer,
            closing(make_producer(run, topic, batched, codec)) as producer,
        ):
            for index in range(run.sync_messages):
                producer.send(payload(index))
            receive_from(consumer, 0, run.sync_messages)
            expect_nothing(consumer)


def reader(run: Run) -> None:
    for batched in (False, True):
        topic = run.topic(f"reader-{batched}")
        keep(run, topic)
        name = "batched" if batched else "unbatched"
        with closing(make_producer(run, topic, batched)) as producer:
            ids = send_all(producer, 0, 100)
            with (
                check(f"reader from earliest, {name}", 100),
                closing(run.client.create_reader(topic, pulsar.MessageId.earliest)) as earliest,
            ):
                receive_from(earliest, 0, 100)
                expect(not earliest.has_message_available(), "more than all messages available")
            with check(f"reader from an id, {name}", 99):
                with closing(run.client.create_reader(topic, ids[50])) as after:
                    receive_from(after, 51, 49)
                with closing(
                    run.client.create_reader(topic, ids[50], start_message_id_inclusive=True)
                ) as inclusive:
                    receive_from(inclusive, 50, 50)
            with (
                check(f"reader from latest, {name}", 10),
                closing(run.client.create_reader(topic, pulsar.MessageId.latest)) as latest,
            ):
                expect(not latest.has_message_available(), "a message available behind the latest")
                send_all(producer, 100, 10)
                receive_from(latest, 100, 10)
                expect_nothing(latest)


def seek(run: Run) -> None:
    for batched in (False, True):
        topic = run.topic(f"seek-{batched}")
        keep(run, topic)
        name = "batched" if batched else "unbatched"
        with (
            closing(run.client.subscribe(topic, "s", start_message_id_inclusive=True)) as consumer,
            closing(make_producer(run, topic, batched)) as producer,
        ):
            ids = send_all(producer, 0, 50)
            time.sleep(0.1)
            between = int(time.time() * 1000)
            time.sleep(0.1)
            send_all(producer, 50, 50)
            receive_from(consumer, 0, 100)
            for what, target, first in (
                ("an id", ids[30], 30),
                ("a time", between, 50),
                ("earliest", pulsar.MessageId.earliest, 0),
            ):
                with check(f"seek to {what}, {name}", 100 - first):
                    consumer.seek(target)
                    receive_from(consumer, first, 100 - first)
                    expect_nothing(consumer)


def shared(run: Run) -> None:
    topic = run.topic("shared")
    kind = pulsar.ConsumerType.Shared
    with check("two consumers share a subscription", 1000):
        collectors = [Collector(1), Collector(1)]
        consumers = [
            run.client.subscribe(
                topic, "s", consumer_type=kind, message_listener=each, receiver_queue_size=50
            )
            for each in collectors
        ]
        with closing(make_producer(run, topic, False)) as producer:
            send_all(producer, 0, 1000)
        end = time.monotonic() + 60
        while sum(len(each.payloads) for each in collectors) < 1000 and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.2)
        for consumer in consumers:
            consumer.close()
        parts = [len(each.payloads) for each in collectors]
        expect(sum(parts) == 1000, f"{parts} messages arrived")
        expect(min(parts) > 0, f"{parts}: one consumer got nothing")
        together = {data for each in collectors for data in each.payloads}
        expect(together == {payload(index) for index in range(1000)}, "a message is missing")


def exclusive(run: Run) -> None:
    topic = run.topic("exclusive")
    with check("a second exclusive consumer is refused", 10):
        first = run.client.subscribe(topic, "s")
        other = pulsar.Client(run.url, operation_timeout_seconds=3, logger=quiet())
        try:
            other.subscribe(topic, "s").close()
            raise CheckFailed("the second consumer was accepted")
        except pulsar.ConsumerBusy:
            pass
        first.close()
        with closing(other.subscribe(topic, "s")) as second:
            with closing(make_producer(run, topic, False)) as producer:
                send_all(producer, 0, 10)
            receive_from(second, 0, 10)
        other.close()


class Restart:
    """Sends at a pace while the broker restarts, and keeps what succeeded and what arrived."""

    def __init__(self, run: Run) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[pulsar.Result] = []
        self.received: dict[int, None] = {}
        topic = run.topic("restart")
        self.consumer = run.client.subscribe(topic, "s", message_listener=self._arrived)
        self.producer = make_producer(run, topic, False)
        self._next = 0

    def _arrived(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        self.received.setdefault(int(message.data().split(b":")[0]))
        consumer.acknowledge(message)

    def send(self, until: Callable[[], bool]) -> None:
        def sent(index: int, result: pulsar.Result) -> None:
            if result == pulsar.Result.Ok:
                self.acknowledged.append(index)
            else:
                self.refused.append(result)

        while not until():
            self.producer.send_async(payload(self._next), lambda r, m, i=self._next: sent(i, r))
            self._next += 1
            time.sleep(0.001)

    @property
    def sent(self) -> int:
        return self._next

    def is_over(self) -> bool:
        """Whether each send has a result, and whatever was acknowledged has arrived.

        ``flush`` may return before the callback of the last send.
        """
        ended = len(self.acknowledged) + len(self.refused) == self.sent
        return ended and set(self.acknowledged) <= set(self.received)


def restart(run: Run) -> None:
    with check("nothing is lost over a restart", 0):
        work = Restart(run)
        work.send(lambda: work.sent >= 300)
        say(event="restart")
        back = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), back.set()), daemon=True).start()
        work.send(back.is_set)
        behind = work.sent + 300
        work.send(lambda: work.sent >= behind)
        work.producer.flush()
        end = time.monotonic() + 60
        while not work.is_over() and time.monotonic() < end:
            time.sleep(0.05)
        lost = sorted(set(work.acknowledged) - set(work.received))
        expect(not lost, f"{len(lost)} acknowledged messages lost, the first is {lost[:1]}")
        expect(
            len(work.acknowledged) == work.sent,
            f"{len(work.acknowledged)} of {work.sent} sends succeeded, the others: {set(work.refused)}",
        )
        expect(list(work.received) == sorted(work.received), "first occurrences are out of order")
        work.producer.close()
        work.consumer.close()


SCENARIOS: dict[str, Callable[[Run], None]] = {
    "async-batched": lambda run: asynchronous(run, True),
    "async-unbatched": lambda run: asynchronous(run, False),
    "sync-batched": lambda run: synchronous(run, True),
    "sync-unbatched": lambda run: synchronous(run, False),
    "reader": reader,
    "seek": seek,
    "shared": shared,
    "exclusive": exclusive,
    "restart": restart,
}


def quiet() -> pulsar.FileLogger:
    """The client's own log, on standard error."""
    return pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--scenario", required=True, choices=sorted(SCENARIOS))
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--sync-messages", type=int, default=500)
    options = parser.parse_args()
    client = pulsar.Client(options.url, operation_timeout_seconds=30, logger=quiet())
    run = Run(client, options.url, options.prefix, options.messages, options.sync_messages)
    SCENARIOS[options.scenario](run)
    client.close()


if __name__ == "__main__":
    main()
