"""A broker that is stopped while ZooKeeper does not answer ends with an exit code of a failure."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from proxied_broker import ProxiedBroker
from running import running

from magnetar.exit_codes import FAILED, IO_FAILED


@pytest.fixture(params=[60_000])
def broker(
    request: pytest.FixtureRequest, without_brokers: BookKeeperServers, tmp_path: Path
) -> Iterator[ProxiedBroker]:
    """With a topic that has a producer and a consumer."""
    made = ProxiedBroker(tmp_path / "broker", without_brokers, brokerShutdownTimeoutMs=request.param)
    with running([made]):
        client = pulsar.Client(made.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with closing(client):
            consumer = client.subscribe("public/default/orders", "s")
            client.create_producer("public/default/orders").send(b"x")
            consumer.acknowledge(consumer.receive(20_000))
            yield made


@pytest.mark.parametrize("trouble", ["stall", "refuse"])
def test_zookeeper_does_not_answer_until_the_session_is_lost(broker: ProxiedBroker, trouble: str) -> None:
    getattr(broker.wires.zookeeper, trouble)()
    broker.signal(signal.SIGTERM)
    assert broker.ended(60) == IO_FAILED
    assert "the session with ZooKeeper" in broker.log


@pytest.mark.parametrize("broker", [1000], indirect=True)
def test_zookeeper_does_not_answer_within_the_time_for_stopping(broker: ProxiedBroker) -> None:
    broker.wires.zookeeper.stall()
    broker.signal(signal.SIGTERM)
    assert broker.ended(60) == FAILED
    assert "stopping took too long" in broker.log
