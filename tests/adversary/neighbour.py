"""``python neighbour.py URL TOKEN TOPIC``: publishes 100 messages a second until standard input ends.

Prints how long receipts took, as JSON, in milliseconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import pulsar

RATE = 100


def main(url: str, token: str, topic: str) -> None:
    client = pulsar.Client(
        url,
        authentication=pulsar.AuthenticationToken(token),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    times: list[float] = []
    failed = 0
    began = time.monotonic()
    sent = 0
    print("ready", flush=True)
    while not ended.is_set():
        at = time.monotonic()

        def done(result: pulsar.Result, _message_id: object, at: float = at) -> None:
            nonlocal failed
            if result == pulsar.Result.Ok:
                times.append((time.monotonic() - at) * 1000)
            else:
                failed += 1

        producer.send_async(b"x" * 100, done)
        sent += 1
        time.sleep(max(0.0, began + sent / RATE - time.monotonic()))
    producer.flush()
    client.close()
    times.sort()
    quantile = {name: times[min(len(times) - 1, int(len(times) * at))] for name, at in QUANTILES.items()}
    print(json.dumps({"sent": sent, "failed": failed, **quantile}))


QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}

if __name__ == "__main__":
    main(*sys.argv[1:])
