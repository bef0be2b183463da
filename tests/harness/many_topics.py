"""One official client that publishes to many topics and consumes them, while brokers come and go."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Sequence

import pulsar

PATIENCE = 120.0
_PAUSE = 0.002
_WINDOW = 200


class ManyTopics:
    """Bodies are numbers, ascending in each topic. Time-outs are those of the client, as users have them."""

    def __init__(self, url: str, topics: Sequence[str]) -> None:
        """:param url: of all brokers"""
        self.topics = topics
        self.published: dict[str, int] = dict.fromkeys(topics, 0)
        self.acknowledged: dict[str, list[int]] = defaultdict(list)
        self.received: dict[str, list[int]] = defaultdict(list)
        self.refused: list[str] = []
        self._client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
        self._room = threading.Semaphore(_WINDOW)
        self._ends = threading.Event()
        self._producers: dict[str, pulsar.Producer] = {}
        self._thread = threading.Thread(target=self._publish)

    def start(self) -> None:
        for topic in self.topics:
            self._client.subscribe(topic, "s", message_listener=self._listener(topic))
            self._producers[topic] = self._client.create_producer(
                topic, block_if_queue_full=True, batching_enabled=False
            )
        self._thread.start()

    def more(self, count: int) -> None:
        """Returns when so many more messages of each topic are acknowledged."""
        wanted = {topic: len(self.acknowledged[topic]) + count for topic in self.topics}
        deadline = time.monotonic() + PATIENCE
        while late := [topic for topic in self.topics if len(self.acknowledged[topic]) < wanted[topic]]:
            assert not self.refused, self.refused[:5]
            assert time.monotonic() < deadline, f"nothing is acknowledged any more: {late}"
            time.sleep(0.02)

    def finish(self) -> int:
        """Stops, and checks that all that was acknowledged is consumed, in order; how many that was."""
        self._ends.set()
        self._thread.join(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        for topic in self.topics:
            wanted = list(range(self.published[topic]))
            while len(set(self.received[topic])) < len(wanted) or len(self.acknowledged[topic]) < len(wanted):
                assert not self.refused, self.refused[:5]
                assert time.monotonic() < deadline, (
                    f"{topic}: of {len(wanted)} published {len(self.acknowledged[topic])} acknowledged, "
                    f"{len(set(self.received[topic]))} consumed"
                )
                time.sleep(0.02)
            assert self.acknowledged[topic] == wanted
            assert list(dict.fromkeys(self.received[topic])) == wanted
        self.close()
        return sum(self.published.values())

    def close(self) -> None:
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)
        self._client.shutdown()

    def _publish(self) -> None:
        while not self._ends.is_set():
            for topic, producer in self._producers.items():
                if not self._room.acquire(timeout=PATIENCE) or self._ends.is_set():
                    return
                body = self.published[topic]
                self.published[topic] += 1

                def told(
                    result: pulsar.Result, _id: pulsar.MessageId, topic: str = topic, body: int = body
                ) -> None:
                    self._room.release()
                    if result == pulsar.Result.Ok:
                        self.acknowledged[topic].append(body)
                    else:
                        self.refused.append(f"{topic} {body}: {result}")

                producer.send_async(b"%d" % body, told)
                time.sleep(_PAUSE)

    def _listener(self, topic: str) -> object:
        def heard(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
            self.received[topic].append(int(message.data()))
            consumer.acknowledge(message)

        return heard
