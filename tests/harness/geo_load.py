"""What official clients do in one cluster during a round: they publish, and they follow a subscription."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pulsar

PATIENCE = 60.0
SUBSCRIPTION = "tail"
_PAUSE = 0.015
_CHUNKED = b"c" * 45_000
"""More than two chunks."""
_CHUNKED_EVERY = 10
_KINDS: dict[str, dict[str, Any]] = {
    "single": {"batching_enabled": False},
    "batched": {
        "batching_enabled": True,
        "batching_max_messages": 7,
        "message_routing_mode": pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    },
    "keyed": {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
    "chunked": {"batching_enabled": False, "chunking_enabled": True},
}


class Number(NamedTuple):
    """A message: the producer, whose name begins with its cluster, and which of its messages."""

    producer: str
    number: int


def number_of(message: pulsar.Message) -> Number:
    producer, number = message.data().split(b":", 2)[:2]
    return Number(producer.decode(), int(number))


class Publisher:
    """The producers of one cluster, of several topics; all that they publish is acknowledged in the end."""

    def __init__(self, site: str, client: pulsar.Client) -> None:
        self._site = site
        self._client = client
        self._producers: list[tuple[str, str, Any]] = []
        """Topic, kind and producer."""
        self._sent: dict[Number, str] = {}
        """By the message: its topic."""
        self._acknowledged = 0
        self._refused: list[str] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._turn = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def open(self, topic: str, kind: str, name: str) -> None:
        """:param name: also of producers in other clusters, but for chunks: clients know these by the
        names of producers
        """
        if kind == "chunked":
            name = f"{name} {self._site}"
        producer = self._client.create_producer(
            f"persistent://{topic}",
            producer_name=f"{kind} {name}",
            send_timeout_millis=0,
            block_if_queue_full=True,
            # Without it the C++ client begins again with 0 after a reconnection that comes before its first
            # receipt, so that new messages are taken for duplicates of those that it still has to send.
            initial_sequence_id=1,
            **_KINDS[kind],
        )
        with self._turn:
            self._producers.append((topic, f"{kind} {name}", producer))

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._ended:
            with self._turn:
                for topic, name, producer in self._producers:
                    if not name.startswith("chunked") or turn % _CHUNKED_EVERY == 0:
                        self._send(topic, name, producer)
            turn += 1
            time.sleep(_PAUSE)

    def _send(self, topic: str, name: str, producer: Any) -> None:
        label = f"{self._site} {name} {topic}"
        count = self._counts[topic, name] = self._counts.get((topic, name), -1) + 1
        number = Number(label, count)
        content = f"{label}:{count}:".encode()
        if name.startswith("chunked"):
            content += _CHUNKED
        self._sent[number] = topic
        producer.send_async(
            content, partial(self._told, number), partition_key=str(count % 5) if "keyed" in name else None
        )

    def _told(self, number: Number, result: pulsar.Result, _id: object) -> None:
        if result == pulsar.Result.Ok:
            self._acknowledged += 1
        else:
            self._refused.append(f"{number}: {result}")

    def alone(
        self, topic: str, name: str, count: int, before: Callable[[], None], after: Callable[[], None]
    ) -> set[Number]:
        """Publishes ``count`` messages while nothing else is published here.

        :param before: done when all that was published before is acknowledged
        """
        with self._turn:
            self._flush()
            before()
            producer = self._client.create_producer(f"persistent://{topic}", producer_name=f"alone {name}")
            label = f"{self._site} alone {name} {topic}"
            numbers = {Number(label, each) for each in range(count)}
            for each in range(count):
                producer.send(f"{label}:{each}:".encode())
                self._sent[Number(label, each)] = topic
                self._acknowledged += 1
            producer.close()
            after()
        return numbers

    def _flush(self) -> None:
        """Returns when all is acknowledged."""
        for _, _, producer in self._producers:
            producer.flush()
        # After a reconnection clients may return from that before they are told of everything.
        deadline = time.monotonic() + PATIENCE
        while self._acknowledged < len(self._sent):
            assert not self._refused, self._refused[:5]
            assert time.monotonic() < deadline, f"{self._acknowledged} of {len(self._sent)} are acknowledged"
            time.sleep(0.02)

    def stop(self) -> None:
        """Returns when all is acknowledged."""
        self._ended = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._flush()
        assert not self._refused, self._refused[:5]

    def published(self, topic: str) -> set[Number]:
        return {number for number, where in self._sent.items() if where == topic}

    def close(self) -> None:
        self._ended = True
        for _, _, producer in self._producers:
            producer.close()


class Follower:
    """A consumer in one cluster that acknowledges all it gets, whatever happens to its subscription."""

    def __init__(self, client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
        self._client = client
        self._topic = topic
        self._kind = kind
        self.seen: set[Number] = set()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._consumer = self._subscribe()
        self._thread.start()

    def _subscribe(self) -> pulsar.Consumer:
        return self._client.subscribe(
            f"persistent://{self._topic}",
            SUBSCRIPTION,
            self._kind,
            initial_position=pulsar.InitialPosition.Earliest,
        )

    def _run(self) -> None:
        while not self._ended:
            self._take(200)

    def _take(self, milliseconds: int) -> bool:
        try:
            message = self._consumer.receive(milliseconds)
        except pulsar.Timeout:
            return False
        self.seen.add(number_of(message))
        try:
            self._consumer.acknowledge(message)
        except pulsar.PulsarException:
            # The connection broke: the message comes again.
            return True
        return True

    def finish(self, awaited: set[Number]) -> set[Number]:
        """Consumes what is left, of partitions that were added meanwhile as well; returns what is missing."""
        self.stop()
        self._consumer = self._subscribe()
        deadline = time.monotonic() + PATIENCE
        while awaited - self.seen and time.monotonic() < deadline:
            self._take(1000)
        self._consumer.close()
        return awaited - self.seen

    def stop(self) -> None:
        if not self._ended:
            self._ended = True
            self._thread.join(PATIENCE)
            self._consumer.close()
