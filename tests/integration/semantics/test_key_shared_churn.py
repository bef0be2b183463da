"""Twenty consumers of a Key_Shared subscription come and go at random: every key stays in order."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from typing import Any

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

ROUNDS = 2
"""Messages of each key."""
KEYS = int(os.environ.get("MAGNETAR_KEYS", "20000"))
CONSUMERS = 20
SECONDS = 240.0


class Ledger:
    """What was processed. A message is processed when its consumer has seen it, and acknowledged then."""

    def __init__(self, keys: int) -> None:
        self._lock = threading.Lock()
        self._next = [0] * keys
        self.left = keys * ROUNDS
        self.wrong: list[str] = []
        self.again = 0
        self.by_consumer: Counter[int] = Counter()
        self.done = threading.Event()

    def process(self, number: int, key: int, round_: int) -> None:
        with self._lock:
            wanted = self._next[key]
            if round_ > wanted:
                self.wrong.append(f"key {key}: {round_} before {wanted}, at consumer {number}")
            elif round_ < wanted:
                self.again += 1
            else:
                self._next[key] += 1
                self.left -= 1
                self.by_consumer[number] += 1
                if not self.left:
                    self.done.set()


def listener(ledger: Ledger, number: int) -> Any:
    def received(consumer: Any, message: Any) -> None:
        round_ = int(message.data())
        ledger.process(number, int(message.partition_key()), round_)
        try:
            consumer.acknowledge(message)
        except pulsar.AlreadyClosed:
            # Closed meanwhile: it comes again, to somebody else.
            return

    return received


def publish(client: Any, topic: str, count: int, order: random.Random) -> None:
    producer = client.create_producer(
        topic, batching_enabled=False, block_if_queue_full=True, max_pending_messages=2000
    )
    failed: list[Any] = []
    for round_ in range(ROUNDS):
        payload = b"%d" % round_
        keys = list(range(count))
        order.shuffle(keys)
        for key in keys:
            producer.send_async(
                payload,
                lambda result, _id: result == pulsar.Result.Ok or failed.append(result),
                partition_key=str(key),
            )
    producer.flush()
    producer.close()
    assert not failed


@pytest.mark.parametrize("server", ["default"], indirect=True)
def test_order_of_many_keys(server: Server, topic: str) -> None:
    check_order(server, topic, KEYS)


@pytest.mark.parametrize("server", ["miniature"], indirect=True)
def test_order_when_nothing_is_cached(server: Server, topic: str) -> None:
    check_order(server, topic, 2_000)


def check_order(server: Server, topic: str, keys: int) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    client = pulsar.Client(server.url, message_listener_threads=2)
    ledger = Ledger(keys)

    def subscribe(number: int) -> Any:
        return client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.KeyShared,
            consumer_name=f"consumer-{number}",
            receiver_queue_size=chance.choice((10, 100, 1000)),
            message_listener=listener(ledger, number),
        )

    consumers: dict[int, Any] = {number: subscribe(number) for number in range(CONSUMERS)}
    publishing = threading.Thread(target=publish, args=(client, topic, keys, random.Random(seed)))
    publishing.start()
    changes = 0
    try:
        while not ledger.done.wait(0.2) and changes < SECONDS / 0.2:
            number = chance.randrange(CONSUMERS)
            if number in consumers and len(consumers) > 1:
                consumers.pop(number).close()
            elif number not in consumers:
                consumers[number] = subscribe(number)
            changes += 1
        publishing.join()
    finally:
        client.close()
    assert not ledger.wrong, f"seed {seed}: {len(ledger.wrong)}, {ledger.wrong[:5]}"
    assert not ledger.left, f"seed {seed}: {ledger.left} never came"
    assert changes
    assert len(ledger.by_consumer) > CONSUMERS // 2
