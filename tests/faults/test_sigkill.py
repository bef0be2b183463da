"""SIGKILL at random moments under load: what was acknowledged is there, in order, and nothing else is."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from random import Random

import pytest
from server import VARIANTS, Server

pulsar = pytest.importorskip("pulsar")

PRODUCERS = 4
TOPIC = "persistent://public/default/killed"
SUBSCRIPTION = "holds-everything"
ONCE: dict[str, int | str] = {"brokerDeduplicationEnabled": "true", "brokerDeduplicationEntriesInterval": 10}
"""Deduplication, with snapshots all the time."""


class Load:
    """One producer that sends as fast as it may, and remembers what was acknowledged."""

    def __init__(self, client: pulsar.Client, number: int) -> None:
        self.number = number
        self.sent = 0
        self.acknowledged: set[int] = set()
        self._producer = client.create_producer(
            TOPIC,
            producer_name=f"p{number}",
            batching_enabled=number % 2 == 0,
            max_pending_messages=500,
            block_if_queue_full=True,
            send_timeout_millis=0,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            number = self.sent
            self.sent += 1
            text = f"{self.number}:{number}:".encode() + b"x" * (number % 300)
            self._producer.send_async(text, lambda result, _id, n=number: self._answered(result, n))
            time.sleep(0.0005)

    def _answered(self, result: pulsar.Result, number: int) -> None:
        if result == pulsar.Result.Ok:
            self.acknowledged.add(number)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        self._producer.flush()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("variant", [*VARIANTS, "once"])
def test_acknowledged_messages_survive(tmp_path: Path, variant: str) -> None:
    kills = int(os.environ.get("MAGNETAR_KILLS", "20")) // 2
    random = Random(int(os.environ.get("MAGNETAR_FIRST_SEED", "1")))
    server = Server(tmp_path, VARIANTS.get(variant, ONCE))
    server.start()
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.url, logger=logger, operation_timeout_seconds=60)
    try:
        holder = client.subscribe(TOPIC, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest)
        holder.close()
        loads = [Load(client, number) for number in range(PRODUCERS)]
        for _ in range(kills):
            time.sleep(0.02 + random.random() * 0.6)
            server.restart(kill=True)
            wait_for_progress(loads)
        for load in loads:
            load.stop()
        check(client, loads, once=variant == "once")
    finally:
        client.shutdown()
        server.close()


def wait_for_progress(loads: list[Load]) -> None:
    """Until every producer has come back and had something acknowledged."""
    before = [len(load.acknowledged) for load in loads]
    end = time.monotonic() + 60
    while any(len(load.acknowledged) == count for load, count in zip(loads, before, strict=True)):
        assert time.monotonic() < end, "a producer does not come back"
        time.sleep(0.01)


def check(client: pulsar.Client, loads: list[Load], *, once: bool) -> None:
    consumer = client.subscribe(TOPIC, SUBSCRIPTION)
    seen: list[set[int]] = [set() for _ in loads]
    highest = [-1] * len(loads)
    last = consumer.get_last_message_id()
    while True:
        message = consumer.receive(20_000)
        producer, number = (int(part) for part in message.data().split(b":")[:2])
        assert number < loads[producer].sent, "a message that was never sent"
        assert not once or number not in seen[producer], f"producer {producer}: {number} is stored twice"
        if number not in seen[producer]:
            # A message may come twice when its receipt was lost; its first copy must keep the order.
            assert number > highest[producer], f"producer {producer}: {number} after {highest[producer]}"
            highest[producer] = number
            seen[producer].add(number)
        identity = message.message_id()
        if (identity.ledger_id(), identity.entry_id()) == (last.ledger_id(), last.entry_id()) and (
            identity.batch_index() == last.batch_index()
        ):
            break
    for load in loads:
        missing = load.acknowledged - seen[load.number]
        assert not missing, f"producer {load.number}: acknowledged and gone: {sorted(missing)[:10]}"
        assert load.acknowledged
