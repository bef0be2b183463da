"""Which brokers a proxy knows of."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from magnetar.io.real import real_io
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import Node
from magnetar.proxy.brokers import (
    BROKERS,
    Broker,
    BrokerTarget,
    NamedBrokers,
    RegisteredBrokers,
    brokers_of_page,
    is_web_of,
    target_of_url,
)


def record(name: str, **more: object) -> bytes:
    known = {
        "pulsarServiceUrl": f"pulsar://{name}:6650",
        "webServiceUrl": f"http://{name}:8080",
        "pulsarServiceUrlTls": None,
        "cpu": {"usage": 1.0},
        **more,
    }
    return json.dumps(known).encode()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0.005)


def test_registered_brokers_come_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        store = await EmbeddedMetadataStore.open_store(io, "metadata")
        await store.put(f"{BROKERS}/b1:8080", record("b1"))
        brokers = RegisteredBrokers(io.loop, store)
        await brokers.open()
        assert brokers.all == [Broker("pulsar://b1:6650", "", "http://b1:8080")]
        await store.put(f"{BROKERS}/b2:8080", record("b2"))
        await store.put(f"{BROKERS}/b3:8080", b"nonsense")
        await store.put(f"{BROKERS}/b4:8080", b'{"pulsarServiceUrl": 7}')
        for number, nowhere in enumerate(("http://b5:web", "http://[b5", "http://", "http://b5:0")):
            await store.put(f"{BROKERS}/b5:{number}", record("b5", webServiceUrl=nowhere))
        await store.put(f"{BROKERS}/b6:8080", b"[" * 100_000)
        await settled()
        assert [each.http for each in brokers.all] == ["http://b1:8080", "http://b2:8080"]
        await store.delete(f"{BROKERS}/b1:8080")
        await settled()
        assert [each.http for each in brokers.all] == ["http://b2:8080"]
        await brokers.close()

    asyncio.run(work())
    # Each is told of once.
    assert len([each for each in caplog.records if "cannot read the record" in each.message]) == 7


def test_a_page_gets_brokers_of_magnetar_first_and_always_in_the_same_order(tmp_path: Path) -> None:
    async def work() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        store = await EmbeddedMetadataStore.open_store(io, "metadata")
        for name, version in (("b1", "4.0.8"), ("b3", "magnetar-1"), ("b2", "magnetar-1"), ("b0", None)):
            await store.put(f"{BROKERS}/{name}:8080", record(name, brokerVersionString=version))
        brokers = RegisteredBrokers(io.loop, store)
        await brokers.open()
        wanted = [f"http://b{number}:8080" for number in (2, 3, 0, 1)]
        for _ in range(2):
            assert [each.http for each in brokers_of_page(brokers, "")] == wanted
        assert [each.http for each in brokers_of_page(brokers, "B1:8080")] == ["http://b1:8080"]
        assert brokers_of_page(brokers, "b1") == brokers_of_page(brokers, "b9:8080") == []
        await brokers.close()

    asyncio.run(work())


def test_who_goes_while_all_are_read_for_the_first_time_is_not_there(tmp_path: Path) -> None:
    async def work() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        store = await EmbeddedMetadataStore.open_store(io, "metadata")
        for name in ("b1", "b2", "b3", "b4"):
            await store.put(f"{BROKERS}/{name}:8080", record(name))
        get = store.get

        async def slowly(path: str) -> Node | None:
            found = await get(path)
            if path.endswith("/b2:8080") and await store.exists(f"{BROKERS}/b1:8080"):
                # The first one has been read by then.
                await store.delete(f"{BROKERS}/b1:8080")
                await settled()
            return found

        store.get = slowly  # type: ignore[method-assign]
        brokers = RegisteredBrokers(io.loop, store)
        await brokers.open()
        await settled()
        assert [each.http for each in brokers.all] == [f"http://b{number}:8080" for number in (2, 3, 4)]
        await brokers.close()

    asyncio.run(work())


def test_each_broker_has_its_turn() -> None:
    brokers = NamedBrokers("pulsar://a:1,b:2,c:3/", "", "http://a:4", "")
    first = [brokers.in_turn()[0].binary for _ in range(4)]
    assert first == ["pulsar://a:1", "pulsar://b:2", "pulsar://c:3", "pulsar://a:1"]
    assert {each.binary for each in brokers.in_turn()} == {"pulsar://a:1", "pulsar://b:2", "pulsar://c:3"}
    assert [each.http for each in brokers.all] == ["http://a:4", "", ""]
    assert NamedBrokers("", "", "", "").in_turn() == ()


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("pulsar://a:1", BrokerTarget("a", 1)),
        ("pulsar+ssl://[::1]:6651/", BrokerTarget("::1", 6651)),
        ("a:1", None),
        ("pulsar://a", None),
        ("", None),
    ],
)
def test_urls_lead_to_targets(url: str, target: BrokerTarget | None) -> None:
    assert target_of_url(url) == target


def test_an_address_is_that_of_a_broker_or_not() -> None:
    brokers = NamedBrokers("", "", "http://a:4", "https://a:5")
    assert is_web_of(brokers, "http://A:4/admin?x=1")
    assert is_web_of(brokers, "https://a:5/")
    assert not is_web_of(brokers, "http://a:5/")
    assert not is_web_of(brokers, "http://a:4@b:4/")
    assert not is_web_of(brokers, "http://b:4/")
