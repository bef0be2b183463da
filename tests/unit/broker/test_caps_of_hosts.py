"""How many producers and consumers of a topic may come from one host; tenants and their namespaces."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lived import Lived
from peers import TOPIC, Brokers, Peer, subscribe_frame

from magnetar.broker.admin.all import Admin
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.errors import PreconditionFailed
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def brokers(**caps: int) -> Brokers:
    made = Brokers()
    topic = replace(made.broker.settings.topic, **caps)  # type: ignore[arg-type]
    made.broker.settings = replace(made.broker.settings, topic=topic)
    return made


def refusal(world: Brokers, peer: Peer) -> str:
    world.until(lambda: peer.count(BaseCommand.ERROR))
    return peer.received(BaseCommand.ERROR)[0].error.message


def test_producers_of_one_host() -> None:
    world = brokers(max_same_address_producers=2)
    for _ in range(2):
        world.publisher()
    peer = Peer(world)
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1)
    assert refusal(world, peer) == f"Topic '{TOPIC}' reached max same address producers limit"
    world.publisher(TOPIC + "-another")


def test_consumers_of_one_host() -> None:
    world = brokers(max_same_address_consumers=2)
    world.subscribed("s", 1)
    world.subscribed("t", 1)
    peer = Peer(world)
    peer.connection.data_received(subscribe_frame(1, "u", 1))
    assert refusal(world, peer) == "Topic reached max same address consumers limit"


def test_tenants_and_their_namespaces() -> None:
    lived = Lived(EffectivePolicies(), max_tenants=3, max_namespaces_per_tenant=2)
    admin = Admin(lived.broker)
    info = {"allowedClusters": ["standalone"]}
    while len(lived.world.run(admin.tenants.names())) < 3:
        number = len(lived.world.run(admin.tenants.names()))
        lived.world.run(admin.tenants.create(f"t{number}", info))
    with pytest.raises(PreconditionFailed, match="Exceed the maximum number of tenants"):
        lived.world.run(admin.tenants.create("more", info))
    [tenant] = [name for name in lived.world.run(admin.tenants.names()) if name.startswith("t")][:1]
    for number in range(2):
        lived.world.run(admin.namespaces.create(f"{tenant}/n{number}", {}))
    with pytest.raises(PreconditionFailed, match=f"maximum number of namespace in tenant :{tenant}"):
        lived.world.run(admin.namespaces.create(f"{tenant}/more", {}))
