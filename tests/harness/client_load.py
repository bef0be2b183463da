"""Publishing and consuming by the official client, all the time, and what may be said of it afterwards."""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise
from typing import NamedTuple

import pulsar

PATIENCE = 180.0
_WINDOW = 300
"""Messages that are on their way to the broker at once."""
_PAUSE = 0.003
_RECEIVE_MS = 500


class Stored(NamedTuple):
    bodies: list[int]
    entries: list[tuple[int, int]]
    """Ledger and entry of each."""


class ClientLoad:
    """One producer and one consumer of a topic, from :meth:`start` to :meth:`finish`. Bodies are numbers."""

    def __init__(self, url: str, topic: str) -> None:
        self.topic = topic
        self.published = 0
        self.acknowledged: list[int] = []
        self.received: list[int] = []
        self.refused: list[str] = []
        self.times: list[float] = []
        """When each was acknowledged, by the monotonic clock."""
        self._url = url
        self._room = threading.Semaphore(_WINDOW)
        self._publishing = self._consuming = True
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._client = pulsar.Client(
            self._url,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
            operation_timeout_seconds=60,
        )
        self._consumer = self._client.subscribe(self.topic, "s")
        self._producer = self._client.create_producer(
            self.topic,
            producer_name="only",
            send_timeout_millis=0,
            max_pending_messages=2 * _WINDOW,
            batching_enabled=False,
        )
        self._threads = [threading.Thread(target=work) for work in (self._publish, self._consume)]
        for thread in self._threads:
            thread.start()

    def more(self, count: int) -> None:
        """Returns when so many more messages are acknowledged."""
        target = len(self.acknowledged) + count
        deadline = time.monotonic() + PATIENCE
        while not self.reached(target):
            assert time.monotonic() < deadline, f"{self.topic}: {len(self.acknowledged)} of {target}"
            time.sleep(0.01)

    def reached(self, target: int) -> bool:
        assert not self.refused, self.refused
        return len(self.acknowledged) >= target

    def longest_gap(self, since: float) -> float:
        """Seconds in which nothing was acknowledged, the longest of them after a time."""
        times = [since, *(each for each in self.times if each > since)]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def stop_publishing(self) -> None:
        self._publishing = False
        self._threads[0].join(PATIENCE)
        assert not self._threads[0].is_alive()

    def finish(self) -> None:
        """Stops; returns when all that was published has been acknowledged, and has been consumed."""
        if self._publishing:
            self.stop_publishing()
        deadline = time.monotonic() + PATIENCE
        while not (self.reached(self.published) and len(set(self.received)) >= self.published):
            assert time.monotonic() < deadline, (
                f"{self.topic}: of {self.published} published {len(self.acknowledged)} acknowledged, "
                f"{len(set(self.received))} consumed"
            )
            time.sleep(0.01)
        self.close()

    def close(self) -> None:
        self._publishing = self._consuming = False
        for thread in self._threads:
            thread.join(PATIENCE)
        self._client.shutdown()

    def check(self, stored: list[int], *, once: bool) -> None:
        """
        :param stored: bodies of all that is in the topic
        :param once: nothing may be there twice, as what the client sent again after an error may otherwise
        """
        wanted = list(range(self.published))
        assert self.acknowledged == wanted
        assert list(dict.fromkeys(stored)) == wanted
        assert not once or stored == wanted
        assert list(dict.fromkeys(self.received)) == wanted
        # A message never comes behind one that was published later, but when the whole run comes again.
        for earlier, later in pairwise(stored):
            assert later <= earlier + 1

    def stored(self) -> Stored:
        """All that is in the topic, as a reader gets it."""
        client = pulsar.Client(
            self._url,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
            operation_timeout_seconds=60,
        )
        try:
            reader = client.create_reader(self.topic, pulsar.MessageId.earliest)
            found = Stored([], [])
            while reader.has_message_available():
                message = reader.read_next(timeout_millis=60_000)
                place = message.message_id()
                found.bodies.append(int(message.data()))
                found.entries.append((place.ledger_id(), place.entry_id()))
            return found
        finally:
            client.close()

    def _publish(self) -> None:
        while self._publishing:
            if not self._room.acquire(timeout=0.1):
                continue
            body = self.published
            self.published += 1

            def told(result: pulsar.Result, _id: pulsar.MessageId, body: int = body) -> None:
                self._told(body, result)

            self._producer.send_async(b"%d" % body, told)
            time.sleep(_PAUSE)

    def _told(self, body: int, result: pulsar.Result) -> None:
        if result == pulsar.Result.Ok:
            self.times.append(time.monotonic())
            self.acknowledged.append(body)
        else:
            self.refused.append(f"{body}: {result}")
        self._room.release()

    def _consume(self) -> None:
        while self._consuming:
            try:
                message = self._consumer.receive(timeout_millis=_RECEIVE_MS)
            except pulsar.Timeout:
                continue
            self.received.append(int(message.data()))
            self._consumer.acknowledge(message)
