"""Topics are served by the broker that owns their bundle, and by no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from lived import NAME, Lived

from magnetar.broker.admin.all import Admin
from magnetar.broker.ownership.contract import Addresses, Asked, Bundle, Lost, Owner
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.errors import InvalidRequest, NamespaceNotFound, ServedElsewhere, ServiceNotReady
from magnetar.naming.topic_name import TopicName

OTHER = Addresses("pulsar://other:6650", "pulsar+ssl://other:6651", "http://other:8080", "https://other:8443")


class Two:
    """Two brokers; this one owns everything until told otherwise."""

    def __init__(self) -> None:
        self.generation = 1
        self.here = True
        self.settled = True
        self.asked: list[str] = []
        self.kinds: list[bool] = []
        """Whether it was asked for a persistent topic."""
        self.lost: list[Lost] = []
        self.moves_when_asked = False

    def check_serving(self) -> None:
        """It always can."""

    def held(self) -> Sequence[Bundle]:
        return ()

    def begin_release(self, bundle: Bundle) -> bool:
        return False

    async def release(self, bundle: Bundle, towards: str | None = None) -> None:
        raise AssertionError("nothing is given up here")

    async def retire_bundle(self, bundle: Bundle) -> None:
        raise AssertionError("nothing is divided here")

    async def owner_of(self, bundle: Bundle, asked: Asked = Asked.PLACE, *, persistent: bool = True) -> Owner:
        self.asked.append(str(bundle))
        self.kinds.append(persistent)
        outside = {"external": Addresses("pulsar://outside:6650")}
        name = "one" if self.here else "other:8080"
        owner = Owner(name, OTHER, self.here, self.generation, outside, settled=self.settled)
        if self.moves_when_asked:
            self.moves_when_asked = False
            self.generation += 1
        return owner

    def is_current(self, bundle: Bundle, owner: Owner) -> bool:
        return owner.generation == self.generation

    def listen(self, lost: Lost) -> None:
        self.lost.append(lost)


@pytest.fixture
def two() -> Two:
    return Two()


@pytest.fixture
def lived(two: Two) -> Lived:
    return Lived(EffectivePolicies(), ownership=two)


def test_lookup_loading_and_administration_ask_for_the_owner_of_the_bundle(lived: Lived, two: Two) -> None:
    two.here = False
    admin = Admin(lived.broker)
    found = lived.world.run(admin.brokers.lookup(str(NAME)))
    assert (found.redirect, found.broker_url, found.http_url) == (False, OTHER.binary, OTHER.http)
    with pytest.raises(ServedElsewhere, match="other:8080") as elsewhere:
        lived.topic()
    assert (elsewhere.value.http_url, elsewhere.value.http_url_tls) == (OTHER.http, OTHER.http_tls)
    with pytest.raises(ServedElsewhere):
        lived.world.run(admin.brokers.check_here(str(NAME)))
    bundle = lived.world.run(admin.brokers.bundle(str(NAME)))
    assert two.asked == [f"public/default/{bundle}"] * 3
    assert not lived.broker.topics.loaded


def test_lookups_tell_the_kind_of_topic(lived: Lived, two: Two) -> None:
    """A bundle that nobody has went to a broker for persistent topics, whatever it was wanted for."""
    for kind in ("persistent", "non-persistent"):
        lived.world.run(Admin(lived.broker).brokers.lookup(f"{kind}://public/default/t"))
    assert two.kinds == [True, False]


@pytest.mark.parametrize("local", ["__change_events", "healthcheck", "t-partition-3"])
def test_system_topics_and_partitions_lie_in_bundles_like_all_others(lived: Lived, local: str) -> None:
    name = TopicName.parse(f"persistent://public/default/{local}")
    bundle = lived.world.run(lived.broker.bundles.of_topic(name))
    assert name in bundle
    with pytest.raises(NamespaceNotFound):
        lived.world.run(lived.broker.bundles.of_topic(TopicName.parse(f"persistent://public/none/{local}")))


def test_who_is_to_be_asked_next_is_told_apart_from_who_serves(lived: Lived, two: Two) -> None:
    two.here = two.settled = False
    found = lived.world.run(Admin(lived.broker).brokers.lookup(str(NAME)))
    assert (found.redirect, found.broker_url) == (True, OTHER.binary)


def test_lookups_are_counted_by_how_they_ended(lived: Lived, two: Two) -> None:
    admin, run = Admin(lived.broker).brokers, lived.world.run
    run(admin.lookup(str(NAME)))
    run(admin.lookup(str(NAME)))
    two.here = two.settled = False
    run(admin.lookup(str(NAME)))
    with pytest.raises(NamespaceNotFound):
        run(admin.lookup("persistent://public/none/t"))
    told = run(take_snapshot(lived.broker)).lookups
    assert (told.answers, told.redirects, told.failures, told.timing.count) == (2, 1, 1, 3)
    assert {end: sum(each.counts) for end, each in told.durations.items()} == {
        "broker": 2,
        "redirect": 1,
        "failure": 1,
    }


def test_a_namespace_that_was_divided_anew_is_seen(lived: Lived) -> None:
    before = lived.world.run(lived.broker.bundles.of_topic(NAME))

    def halve(record: dict[str, Any]) -> None:
        record["bundles"] = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}

    lived.world.run(lived.broker.policies.namespaces.change(NAME.namespace_name, halve))
    assert lived.world.run(lived.broker.bundles.of_topic(NAME)) == before
    lived.world.run(lived.broker.policies.namespaces.change_local(NAME.namespace_name, halve))
    after = lived.world.run(lived.broker.bundles.of_topic(NAME))
    assert before != after
    assert NAME in after


def test_a_load_that_outlives_its_right_is_given_up(lived: Lived, two: Two) -> None:
    two.moves_when_asked = True
    with pytest.raises(ServiceNotReady, match="no longer served by this broker"):
        lived.topic()
    assert not lived.broker.topics.loaded
    topic = lived.topic()
    assert not topic.fenced


def test_topics_of_a_bundle_that_was_lost_are_closed_and_others_stay(lived: Lived, two: Two) -> None:
    names = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(20)]
    topics = {name: lived.topic(name) for name in names}
    bundle = lived.world.run(lived.broker.bundles.of_topic(names[0]))
    lost = [name for name in names if name in bundle]
    assert 0 < len(lost) < len(names)
    for tell in two.lost:
        tell(bundle)
    lived.world.wait(1)
    assert all(topics[name].fenced or topics[name].closing for name in lost)
    assert set(lived.broker.topics.loaded) == {str(name) for name in names if name not in lost}


def test_clients_may_ask_for_the_addresses_of_a_listener(lived: Lived, two: Two) -> None:
    brokers = Admin(lived.broker).brokers
    found = lived.world.run(brokers.lookup(str(NAME), "external"))
    assert (found.broker_url, found.broker_url_tls) == ("pulsar://outside:6650", None)
    # Who asks by HTTP is sent on by HTTP, though the listener has no such address.
    assert (found.http_url, found.http_url_tls) == (OTHER.http, OTHER.http_tls)
    with pytest.raises(InvalidRequest, match="no listener named 'none'"):
        lived.world.run(brokers.lookup(str(NAME), "none"))


def test_a_lone_broker_owns_everything_and_takes_any_listener() -> None:
    lived = Lived(EffectivePolicies())
    found = lived.world.run(Admin(lived.broker).brokers.lookup(str(NAME), "external"))
    assert (found.redirect, found.broker_url) == (False, "pulsar://127.0.0.1:6650")
