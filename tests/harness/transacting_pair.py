"""Two brokers of either kind, each with a coordinator and a topic, and programs with transactions."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from cluster_requests import Broker, asked, http_of
from polling import until

from magnetar.client import (
    Client,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
    Timeout,
    Transaction,
)

NAMESPACE = "public/default"
COORDINATOR = "pulsar/system/transaction_coordinator_assign-partition-{}"
REST = "/admin/v3/transactions"
SECONDS = 60.0
_QUIET_MS = 200


class Pair:
    """Each broker has one of :attr:`coordinators`, which are numbers, and of :attr:`topics`.

    The cluster outlives a test: each test ends its transactions. Another test could not do so for it, because
    a broker of Apache Pulsar 4.0.8 never answers a request for slow transactions when one of their topics is
    not loaded yet (``TransactionsBase.getTransactionMetadata`` completes its future with null).
    """

    def __init__(self, one: Broker, other: Broker, name: str) -> None:
        """:param name: begins the names of the topics; the cluster outlives a test"""
        self.all = (one, other)
        addresses = ",".join(each.url.removeprefix("pulsar://") for each in self.all)
        self.url = f"pulsar://{addresses}"
        self.client = Client(self.url)
        self.coordinators = self._placed([COORDINATOR.format(number) for number in range(16)])
        self.names = [f"{NAMESPACE}/{name}-{number}" for number in range(30)]
        """Those of topics, of which most need not exist."""
        self.topics = [self.names[number] for number in self._placed(self.names)]

    # Requests

    def ask(self, broker: Broker, path: str, method: str = "GET") -> Any:
        """What a broker answers to a request that succeeds."""
        status, answer, _redirects = asked(method, http_of(broker) + path)
        assert status < 300, (path, status, answer)
        return json.loads(answer) if answer[:1] in (b"{", b"[") else answer.decode()

    def same(self, path: str, redirects: set[int], status: int = 200) -> Any:
        """What both brokers answer; snapshots may be stored between the answers.

        :param redirects: how often they send on
        """
        found: list[tuple[int, bytes, int]] = []
        deadline = time.monotonic() + SECONDS
        while not found or found[0][:2] != found[1][:2]:
            assert time.monotonic() < deadline, found
            found = [asked("GET", http_of(broker) + path) for broker in self.all]
        assert found[0][0] == status, (path, found)
        assert {each[2] for each in found} == redirects, (path, found)
        return json.loads(found[0][1])

    # Places

    def bundle(self, topic: str) -> str:
        return str(self.ask(self.all[0], f"/lookup/v2/topic/persistent/{topic}/bundle"))

    def owner(self, topic: str) -> Broker | None:
        """None: it changes."""
        status, answer, _ = asked("GET", f"{http_of(self.all[0])}/lookup/v2/topic/persistent/{topic}")
        url = json.loads(answer)["brokerUrl"] if status == 200 else ""
        return next((each for each in self.all if each.url == url), None)

    def move(self, topic: str, target: Broker) -> None:
        """Has a broker serve a topic, with the rest of its bundle."""
        until(lambda: self.owner(topic) is not None, f"{topic} has an owner", seconds=SECONDS)
        namespace, address = topic.rpartition("/")[0], http_of(target).removeprefix("http://")
        path = f"/admin/v2/namespaces/{namespace}/{self.bundle(topic)}/unload?destinationBroker={address}"
        self.ask(self.all[0], path, "PUT")
        until(lambda: self.owner(topic) is target, f"{topic} is moved", seconds=SECONDS)

    def _placed(self, topics: list[str]) -> list[int]:
        """Has each broker serve a topic; the numbers of these topics."""
        bundles = [self.bundle(topic) for topic in topics]
        numbers = [0, next(number for number, bundle in enumerate(bundles) if bundle != bundles[0])]
        for broker, number in zip(self.all, numbers, strict=True):
            self.move(topics[number], broker)
        return numbers

    # Programs

    def begin(self, coordinator: int, seconds: float = 600.0) -> Transaction:
        """A transaction of a coordinator; clients take their coordinators in turn."""
        while True:
            found = self.client.transaction(timeout=seconds).begin()
            if found.id[0] == coordinator:
                return found
            found.abort()

    def gone(self, transaction: Transaction, asks: int = 0) -> bool:
        """Whether the coordinator has ended a transaction, and told all participants.

        :param asks: the number of the broker that gets the request
        """
        most, least = transaction.id
        url = f"{http_of(self.all[asks])}{REST}/transactionMetadata/{most}/{least}"
        status, _answer, _redirects = asked("GET", url)
        return status == 404

    def subscribed(self) -> list[Consumer]:
        return [
            self.client.subscribe(
                topic,
                "s",
                consumer_type=ConsumerType.Shared,
                initial_position=InitialPosition.Earliest,
                ack_receipt_enabled=True,
            )
            for topic in self.topics
        ]

    def published(self, payload: bytes, transaction: Transaction | None = None) -> list[MessageId]:
        """Sends a message to both topics."""
        found = []
        for topic in self.topics:
            producer = self.client.create_producer(topic, batching_enabled=False)
            found.append(producer.send(payload, transaction=transaction))
            producer.close()
        return found


def arrived(consumer: Consumer, count: int) -> list[Message]:
    """Receives messages, and makes sure that no others follow."""
    found = [consumer.receive(int(SECONDS * 1000)) for _number in range(count)]
    with pytest.raises(Timeout):
        consumer.receive(_QUIET_MS)
    return found


def received(consumer: Consumer, count: int) -> list[bytes]:
    """As :func:`arrived`, and acknowledges them; their contents."""
    found = arrived(consumer, count)
    for message in found:
        consumer.acknowledge(message)
    return [message.data() for message in found]
