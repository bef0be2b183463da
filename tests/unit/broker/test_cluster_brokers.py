"""Which brokers live, and which of them leads."""

from __future__ import annotations

import json
import logging

import pytest
from several_sessions import SeveralSessions

from magnetar.broker.ownership.brokers import (
    BROKERS,
    LEADER,
    Leadership,
    LiveBrokers,
    listeners_json,
    listeners_of,
)
from magnetar.broker.ownership.cluster import FewestBundles
from magnetar.broker.ownership.contract import Addresses, Bundle
from magnetar.io.waiting import sleep
from magnetar.metadata.interface import Node
from magnetar.naming.bundles import BundleRange
from magnetar.naming.namespace_name import NamespaceName


def leadership(world: SeveralSessions, name: str) -> Leadership:
    store = world.session()
    world.register(store, name)
    return Leadership(world.io, store, world.live_brokers(store), name, f"http://{name}")


def test_brokers_come_change_and_go() -> None:
    world = SeveralSessions()
    one, two = world.session(), world.session()
    world.register(one, "one:80", persistentTopicsEnabled=False, brokerVersionString="4.0.8")
    live = world.live_brokers(two)
    told: list[list[str]] = []
    live.listen(lambda: told.append(list(live.all)))
    record = live.all["one:80"]
    assert record.addresses == Addresses("pulsar://one:6650", None, "http://one:80", None)
    assert (record.persistent_topics, record.non_persistent_topics) == (False, True)
    assert record.version == "4.0.8"
    assert live.at_http("http://one:80") is record
    assert live.at_http(None) is None
    world.register(two, "two:80")
    world.register(one, "one:80", someField=[1])
    assert live.all["one:80"].raw["someField"] == [1]
    world.expire(0)
    world.loop.run_for(0.1)
    assert list(live.all) == ["two:80"]
    assert told == [["one:80", "two:80"], ["one:80", "two:80"], ["two:80"]]


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{nonsense", b'{"webServiceUrl":5}', b'{"advertisedListeners":1}', b"[" * 100_000],
    ids=range(6),
)
def test_a_record_that_cannot_be_read_is_left_out_and_told_of_once(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world = SeveralSessions()
    store = world.session()
    live = world.live_brokers(store)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            world.run(store.put(f"{BROKERS}/odd:80", value, ephemeral=True))
            world.loop.run_for(0.1)
        assert not live.all
    assert [each.broker for each in caplog.records] == ["odd:80"]  # type: ignore[attr-defined]
    world.register(store, "odd:80")
    assert list(live.all) == ["odd:80"]


def test_what_changed_while_the_connection_was_lost_is_seen() -> None:
    world = SeveralSessions()
    one, two = world.session(), world.session()
    live = world.live_brokers(two)
    world.server.drop_connections()
    world.run(one.put(f"{BROKERS}/one:80", b"{}", ephemeral=True))
    world.loop.run_for(3)
    assert list(live.all) == ["one:80"]


def test_who_goes_while_all_are_read_for_the_first_time_is_not_there() -> None:
    world = SeveralSessions()
    one, two, three = world.session(), world.session(), world.session()
    world.register(one, "one:80")
    world.register(two, "two:80")
    live, get = LiveBrokers(world.io, three), three.get

    async def slowly(path: str) -> Node | None:
        found = await get(path)
        if path.endswith("/two:80"):
            # The first one has been read by then.
            world.expire(0)
            await sleep(world.loop, 0.5)
        return found

    three.get = slowly  # type: ignore[method-assign]
    world.run(live.start())
    world.loop.run_for(0.5)
    assert list(live.all) == ["two:80"]


def test_listeners_are_read_as_they_are_written() -> None:
    named = {
        "inside": Addresses("pulsar://a:1", None, "http://a:2"),
        "outside": Addresses(None, "pulsar+ssl://b:1"),
    }
    assert listeners_of(listeners_json(named)) == named


def test_the_first_one_leads_and_then_the_next() -> None:
    world = SeveralSessions()
    one, two = leadership(world, "one:80"), leadership(world, "two:80")
    world.run(one.start())
    world.run(two.start())
    assert (one.is_leader, two.is_leader) == (True, False)
    leader = two.leader()
    assert leader is not None
    assert leader.broker_id == "one:80"
    node = world.run(world.session().get(LEADER))
    assert node is not None
    assert node.ephemeral
    assert json.loads(node.value) == {"brokerId": "one:80", "serviceUrl": "http://one:80"}
    told: list[bool] = []
    two.listen(lambda: told.append(two.is_leader))
    world.run(one.stop())
    world.loop.run_for(0.1)
    assert (one.is_leader, two.is_leader, told) == (False, True, [True])


def test_who_loses_the_session_leads_no_more() -> None:
    world = SeveralSessions()
    one, two = leadership(world, "one:80"), leadership(world, "two:80")
    world.run(one.start())
    world.run(two.start())
    world.expire(0)
    world.loop.run_for(0.5)
    assert two.is_leader
    assert two.leader_id == "two:80"
    world.loop.run_for(10)
    assert not one.is_leader
    assert one.leader_id == "two:80"


def test_an_earlier_life_of_the_same_broker_is_replaced_and_no_other() -> None:
    world = SeveralSessions()
    earlier = world.session()
    world.run(earlier.put(LEADER, b'{"brokerId":"one:80"}', ephemeral=True))
    another, later = leadership(world, "two:80"), leadership(world, "one:80")
    world.run(another.start())
    assert (another.is_leader, another.leader_id) == (False, "one:80")
    world.run(later.start())
    world.loop.run_for(0.5)
    # Whoever was faster when the node of the earlier life went.
    assert another.is_leader != later.is_leader
    assert another.leader_id == later.leader_id
    node = world.run(earlier.get(LEADER))
    assert node is not None
    assert not node.own


def test_of_several_that_come_at_once_one_leads() -> None:
    world = SeveralSessions()
    all_of_them = [leadership(world, f"b{number}:80") for number in range(5)]
    tasks = [world.loop.create_task(each.start()) for each in all_of_them]
    for task in tasks:
        world.run(task)
    assert sum(each.is_leader for each in all_of_them) == 1
    assert len({each.leader_id for each in all_of_them}) == 1


def test_bundles_are_spread_and_brokers_excluded() -> None:
    world = SeveralSessions()
    store = world.session()
    live = world.live_brokers(store)
    placement = FewestBundles(world.io.clock, live)
    bundle = Bundle(NamespaceName.parse("public/default"), BundleRange(0, 1))
    assert world.run(placement.choose(bundle)) is None
    for name in ("a:1", "b:1", "c:1"):
        world.register(store, name)
    others = [Bundle(NamespaceName.parse("public/default"), BundleRange(n, n + 1)) for n in range(1, 5)]
    assert [world.run(placement.choose(each)) for each in others] == ["a:1", "b:1", "c:1", "a:1"]
    assert world.run(placement.choose(bundle, frozenset({"b:1"}))) == "c:1"
    assert world.run(placement.choose(bundle, frozenset({"a:1", "b:1", "c:1"}))) is not None
