"""A broker's entry among those of its cluster: one at a time."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.io.real import real_io
from magnetar.managed_ledger.exports import EXPORTER
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataStore
from magnetar.server.registration import BROKERS, Registration, ServedByAnother


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


def test_a_second_one_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata, first, second = await opened(tmp_path)
        await first.announce(settings(8080), 0)
        with pytest.raises(ServedByAnother, match="here:8080"):
            await second.announce(settings(9090), 0)
        assert await metadata.children(BROKERS) == ["here:8080"]
        await second.withdraw()
        assert await metadata.children(BROKERS) == ["here:8080"]
        await metadata.close()

    asyncio.run(scenario())


def test_the_next_one_waits_until_the_first_has_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata, first, second = await opened(tmp_path)
        await first.announce(settings(8080), 0)
        waiting = asyncio.ensure_future(second.announce(settings(9090), 60))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await first.withdraw()
        await waiting
        assert await metadata.children(BROKERS) == ["here:9090"]
        await metadata.close()

    asyncio.run(scenario())


def test_one_that_comes_all_the_same_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        metadata, first, _ = await opened(tmp_path)
        await first.announce(settings(8080), 0)
        await first.announce(settings(8080), 0)
        await asyncio.sleep(0.05)
        assert not caplog.records
        await metadata.put(f"{BROKERS}/elsewhere:1", b"{}", ephemeral=True)
        await asyncio.sleep(0.05)
        await metadata.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert [record.broker for record in caplog.records] == ["elsewhere:1"]  # type: ignore[attr-defined]
