"""Measures the time from the publisher's receipt to a consumer in the other cluster.

A separate process, so that measuring does not wait for other work of the benchmark. Messages are published in
turn to topics ``PREFIX-0`` … ``PREFIX-N`` on a fixed schedule. A consumer of each waits in the other cluster.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from bench.generators import Void
from bench.replicated_pair import Pair
from bench.scale_client import ScaleClient
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

_PERMITS = 1_000_000
_PATIENCE_SECONDS = 60.0
_WARM_UP_SECONDS = 3.0
_PAYLOAD = bytes(100)


class Listening:
    """The measuring process; it publishes from its creation, and measures from :meth:`begin`."""

    def __init__(self, pair: Pair, prefix: str, topics: int, rate: int) -> None:
        """:raises Void: nothing arrives"""
        command = [sys.executable, "-m", "bench.replication_lag", str(pair.east.port), str(pair.west.port)]
        command += [f"persistent://{prefix}", str(topics), str(rate)]
        root = Path(__file__).parent.parent
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=root)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise Void(f"the lag of {prefix} cannot be measured")

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        """Returns the lag of all messages since then, in ms."""
        out, _ = self._process.communicate()
        if self._process.returncode:
            raise Void("not everything that was published has arrived")
        found: dict[str, float] = json.loads(out)
        return found


class Lag:
    """The lag of messages from one port to another; each topic keeps its messages in order."""

    def __init__(self, port: int, other_port: int, topics: list[str]) -> None:
        self._source, self._target = ScaleClient(port), ScaleClient(other_port)
        self._published: list[deque[float]] = [deque() for _ in topics]
        self._received: list[deque[float]] = [deque() for _ in topics]
        self.lags: list[float] = []
        """Seconds. Negative: the message arrived before the receipt was read."""
        for number, topic in enumerate(topics):
            self._source.request("PRODUCER", "producer", topic=topic, producer_id=number)
            self._source.take("PRODUCER_SUCCESS")
            # A non-durable subscription: earlier messages do not count, and it leaves no backlog.
            new = {"topic": topic, "subscription": "lag", "consumer_id": number, "subType": 0}
            self._target.request("SUBSCRIBE", "subscribe", **new, durable=False)
            self._target.take("SUCCESS")
        for number in range(len(topics)):
            self._target.send("FLOW", "flow", consumer_id=number, messagePermits=_PERMITS)

    def run(self, rate: int, goes_on: Callable[[float], bool]) -> None:
        """Publishes while ``goes_on`` returns true for the seconds so far, and waits for all messages.

        :raises TimeoutError: a message does not arrive
        """
        topics, sent, began, ended = len(self._published), 0, time.monotonic(), 0.0
        arrived = len(self.lags)
        while not ended or len(self.lags) - arrived < sent:
            now = time.monotonic()
            if not ended and not goes_on(now - began):
                ended = now
            if ended and now > ended + _PATIENCE_SECONDS:
                raise TimeoutError(f"{sent - len(self.lags) + arrived} messages have not arrived")
            while not ended and began + sent / rate <= now:
                self._source.publish((sent % topics,), sent // topics, _PAYLOAD)
                sent += 1
            pause = 1.0 if ended else max(0.0, began + sent / rate - time.monotonic())
            ready, _, _ = select.select((self._source, self._target), (), (), pause)
            if self._source in ready:
                self._take(self._source, "SEND_RECEIPT")
            if self._target in ready:
                self._take(self._target, "MESSAGE")

    def _take(self, client: ScaleClient, kind: str) -> None:
        now = time.monotonic()
        for command in client.arrived(kind):
            if command.type == BaseCommand.SEND_RECEIPT:
                self._note(command.send_receipt.producer_id, self._published, now)
            else:
                self._note(command.message.consumer_id, self._received, now)

    def _note(self, topic: int, seen: list[deque[float]], now: float) -> None:
        seen[topic].append(now)
        published, received = self._published[topic], self._received[topic]
        while published and received:
            self.lags.append(received.popleft() - published.popleft())


def quantiles(lags: list[float]) -> dict[str, float]:
    """Returns quantiles in ms."""
    ordered = sorted(lags)
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(1000 * ordered[int(share * (len(ordered) - 1))], 3) for name, share in places.items()}


def main() -> int:
    port, other_port, prefix, topics, rate = sys.argv[1:]
    lag = Lag(int(port), int(other_port), [f"{prefix}-{number}" for number in range(int(topics))])
    # Warm-up: replicators connect, and JVMs compile hot code.
    lag.run(int(rate), lambda seconds: seconds < _WARM_UP_SECONDS)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    told = select.poll()
    told.register(sys.stdin, select.POLLIN)
    sys.stdin.readline()
    lag.lags.clear()
    # Runs until the end of the input.
    lag.run(int(rate), lambda _: not told.poll(0))
    sys.stdout.write(json.dumps(quantiles(lag.lags)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
