"""Compares delayed messages with Apache Pulsar: CPU per message, and how late they are delivered.

``python -m bench.late_delivery`` prints figures as JSON. The official Python client publishes and consumes. A
run is void if a message comes early, twice or not at all. Apache Pulsar, which by default may deliver a tick
early, is configured to be strict.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from random import Random

import pulsar

from bench.beside import Figures, add_options, side_by_side
from bench.generators import Void
from bench.servers import Server

_STRICT = {"isDelayedDeliveryDeliverAtTimeStrict": "true"}
_PATIENCE_MS = 60_000


def now_ms() -> int:
    return int(time.time() * 1000)


def publish(client: pulsar.Client, topic: str, options: argparse.Namespace, first_due: int | None) -> None:
    """:param first_due: ms since 1970; None: without delivery times"""
    producer = client.create_producer(
        topic, batching_enabled=False, max_pending_messages=5_000, block_if_queue_full=True
    )
    random = Random(1)
    for number in range(options.messages):
        due = None if first_due is None else first_due + random.randrange(options.spread * 1000)
        content = number.to_bytes(8, "big") + (due or 0).to_bytes(8, "big") + bytes(84)
        key = str(random.randrange(options.keys)) if options.keys else None
        producer.send_async(content, None, partition_key=key, deliver_at=due)
    producer.flush()
    producer.close()


def receive(consumer: pulsar.Consumer, count: int) -> list[int]:
    """Returns the lateness of each message in ms. :raises Void: a message was early, duplicate or lost"""
    late, seen = [], set()
    for _ in range(count):
        message = consumer.receive(_PATIENCE_MS)
        content = message.data()
        number, due = (int.from_bytes(content[at : at + 8], "big") for at in (0, 8))
        late.append(now_ms() - due)
        if late[-1] < 0 or number in seen:
            raise Void(f"message {number} came {-late[-1]} ms early, or again")
        seen.add(number)
        consumer.acknowledge(message)
    return sorted(late)


def measure(server: Server, options: argparse.Namespace) -> Figures:
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    found: Figures = {}
    for name in ("warming", "plain", "delayed"):
        topic = f"persistent://public/default/{name}"
        kind = pulsar.ConsumerType.KeyShared if options.keys else pulsar.ConsumerType.Shared
        consumer = client.subscribe(topic, "s", kind, receiver_queue_size=1_000)
        before = server.cpu_seconds()
        first_due = now_ms() + options.ahead * 1000 if name == "delayed" else None
        publish(client, topic, options, first_due)
        published = server.cpu_seconds()
        if first_due is not None and now_ms() > first_due:
            raise Void("publishing took longer than the first message waits: --ahead")
        late = receive(consumer, options.messages)
        delivered = server.cpu_seconds()
        consumer.close()
        per_message = 1e6 / options.messages
        figures = {
            "cpu to publish, us a message": round((published - before) * per_message, 2),
            "cpu to deliver, us a message": round((delivered - published) * per_message, 2),
        }
        if name == "delayed":
            count = len(late)
            figures |= {"late p50, ms": late[count // 2], "late p99, ms": late[count * 99 // 100]}
        if name != "warming":
            found[name] = figures
    client.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--ahead", type=int, default=20, help="seconds until the first is due")
    parser.add_argument("--spread", type=int, default=20, help="seconds within which all become due")
    parser.add_argument("--keys", type=int, default=0, help="with so many keys, to a Key_Shared subscription")
    add_options(parser)
    options = parser.parse_args()
    try:
        found = side_by_side(options, lambda server: measure(server, options), _STRICT)
    except Void as void:
        sys.stderr.write(f"void: {void}\n")
        return 1
    found |= {"messages": options.messages}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
