"""Where the bundles of a broker that leads go when it stops."""

from __future__ import annotations

from typing import Any, cast

from several_sessions import SeveralSessions

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.ownership.contract import Asked, Bundle, Owner
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.metadata.interface import MetadataUnavailable
from magnetar.naming.bundles import BundleRange
from magnetar.naming.namespace_name import NamespaceName
from magnetar.server.membership import Membership, Registration, whole

BUNDLES = [
    Bundle(NamespaceName.parse("public/default"), BundleRange(n << 24, (n + 1) << 24)) for n in range(4)
]


def joined(world: SeveralSessions, name: str) -> Membership:
    store = world.session()
    registration = Registration(world.io.loop, world.io.clock, store)
    nobody: Any = None
    found = Membership(world.io, store, registration, 10, nobody, nobody)
    known = BrokerSettings(
        "c",
        f"pulsar://{name}:6650",
        f"http://{name}:8080",
        TopicSettings(DispatchSettings()),
        broker_id=f"{name}:8080",
    )
    make, _ = found.made_for(known)
    make(lambda generation: Owner(known.broker_id, known.addresses, True, generation, {}))
    world.run(found.join(known))
    world.loop.run_for(0.2)
    return found


def take(world: SeveralSessions, membership: Membership) -> None:
    assert membership.ownership is not None
    for bundle in BUNDLES:
        assert world.run(membership.ownership.owner_of(bundle, Asked.TAKE)).here


def test_a_leader_says_to_whom_each_of_its_bundles_goes() -> None:
    world = SeveralSessions()
    leader, _two, _three = (joined(world, name) for name in ("one", "two", "three"))
    take(world, leader)
    found = world.run(leader.destinations())
    # Its own heartbeats stay with it.
    assert set(found) == set(BUNDLES)
    assert sorted(found.values()) == ["three:8080"] * 2 + ["two:8080"] * 2


def test_who_does_not_lead_says_nothing() -> None:
    world = SeveralSessions()
    _leader, two = (joined(world, name) for name in ("one", "two"))
    take(world, two)
    assert world.run(two.destinations()) == {}


def test_a_leader_that_is_alone_says_nothing() -> None:
    world = SeveralSessions()
    leader = joined(world, "one")
    take(world, leader)
    assert world.run(leader.destinations()) == {}


def test_what_is_not_known_now_is_left_to_whoever_leads_next() -> None:
    world = SeveralSessions()
    leader, _two = (joined(world, name) for name in ("one", "two"))
    take(world, leader)

    class Failing:
        async def choose(self, _bundle: Bundle, _exclude: frozenset[str]) -> str:
            raise MetadataUnavailable("the store is gone")

    leader._placement = cast(Any, Failing())
    assert world.run(leader.destinations()) == {}
    assert whole(NamespaceName.parse("pulsar/one:8080")) in (
        leader.ownership.held() if leader.ownership else ()
    )


def test_a_registration_that_cannot_be_withdrawn_is_told_of() -> None:
    world = SeveralSessions()
    one, two = (joined(world, name) for name in ("one", "two"))
    assert world.run(one.retire()) is True

    async def silent() -> None:
        raise MetadataUnavailable("no answer")

    two._registration.withdraw = silent  # type: ignore[assignment, method-assign]
    assert world.run(two.retire()) is False
