"""Bundles among several brokers: each has its session with one model of a ZooKeeper server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from several_sessions import SeveralSessions

from magnetar.broker.ownership.brokers import Leadership
from magnetar.broker.ownership.bundles import path_of
from magnetar.broker.ownership.cluster import ClusterOwnership, FewestBundles
from magnetar.broker.ownership.contract import Addresses, Asked, Bundle, Owner
from magnetar.errors import ServiceNotReady
from magnetar.io.waiting import sleep
from magnetar.metadata.interface import MetadataUnavailable, Node
from magnetar.naming.bundles import BundleRange
from magnetar.naming.namespace_name import NamespaceName

NAMESPACE = NamespaceName.parse("public/default")
BUNDLE = Bundle(NAMESPACE, BundleRange(0, 0x40000000))
SECOND = Bundle(NAMESPACE, BundleRange(0x40000000, 0x80000000))


class Broker:
    def __init__(self, world: SeveralSessions, name: str, *, tls: bool = False) -> None:
        """:param tls: it has listeners with TLS, and no others"""
        self.world = world
        self.name = name
        self.number = len(world.stores)
        self.store = world.session()
        self.lost: list[Bundle | None] = []
        host = name.partition(":")[0]
        addresses = (
            Addresses(None, f"pulsar+ssl://{host}:6651", None, f"https://{name}")
            if tls
            else Addresses(f"pulsar://{host}:6650", None, f"http://{name}")
        )
        inside = {"inside": Addresses(f"pulsar://{host}.inside:6650")}
        world.register(self.store, name)
        live = world.live_brokers(self.store)
        self.placement = FewestBundles(world.io.clock, live)
        self.leadership = Leadership(world.io, self.store, live, name, f"http://{name}")
        self.ownership = ClusterOwnership(
            world.io,
            self.store,
            lambda generation: Owner(name, addresses, True, generation, inside),
            live,
            self.leadership,
            self.placement,
        )
        self.ownership.listen(self.lost.append)

    def asked(self, bundle: Bundle = BUNDLE, asked: Asked = Asked.PLACE) -> Owner:
        return self.world.run(self.ownership.owner_of(bundle, asked))

    def gives_up(self, bundle: Bundle = BUNDLE, towards: str | None = None) -> None:
        assert self.ownership.begin_release(bundle)
        self.world.run(self.ownership.release(bundle, towards))
        self.world.loop.run_for(0.1)


def brokers(world: SeveralSessions, *names: str, tls: bool = False) -> list[Broker]:
    """The first of them leads."""
    found = [Broker(world, name, tls=tls) for name in names]
    for each in found:
        world.run(each.leadership.start())
    world.loop.run_for(0.1)
    return found


def test_the_leader_says_who_is_to_take_a_bundle_and_all_tell_the_same_then() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    asked_first = two.asked()
    assert (asked_first.broker_id, asked_first.settled, asked_first.authoritative) == ("one:80", False, False)
    # The leader gives the first one to itself, the next one to the other.
    assert one.asked().here
    chosen = one.asked(SECOND)
    assert (chosen.broker_id, chosen.settled, chosen.authoritative) == ("two:80", False, True)
    taken = two.asked(SECOND, Asked.TAKE)
    assert taken.here
    assert two.ownership.is_current(SECOND, taken)
    for broker, bundle, owner in ((two, BUNDLE, "one:80"), (one, SECOND, "two:80")):
        told = broker.asked(bundle)
        assert (told.broker_id, told.settled, told.here) == (owner, True, False)
        assert told.addresses_of("inside").binary == f"pulsar://{owner[:3]}.inside:6650"
    assert one.ownership.held() == [BUNDLE]


def test_the_node_is_as_apache_pulsar_writes_it() -> None:
    world = SeveralSessions()
    (one,) = brokers(world, "one:80")
    one.asked()
    node = world.run(one.store.get(path_of(BUNDLE)))
    assert node is not None
    assert node.path == "/namespace/public/default/0x00000000_0x40000000"
    assert node.ephemeral
    assert json.loads(node.value) == {
        "nativeUrl": "pulsar://one:6650",
        "httpUrl": "http://one:80",
        "disabled": False,
        "advertisedListeners": {"inside": {"brokerServiceUrl": "pulsar://one.inside:6650"}},
    }


def test_of_several_that_are_told_to_take_a_bundle_one_has_it() -> None:
    world = SeveralSessions()
    all_of_them = brokers(world, "one:80", "two:80", "three:80")
    tasks = [
        world.loop.create_task(each.ownership.owner_of(BUNDLE, Asked.TAKE))
        for each in all_of_them
        for _ in "ab"
    ]
    owners = [world.run(task) for task in tasks]
    assert len({owner.broker_id for owner in owners}) == 1
    assert sum(owner.here for owner in owners) == 2
    assert all(owner.settled for owner in owners)


def test_who_only_looks_changes_nothing() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    with pytest.raises(ServiceNotReady, match="redo the lookup"):
        one.asked(asked=Asked.LOOK)
    two.asked(asked=Asked.TAKE)
    world.loop.run_for(0.1)
    assert one.asked(asked=Asked.LOOK).broker_id == "two:80"


def test_what_is_given_up_is_taken_by_another_and_never_by_an_old_right() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    before = one.asked(asked=Asked.TAKE)
    assert one.ownership.begin_release(BUNDLE)
    assert not one.ownership.begin_release(BUNDLE)
    # What was begun by that right is waited for; nothing new is.
    assert one.ownership.is_current(BUNDLE, before)
    with pytest.raises(ServiceNotReady, match="being unloaded"):
        one.asked()
    world.run(one.ownership.release(BUNDLE))
    assert not one.ownership.is_current(BUNDLE, before)
    world.loop.run_for(0.1)
    assert two.asked(asked=Asked.TAKE).here
    assert not one.asked().here
    two.gives_up()
    again = one.asked(asked=Asked.TAKE)
    assert again.here
    assert again.generation != before.generation
    assert not one.ownership.is_current(BUNDLE, before)
    assert not one.lost
    assert not two.lost


def test_what_is_given_up_towards_a_broker_goes_there_once() -> None:
    world = SeveralSessions()
    one, _two, _three = brokers(world, "one:80", "two:80", "three:80")
    for _ in range(2):
        one.asked(asked=Asked.TAKE)
        one.gives_up(towards="three:80")
        # Clients of several of its topics come at once.
        assert [one.asked().broker_id for _ in range(3)] == ["three:80"] * 3
    one.placement.prefer(BUNDLE, "gone:80", owned=False)
    assert one.asked().broker_id != "gone:80"


def test_where_a_bundle_is_to_go_counts_until_somebody_has_it() -> None:
    world = SeveralSessions()
    one, two, three = brokers(world, "one:80", "two:80", "three:80")
    one.placement.prefer(BUNDLE, "three:80", owned=False)
    assert two.asked(asked=Asked.TAKE).here
    world.loop.run_for(0.5)
    two.gives_up()
    world.loop.run_for(0.5)
    assert one.asked().here
    one.gives_up()
    one.placement.prefer(BUNDLE, "two:80", owned=False)
    assert one.asked().broker_id == "two:80"
    world.loop.run_for(60)
    assert one.asked().broker_id == "three:80"
    assert not three.lost


def test_the_late_arrival_at_the_previous_owner_leaves_the_destination() -> None:
    world = SeveralSessions()
    one, two, _three = brokers(world, "one:80", "two:80", "three:80")
    assert two.asked(asked=Asked.TAKE).here
    # The leader is asked before its watch tells it of the owner.
    one.placement.prefer(BUNDLE, "three:80", owned=True)
    world.loop.run_for(0.5)
    two.gives_up()
    world.loop.run_for(0.5)
    assert one.asked().broker_id == "three:80"
    assert two.asked(asked=Asked.TAKE).here
    world.loop.run_for(0.5)
    two.gives_up()
    world.loop.run_for(0.5)
    assert one.asked().here


def test_a_read_asks_the_store_and_not_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    assert two.asked(asked=Asked.TAKE).here
    world.loop.run_for(0.5)
    assert one.asked(asked=Asked.LOOK).broker_id == "two:80"
    reads: list[str] = []
    get = one.store.get

    def counted(path: str) -> Any:
        reads.append(path)
        return get(path)

    monkeypatch.setattr(one.store, "get", counted)
    assert one.asked(asked=Asked.LOOK).broker_id == "two:80"
    assert not reads
    assert one.asked(asked=Asked.READ).broker_id == "two:80"
    assert len(reads) == 1


def test_the_latest_word_counts_and_what_was_said_of_a_broker_that_went_is_forgotten() -> None:
    world = SeveralSessions()
    one, two, three = brokers(world, "one:80", "two:80", "three:80")
    one.placement.prefer(BUNDLE, "two:80", owned=False)
    one.placement.prefer(BUNDLE, "three:80", owned=False)
    assert one.asked().broker_id == "three:80"
    world.run(three.store.delete("/loadbalance/brokers/three:80"))
    world.loop.run_for(0.1)
    one.placement.prefer(SECOND, "three:80", owned=False)
    told = one.asked()
    assert told.here
    assert one.asked(SECOND).broker_id == "two:80"
    world.register(three.store, "three:80")
    one.gives_up()
    # It is chosen for having nothing, not for what was said before it went.
    one.placement.prefer(BUNDLE, "two:80", owned=False)
    assert one.asked().broker_id == "two:80"
    assert not two.lost


def test_who_was_sent_to_a_broker_and_who_comes_right_after_hear_the_same() -> None:
    world = SeveralSessions()
    one, _two = brokers(world, "one:80", "two:80")
    assert one.asked().here
    assert [one.asked(SECOND).broker_id for _ in range(3)] == ["two:80"] * 3


def test_who_does_not_know_whether_it_gave_a_bundle_up_takes_it_from_nobody() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    assert one.asked().here
    delete, get = one.store.delete, one.store.get

    async def overtaken(path: str, version: int | None = None) -> None:
        await delete(path, version)
        # Nor can it look at it now.
        one.store.get = away  # type: ignore[method-assign, assignment]
        await two.ownership.owner_of(BUNDLE, Asked.TAKE)
        raise MetadataUnavailable("the answer is lost")

    async def away(_path: str) -> None:
        raise MetadataUnavailable("not connected")

    one.store.delete = overtaken  # type: ignore[method-assign]
    with pytest.raises(MetadataUnavailable):
        one.gives_up()
    assert one.ownership.held() == [BUNDLE]
    one.store.delete, one.store.get = delete, get  # type: ignore[method-assign]
    one.gives_up()
    assert one.ownership.held() == []
    assert two.asked().here
    node = world.run(two.store.get(path_of(BUNDLE)))
    assert node is not None
    assert node.own


@pytest.mark.parametrize("asked", list(Asked))
def test_a_bundle_that_was_taken_without_anybody_knowing_is_there(asked: Asked) -> None:
    world = SeveralSessions()
    two, one = brokers(world, "two:80", "one:80")
    put = one.store.put

    async def unanswered(*values: Any, **named: Any) -> Node:
        await put(*values, **named)
        raise MetadataUnavailable("the answer is lost, and so is all that was asked after it")

    one.store.put = unanswered  # type: ignore[method-assign]
    with pytest.raises(ServiceNotReady, match="the answer is lost"):
        one.asked(asked=Asked.TAKE)
    one.store.put = put  # type: ignore[method-assign]
    assert not one.ownership.held()
    world.loop.run_for(0.5)
    found = one.asked(asked=asked)
    assert found.here
    assert one.ownership.is_current(BUNDLE, found)
    assert two.asked().broker_id == "one:80"
    one.gives_up()
    assert two.asked(asked=Asked.TAKE).here


def test_what_is_read_late_brings_nothing_back_that_was_given_up() -> None:
    world = SeveralSessions()
    two, one = brokers(world, "two:80", "one:80")
    assert one.asked(asked=Asked.TAKE).here
    get = one.store.get

    async def slowly(path: str) -> Node | None:
        found = await get(path)
        await sleep(world.loop, 0.2)
        return found

    # It is not known that it is this broker's, and read anew; meanwhile it is given up.
    held = one.ownership._held.pop(BUNDLE)
    one.store.get = slowly  # type: ignore[method-assign]
    asking = world.loop.create_task(one.ownership.owner_of(BUNDLE, Asked.LOOK))
    world.loop.run_for(0.1)
    one.ownership._held[BUNDLE] = held
    one.gives_up()
    with pytest.raises(ServiceNotReady, match="served by no broker"):
        world.run(asking)
    assert two.asked(asked=Asked.TAKE).here


def test_a_bundle_that_another_one_takes_away_is_lost() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    owner = one.asked(asked=Asked.TAKE)
    world.run(two.store.delete(path_of(BUNDLE)))
    assert two.asked(asked=Asked.TAKE).here
    world.loop.run_for(0.5)
    assert one.lost == [BUNDLE]
    assert not one.ownership.is_current(BUNDLE, owner)
    assert one.asked().broker_id == "two:80"


def test_a_bundle_that_went_while_the_connection_was_lost_is_lost() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    one.asked(asked=Asked.TAKE)
    one.asked(SECOND, Asked.TAKE)
    world.server.drop_connections()
    world.run(two.store.delete(path_of(BUNDLE)))
    world.loop.run_for(3)
    assert one.lost == [BUNDLE]
    assert one.ownership.held() == [SECOND]


def test_a_node_of_an_earlier_life_is_replaced_and_one_of_another_is_not() -> None:
    world = SeveralSessions()
    earlier, two = brokers(world, "one:80", "two:80")
    earlier.asked(asked=Asked.TAKE)
    two.asked(SECOND, Asked.TAKE)
    (later,) = brokers(world, "one:80")
    assert later.asked(asked=Asked.TAKE).here
    node = world.run(later.store.get(path_of(BUNDLE)))
    assert node is not None
    assert node.own
    told = later.asked(SECOND, Asked.TAKE)
    assert (told.here, told.broker_id) == (False, "two:80")
    # The earlier one, should it still run, hears of it.
    world.loop.run_for(0.5)
    assert earlier.lost == [BUNDLE]


def test_brokers_with_tls_alone_take_nothing_from_each_other() -> None:
    world = SeveralSessions()
    earlier, two = brokers(world, "one:443", "two:443", tls=True)
    assert earlier.asked(asked=Asked.TAKE).here
    for asked in (Asked.TAKE, Asked.LOOK, Asked.PLACE):
        told = two.asked(asked=asked)
        assert (told.here, told.settled) == (False, True)
        assert told.addresses.http_tls == "https://one:443"
    world.loop.run_for(0.5)
    assert not earlier.lost
    (later,) = brokers(world, "one:443", tls=True)
    assert later.asked(asked=Asked.TAKE).here


def test_the_end_of_a_session_loses_everything() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    owner = one.asked(asked=Asked.TAKE)
    world.expire(0)
    world.loop.run_for(0.1)
    assert two.asked().settled is False or two.asked().here
    world.loop.run_for(10)
    assert one.lost == [None]
    assert not one.ownership.is_current(BUNDLE, owner)
    assert not one.ownership.held()


def test_a_disabled_node_is_waited_out() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    value = b'{"nativeUrl":"pulsar://two:6650","httpUrl":"http://two:80","disabled":true}'
    world.run(two.store.put(path_of(BUNDLE), value, ephemeral=True))
    with pytest.raises(ServiceNotReady, match="being unloaded by its owner"):
        one.asked()
    world.run(two.store.delete(path_of(BUNDLE)))
    world.loop.run_for(0.1)
    assert one.asked().broker_id


def test_namespaces_of_one_broker_go_to_it() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    for name in ("pulsar/two:80", "pulsar/lab/two:80", "sla-monitor/lab/two:80"):
        bundle = Bundle(NamespaceName.parse(name), BundleRange(0, 0xFFFFFFFF))
        told = one.asked(bundle)
        assert (told.broker_id, told.settled, told.authoritative) == ("two:80", False, True)
        assert two.asked(bundle).here


def test_without_a_leader_whoever_is_asked_decides() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    world.run(one.store.delete("/loadbalance/brokers/one:80"))
    world.loop.run_for(0.1)
    assert two.leadership.leader_id == "one:80"
    assert two.asked().here


def test_what_was_begun_before_a_bundle_was_divided_is_not_in_vain() -> None:
    world = SeveralSessions()
    (one,) = brokers(world, "one:80")
    whole = one.asked()
    world.run(one.ownership.retire_bundle(BUNDLE))
    assert one.ownership.is_current(BUNDLE, whole)
    with pytest.raises(ServiceNotReady):
        one.asked(asked=Asked.LOOK)
    world.expire(0)
    world.loop.run_for(10)
    assert not one.ownership.is_current(BUNDLE, whole)


def test_a_bundle_that_was_divided_is_one_like_others_when_its_namespace_was_made_anew() -> None:
    world = SeveralSessions()
    one, two = brokers(world, "one:80", "two:80")
    assert one.asked().here
    world.run(one.ownership.retire_bundle(BUNDLE))
    with pytest.raises(ServiceNotReady, match="being unloaded"):
        two.asked(asked=Asked.TAKE)
    # With the namespace its nodes are deleted.
    world.run(two.store.delete(path_of(BUNDLE)))
    world.loop.run_for(0.5)
    assert two.asked(asked=Asked.TAKE).here
    two.gives_up()
    again = one.asked(asked=Asked.TAKE)
    assert again.here
    assert one.ownership.is_current(BUNDLE, again)
    assert one.ownership.held() == [BUNDLE]
    assert not one.lost


def test_who_retires_takes_nothing_more_and_keeps_what_it_has() -> None:
    world = SeveralSessions()
    (one,) = brokers(world, "one:80")
    one.asked(asked=Asked.TAKE)
    one.ownership.retire()
    assert one.asked().here
    with pytest.raises(ServiceNotReady, match="stopping"):
        one.asked(SECOND, Asked.TAKE)
