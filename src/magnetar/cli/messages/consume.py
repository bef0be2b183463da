"""``magnetar consume TOPIC -s SUBSCRIPTION``."""

from __future__ import annotations

import argparse

from magnetar.cli.messages.run import Ends, run
from magnetar.client import ConsumerType, InitialPosition


def run_consume(parsed: argparse.Namespace) -> int:
    return run(parsed, _consume)


def _consume(ends: Ends, parsed: argparse.Namespace) -> None:
    write = ends.printer(parsed)
    consumer = ends.client.subscribe(
        parsed.topic,
        parsed.subscription,
        consumer_type=ConsumerType[parsed.type.replace("_", "")],
        initial_position=InitialPosition.Earliest if parsed.earliest else InitialPosition.Latest,
        batch_index_ack_enabled=True,
        crypto_key_reader=ends.private_key,
    )
    taken = 0
    while not parsed.count or taken < parsed.count:
        message = consumer.receive()
        write(message)
        if not parsed.no_ack:
            consumer.acknowledge(message)
        taken += 1
