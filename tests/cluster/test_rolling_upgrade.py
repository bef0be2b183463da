"""Brokers of the previous commit are replaced by those of this one, and one back again, under load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from earlier_source import PREVIOUS, earlier_source
from polling import until_wanted
from running import running

pulsar = pytest.importorskip("pulsar")

TOPIC = "persistent://public/default/upgraded"
PARTITIONS = 4
SUBSCRIPTION = "reads"


@pytest.fixture
def brokers(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    """Two brokers of the previous commit."""
    earlier = earlier_source(PREVIOUS, tmp_path / "earlier")
    found = [
        BrokerProcess(tmp_path / f"broker{number}", without_brokers, brokerDeduplicationEnabled="true")
        for number in range(2)
    ]
    for broker in found:
        broker.source = earlier
    with running(found):
        yield found


class Load:
    """A producer and a consumer that go on while brokers come and go."""

    def __init__(self, brokers: list[BrokerProcess]) -> None:
        self.sent = 0
        self.received: list[tuple[str, int]] = []
        """The partition and the number of each message, as they came."""
        hosts = ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)
        self.client = pulsar.Client(
            f"pulsar://{hosts}",
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            operation_timeout_seconds=60,
        )
        self._consumer = self.client.subscribe(TOPIC, SUBSCRIPTION, pulsar.ConsumerType.Failover)
        self._producer = self.client.create_producer(
            TOPIC, producer_name="load", batching_enabled=False, send_timeout_millis=0
        )
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self._stop.wait(0.01):
            self._producer.send(b"%d" % self.sent, partition_key=str(self.sent % 64))
            self.sent += 1

    def _receive(self) -> None:
        while not self._stop.is_set() or len({number for _, number in self.received}) < self.sent:
            try:
                message = self._consumer.receive(timeout_millis=1000)
            except pulsar.Timeout:
                continue
            self.received.append((message.topic_name(), int(message.data())))
            self._consumer.acknowledge(message)

    def more(self) -> None:
        """Waits until messages went through all brokers that there are now."""
        end = self.sent + 100
        until_wanted(lambda: min(self.sent, len(self.received) + 20), lambda done: done >= end)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self.client.close()


@pytest.mark.timeout(300)
def test_brokers_are_upgraded_one_after_the_other(brokers: list[BrokerProcess]) -> None:
    one, other = brokers
    earlier = one.source
    path = "/admin/v2/persistent/public/default/upgraded/partitions"
    assert one.ask("PUT", path, str(PARTITIONS))[0] == 204
    load = Load(brokers)
    try:
        load.more()
        # A broker that stops hands its topics to the other one: in turn, each serves all of them. The last
        # restart hands those of the new release to the earlier one.
        for broker, source in ((one, None), (other, None), (one, earlier), (other, None)):
            broker.stop()
            broker.source = source
            broker.start()
            load.more()
    finally:
        load.stop()
    numbers = {number for _, number in load.received}
    assert numbers == set(range(load.sent)), "messages are missing"
    first: dict[str, list[int]] = {}
    seen = set()
    for partition, number in load.received:
        if number not in seen:
            # A message that was not acknowledged when its broker stopped is delivered again.
            seen.add(number)
            first.setdefault(partition, []).append(number)
    assert len(first) == PARTITIONS
    assert all(numbers == sorted(numbers) for numbers in first.values()), "the order has changed"
    assert "Traceback" not in one.log + other.log
