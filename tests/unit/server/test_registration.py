"""A broker's entry among those of its cluster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from several_sessions import SeveralSessions

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.ownership.brokers import BROKERS
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.io.real import real_io
from magnetar.managed_ledger.exports import EXPORTER
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataStore
from magnetar.server.membership import Registration, ServedByAnother


def settings(port: int) -> BrokerSettings:
    return BrokerSettings(
        cluster="lab",
        service_url=f"pulsar://here:{port + 1}",
        http_url=f"http://here:{port}",
        broker_id=f"here:{port}",
        topic=TopicSettings(DispatchSettings()),
    )


async def opened(directory: Path) -> tuple[MetadataStore, Registration, Registration]:
    io = real_io(asyncio.get_running_loop(), directory)
    metadata = await EmbeddedMetadataStore.open_store(io, "metadata.db")
    first, second = (Registration(io.loop, io.clock, metadata) for _ in range(2))
    return metadata, first, second


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata, registration, _ = await opened(tmp_path)
        await registration.announce(settings(8080), 0)
        node = await metadata.get(f"{BROKERS}/here:8080")
        assert node is not None
        assert node.ephemeral
        record = json.loads(node.value)
        assert record["webServiceUrl"] == "http://here:8080"
        assert record["pulsarServiceUrl"] == "pulsar://here:8081"
        assert "pulsarServiceUrlTls" not in record
        await registration.withdraw()
        assert await metadata.children(BROKERS) == []
        await metadata.close()

    asyncio.run(scenario())


def test_nobody_serves_while_topics_are_exported(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata, registration, _ = await opened(tmp_path)
        await metadata.put(EXPORTER, b"", ephemeral=True)
        with pytest.raises(ServedByAnother, match="magnetar export-ledgers"):
            await registration.announce(settings(8080), 0)
        assert await metadata.children(BROKERS) == []
        await metadata.delete(EXPORTER)
        await registration.announce(settings(8080), 0)
        await metadata.close()

    asyncio.run(scenario())


def test_several_serve_a_cluster(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata, first, second = await opened(tmp_path)
        await first.announce(settings(8080), 0)
        await second.announce(settings(9090), 0)
        assert await metadata.children(BROKERS) == ["here:8080", "here:9090"]
        await second.withdraw()
        assert await metadata.children(BROKERS) == ["here:8080"]
        await metadata.close()

    asyncio.run(scenario())


def test_who_owns_bundles_in_another_way_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata, registration, _ = await opened(tmp_path)
        await metadata.put(f"{BROKERS}/odd:1", b"no record", ephemeral=True)
        other = b'{"loadManagerClassName":"org.apache.pulsar.x.ExtensibleLoadManagerImpl"}'
        await metadata.put(f"{BROKERS}/other:1", other, ephemeral=True)
        with pytest.raises(ServedByAnother, match=r"other:1 has .*ExtensibleLoadManagerImpl"):
            await registration.announce(settings(8080), 60)
        assert await metadata.children(BROKERS) == ["odd:1", "other:1"]
        await metadata.delete(f"{BROKERS}/other:1")
        await registration.announce(settings(8080), 0)
        await metadata.close()

    asyncio.run(scenario())


def test_an_earlier_life_has_to_end_first() -> None:
    world = SeveralSessions()
    earlier, later = world.session(), world.session()
    world.register(earlier, "here:8080")
    registration = Registration(world.io.loop, world.io.clock, later)
    with pytest.raises(ServedByAnother, match=r"here:8080 .this address, an earlier session."):
        world.run(registration.announce(settings(8080), 1))
    waiting = world.loop.create_task(registration.announce(settings(8080), 60))
    world.loop.run_for(1)
    assert not waiting.done()
    world.expire(0)
    world.run(waiting)
    node = world.run(later.get(f"{BROKERS}/here:8080"))
    assert node is not None
    assert node.own


def test_a_broker_may_tell_more_of_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata, registration, _ = await opened(tmp_path)
        io = real_io(asyncio.get_running_loop(), tmp_path)
        told = Registration(
            io.loop, io.clock, metadata, lambda broker: {**registration.without_load(broker), "numTopics": 7}
        )
        await told.announce(settings(8080), 0)
        node = await metadata.get(f"{BROKERS}/here:8080")
        assert node is not None
        assert json.loads(node.value)["numTopics"] == 7
        await metadata.close()

    asyncio.run(scenario())
