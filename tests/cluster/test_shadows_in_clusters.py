"""A shadow topic at one broker reads the ledgers that another broker writes, from ZooKeeper and bookies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from cluster_requests import asked
from running import running

NAMESPACE = "public/default"
ROOT = f"/admin/v2/persistent/{NAMESPACE}"


@pytest.fixture
def brokers(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    found = [BrokerProcess(tmp_path / f"broker{number}", without_brokers) for number in range(2)]
    with running(found):
        yield found


def served_by(broker: BrokerProcess, topic: str) -> str:
    status, told, _ = asked("GET", f"{broker.http_url}/lookup/v2/topic/persistent/{NAMESPACE}/{topic}")
    assert status == 200, told
    return str(json.loads(told)["brokerUrl"])


def put(broker: BrokerProcess, path: str, body: object) -> None:
    status, told, _ = asked("PUT", f"{broker.http_url}{ROOT}/{path}", body)
    assert status == 204, told


def test_a_shadow_at_another_broker_has_the_last_message_at_once(brokers: list[BrokerProcess]) -> None:
    one = brokers[0]
    owners = {name: served_by(one, name) for name in (f"t{number}" for number in range(64))}
    source = "t0"
    shadow = next((name for name, owner in owners.items() if owner != owners[source]), "t1")
    put(one, source, {})
    put(one, shadow, {"PULSAR.SHADOW_SOURCE": f"persistent://{NAMESPACE}/{source}"})
    put(one, f"{source}/shadowTopics", [f"persistent://{NAMESPACE}/{shadow}"])
    client = pulsar.Client(one.url)
    producer = client.create_producer(source, batching_enabled=False)
    consumer = client.subscribe(shadow, "s", initial_position=pulsar.InitialPosition.Earliest)
    for unloaded in ("", shadow, source, ""):
        if unloaded:
            put(one, f"{unloaded}/unload", None)
        for number in range(3):
            sent = producer.send(b"%d" % number)
            message = consumer.receive(60_000)
            while message.message_id() < sent:
                # What was acknowledged before an unload may come again.
                consumer.acknowledge(message)
                message = consumer.receive(60_000)
            consumer.acknowledge(message)
            assert (message.data(), message.message_id()) == (b"%d" % number, sent)
    client.close()
