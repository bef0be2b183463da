"""A few hundred random steps of the official Python client against a real broker, with restarts and SIGKILLs.

What the simulated model (``tests/simulation/test_semantics_machine.py``) checks of each delivery, as far as a
client library shows it: nothing is lost, order, counts, and nothing that was acknowledged comes
again unless a SIGKILL came within a moment. ``MAGNETAR_CLIENT_STEPS`` sets the number of steps,
``MAGNETAR_FIRST_SEED`` the seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from server import MINIATURE, Server

pulsar = pytest.importorskip("pulsar")

STEPS = int(os.environ.get("MAGNETAR_CLIENT_STEPS", "150"))
SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "1"))
FIRM_SECONDS = 1.0
"""After which an acknowledgement is on the disk."""
WAIT_MS = 20_000
KINDS = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}
KEYS = "abcde"
FORGETFUL = (
    "managedLedgerMaxUnackedRangesToPersist",
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
)
"""Limits beyond which acknowledgements do not outlive the broker: not here."""
SMALL = {key: value for key, value in MINIATURE.items() if key not in FORGETFUL}


@dataclass
class Subscription:
    """What one subscription has delivered, by the number that each message has."""

    kind: str
    consumers: list[Any] = field(default_factory=list)
    held: dict[int, Any] = field(default_factory=dict)
    """What was received and not acknowledged: its newest delivery."""
    acked: dict[int, float] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    """Acknowledged a moment before a SIGKILL."""
    asked_again: dict[int, int] = field(default_factory=dict)
    """How often each was negatively acknowledged."""

    @property
    def in_order(self) -> bool:
        return self.kind in ("Exclusive", "Failover")

    def received(self, message: Any) -> None:
        number = int(message.data())
        if number not in self.doubtful:
            assert number not in self.acked, f"{self.kind}: {number} was acknowledged"
        limit = 0 if self.in_order else self.asked_again.get(number, 0)
        assert message.redelivery_count() <= limit, (self.kind, number, message.redelivery_count(), limit)
        self.held[number] = message

    def acknowledge(self, consumer: Any, number: int) -> None:
        consumer.acknowledge(self.held.pop(number))
        self.doubtful.discard(number)
        self.acked[number] = time.monotonic()

    def killed(self) -> None:
        since = time.monotonic() - FIRM_SECONDS
        for number in [n for n, when in self.acked.items() if when > since]:
            del self.acked[number]
            self.doubtful.add(number)
        self.disconnected()

    def disconnected(self) -> None:
        """What is held comes again: its ids name the former connection's deliveries."""
        self.held.clear()
        self.asked_again.clear()


class World:
    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.random = Random(seed)
        self.topic = f"persistent://public/default/model-{seed}"
        self.client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self.subscriptions = {kind: Subscription(kind) for kind in KINDS}
        self.sent: dict[int, str] = {}
        self.producer: Any = None
        for subscription in self.subscriptions.values():
            self.subscribe(subscription)

    def subscribe(self, subscription: Subscription) -> None:
        most = 1 if subscription.kind == "Exclusive" else 3
        if len(subscription.consumers) < most:
            consumer = self.client.subscribe(
                self.topic,
                subscription.kind,
                KINDS[subscription.kind],
                negative_ack_redelivery_delay_ms=100,
                receiver_queue_size=self.random.choice((1, 10, 1000)),
            )
            subscription.consumers.append(consumer)

    def publish(self) -> None:
        if self.producer is None:
            self.producer = self.client.create_producer(self.topic, batching_enabled=False)
        for _ in range(self.random.randint(1, 10)):
            number, key = len(self.sent), self.random.choice(KEYS)
            self.producer.send(b"%d" % number, partition_key=key)
            self.sent[number] = key

    def receive(self, subscription: Subscription) -> None:
        for consumer in subscription.consumers:
            order: list[int] = []
            while True:
                try:
                    message = consumer.receive(50)
                except pulsar.Timeout:
                    break
                subscription.received(message)
                number = int(message.data())
                if subscription.in_order and number not in subscription.doubtful:
                    order.append(number)
                if self.random.random() < 0.7:
                    subscription.acknowledge(consumer, number)
                elif not subscription.in_order and self.random.random() < 0.5:
                    again = subscription.asked_again
                    again[number] = again.get(number, 0) + 1
                    consumer.negative_acknowledge(subscription.held.pop(number))
            assert order == sorted(order), (subscription.kind, order)

    def leave(self, subscription: Subscription) -> None:
        """All of them: who is left would have to be told apart by what it holds."""
        for consumer in subscription.consumers:
            consumer.close()
        subscription.consumers.clear()
        subscription.disconnected()

    def interrupt(self, how: str) -> None:
        # What was acknowledged a moment ago is on its way to the broker, for a clean end.
        time.sleep(0.3)
        if how == "unload":
            path = f"/admin/v2/{self.topic.replace('://', '/')}/unload"
            assert self.server.ask("PUT", path)[0] == 204
        else:
            for subscription in self.subscriptions.values():
                if how == "kill":
                    subscription.killed()
            self.server.restart(kill=how == "kill")
        for subscription in self.subscriptions.values():
            self.leave(subscription)
            self.subscribe(subscription)

    def step(self) -> None:
        subscription = self.random.choice(list(self.subscriptions.values()))
        action = self.random.random()
        if action < 0.3:
            self.publish()
        elif action < 0.7:
            self.receive(subscription)
        elif action < 0.85:
            self.subscribe(subscription)
        elif action < 0.93:
            time.sleep(0.3)
            self.leave(subscription)
        else:
            self.interrupt(self.random.choice(("unload", "stop", "kill")))

    def finish(self) -> None:
        """Everything that is owed is delivered, in the order of its key to who gets all of it."""
        time.sleep(0.3)
        for subscription in self.subscriptions.values():
            self.leave(subscription)
            self.subscribe(subscription)
            owed = self.sent.keys() - subscription.acked.keys() - subscription.doubtful
            [consumer] = subscription.consumers
            got: list[int] = []
            while owed:
                message = consumer.receive(WAIT_MS)
                subscription.received(message)
                number = int(message.data())
                owed.discard(number)
                got.append(number)
                subscription.acknowledge(consumer, number)
            if subscription.kind != "Shared":
                for key in KEYS:
                    of_key = [number for number in got if self.sent[number] == key]
                    assert of_key == sorted(of_key), (subscription.kind, key, of_key)
        self.client.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", ["default", "miniature"])
def test_random_steps(start_server: Callable[..., Server], variant: str) -> None:
    server = start_server(**(SMALL if variant == "miniature" else {}))
    world = World(server, SEED)
    for _ in range(STEPS):
        world.step()
    world.finish()
