"""Publishes messages on a fixed schedule until its standard input ends, and records their latencies.

A separate process, so that measuring does not wait for other work of the benchmark. Latency counts from the
time at which a message was due, so a pause of the broker counts for all messages that it delays.
"""

from __future__ import annotations

import select
import sys
import time
from array import array
from pathlib import Path

from bench.scale_client import ScaleClient


def publish(port: int, topic: str, rate: int, payload: bytes) -> tuple[array[float], array[float]]:
    """Returns the due time of each message (monotonic seconds), and the seconds until its receipt."""
    client = ScaleClient(port)
    client.request("PRODUCER", "producer", topic=topic, producer_id=0)
    client.take("PRODUCER_SUCCESS")
    due, took = array("d"), array("d")
    began = time.monotonic()
    sent = 0
    while True:
        now = time.monotonic()
        while (moment := began + sent / rate) <= now:
            client.publish((0,), sent, payload)
            due.append(moment)
            sent += 1
        ready, _, _ = select.select((client, sys.stdin), (), (), max(0.0, moment - time.monotonic()))
        if client in ready:
            count, now = client.receipts(), time.monotonic()
            for _ in range(count):
                took.append(now - due[len(took)])
        if sys.stdin in ready:
            break
    while len(took) < sent:
        client.take("SEND_RECEIPT")
        took.append(time.monotonic() - due[len(took)])
    client.close()
    return due, took


def main() -> int:
    port, topic, rate, size, out = sys.argv[1:]
    due, took = publish(int(port), topic, int(rate), bytes(int(size)))
    Path(out).write_bytes(due.tobytes() + took.tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
