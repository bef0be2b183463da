"""A bundle is divided by its owner, once, and nothing is left over where that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lived import NAME
from world import World

from magnetar.broker.admin.all import Admin
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.load.settings import LoadDesk, LoadSettings, SplitSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.ownership.brokers import Leadership, LiveBrokers
from magnetar.broker.ownership.bundles import path_of
from magnetar.broker.ownership.cluster import ClusterOwnership, FewestBundles
from magnetar.broker.ownership.contract import Asked, Bundle, Owner
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.errors import (
    ConcurrentModification,
    NamespaceNotFound,
    OwnerUnknown,
    PreconditionFailed,
    ServedElsewhere,
    ServiceNotReady,
)
from magnetar.io.waiting import finished, sleep
from magnetar.io.wheel import TimerWheel
from magnetar.metadata.interface import MetadataUnavailable, Node

NAMESPACE = "public/default"
WHOLE, LOWER, UPPER = (
    Bundle.parse(f"{NAMESPACE}/{text}")
    for text in ("0x00000000_0xffffffff", "0x00000000_0x7fffffff", "0x7fffffff_0xffffffff")
)


class Dividing:
    """A broker of a cluster that owns the one bundle of a namespace, with a topic in it."""

    def __init__(self) -> None:
        self.world = World()
        io, metadata = self.world.simulation.io, self.world.metadata
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(metadata, "standalone", *urls, 1))
        known = BrokerSettings(
            "standalone", urls[1], urls[0], TopicSettings(DispatchSettings()), broker_id="one:8080"
        )
        live = LiveBrokers(io, metadata)
        leadership = Leadership(io, metadata, live, known.broker_id, urls[0])
        self.broker = BrokerService(
            io,
            TimerWheel(io.loop),
            metadata,
            self.world.managed,
            known,
            ownership=lambda own: self._owning(own, live, leadership),
        )
        self.admin = Admin(self.broker)
        self.world.run(self.owner_of(WHOLE))
        self.topic = self.world.run(self.broker.topics.load(NAME, create=True))

    def _owning(self, own: Any, live: LiveBrokers, leadership: Leadership) -> ClusterOwnership:
        io = self.world.simulation.io
        return ClusterOwnership(io, self.world.metadata, own, live, leadership, FewestBundles(io.clock, live))

    async def owner_of(self, bundle: Bundle) -> Owner:
        return await self.broker.ownership.owner_of(bundle, Asked.TAKE)

    async def split(self, algorithm: str | None = None, positions: Sequence[int] = ()) -> None:
        await self.admin.bundles.split(
            NAMESPACE, str(WHOLE.range), algorithm, positions, unload=False, authoritative=True
        )

    async def unload(self) -> None:
        await self.admin.bundles.unload(NAMESPACE, str(WHOLE.range), None)

    @property
    def divided(self) -> list[str]:
        found: Mapping[str, Any] = self.world.run(self.admin.bundles.of(NAMESPACE))
        return list(found["boundaries"])

    @property
    def held(self) -> set[Bundle]:
        return set(self.broker.ownership.held())


@pytest.fixture
def case() -> Dividing:
    return Dividing()


def test_its_parts_are_owned_and_topics_stay_open(case: Dividing) -> None:
    case.world.run(case.split())
    assert case.divided == ["0x00000000", "0x7fffffff", "0xffffffff"]
    assert case.held == {LOWER, UPPER}
    assert not case.topic.closing


def test_of_two_who_divide_it_at_the_same_time_one_does_and_nothing_is_unloaded(case: Dividing) -> None:
    loop = case.world.simulation.loop
    both = [loop.create_task(case.split()) for _ in range(2)]
    for each in both:
        case.world.run(finished(loop, each))
    assert both[0].exception() is None
    assert isinstance(both[1].exception(), ConcurrentModification)
    assert case.divided == ["0x00000000", "0x7fffffff", "0xffffffff"]
    assert case.held == {LOWER, UPPER}
    assert not case.topic.closing
    with pytest.raises(Exception, match="upper boundary"):
        case.world.run(case.split())
    assert case.held == {LOWER, UPPER}


def test_how_is_said_by_the_settings_where_nobody_says(case: Dividing) -> None:
    def use(**changes: Any) -> None:
        split = SplitSettings(**changes)
        case.broker.load = cast(
            LoadDesk, SimpleNamespace(manager=SimpleNamespace(settings=LoadSettings(split=split)))
        )

    use(algorithm="topic_count_equally_divide")
    case.world.run(case.split())
    assert case.held == {WHOLE}, "it has one topic"
    use(algorithm="specified_positions_divide")
    with pytest.raises(PreconditionFailed, match="splitBoundaries"):
        case.world.run(case.split())
    use(supported=("specified_positions_divide",))
    with pytest.raises(PreconditionFailed, match=r"supported algorithms are \[specified_positions_divide\]"):
        case.world.run(case.split("range_equally_divide"))
    case.world.run(case.split("specified_positions_divide", [0x1000]))
    assert case.divided == ["0x00000000", "0x00001000", "0xffffffff"]


def test_it_is_not_given_up_while_it_is_divided(case: Dividing, monkeypatch: pytest.MonkeyPatch) -> None:
    records, loop = case.broker.policies.namespaces, case.world.simulation.loop
    divide = records.divide

    async def slow(*values: Any) -> None:
        await sleep(loop, 1)
        await divide(*values)

    monkeypatch.setattr(records, "divide", slow)
    splitting = loop.create_task(case.split())
    case.world.wait(0.5)
    with pytest.raises(ConcurrentModification, match="is being split"):
        case.world.run(case.unload())
    case.world.run(splitting)
    assert case.held == {LOWER, UPPER}
    node = case.world.run(case.world.metadata.get(path_of(WHOLE)))
    assert node is not None
    assert b'"disabled":true' in node.value


def test_what_cannot_be_found_out_is_no_success(case: Dividing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a bundle that nobody has there is nothing to give up; whether somebody has it has to be known."""
    case.world.run(case.unload())
    metadata, get = case.world.metadata, case.world.metadata.get

    async def away(path: str) -> Node | None:
        if path == path_of(WHOLE):
            raise MetadataUnavailable("not connected")
        return await get(path)

    monkeypatch.setattr(metadata, "get", away)
    for work in (case.unload, lambda: case.admin.bundles.unload_all(NAMESPACE)):
        with pytest.raises(OwnerUnknown, match="not connected"):
            case.world.run(work())
    monkeypatch.undo()
    case.world.run(case.unload())


def test_one_that_was_given_up_meanwhile_is_not_divided(
    case: Dividing, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = case.broker.topic_names

    async def overtaken(*values: Any, **named: Any) -> Any:
        await case.unload()
        value = b'{"nativeUrl":"pulsar://two:6650","httpUrl":"http://two:8080","disabled":false}'
        await case.world.metadata.put(path_of(WHOLE), value)
        return await names(*values, **named)

    monkeypatch.setattr(case.broker, "topic_names", overtaken)
    with pytest.raises(ServedElsewhere, match="is served by two:8080"):
        case.world.run(case.split())
    assert case.divided == ["0x00000000", "0xffffffff"]
    assert case.held == set()


@pytest.mark.parametrize("part", [LOWER, UPPER])
def test_it_stays_whole_while_another_broker_has_a_part(case: Dividing, part: Bundle) -> None:
    value = b'{"nativeUrl":"pulsar://two:6650","httpUrl":"http://two:8080","disabled":false}'
    case.world.run(case.world.metadata.put(path_of(part), value))
    with pytest.raises(ConcurrentModification, match="is served by two:8080"):
        case.world.run(case.split())
    assert case.divided == ["0x00000000", "0xffffffff"]
    assert case.held == {WHOLE}
    assert case.world.run(case.owner_of(WHOLE)).here


@pytest.mark.parametrize("failure", ["second part", "record", "namespace"])
def test_what_was_taken_for_it_is_given_up_where_it_fails(
    case: Dividing, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata, put = case.world.metadata, case.world.metadata.put
    broken = {
        "second part": path_of(UPPER),
        "record": f"/admin/local-policies/{NAMESPACE}",
    }.get(failure)

    async def fails(path: str, *values: Any, **named: Any) -> Node:
        if path == broken:
            raise MetadataUnavailable("not now")
        return await put(path, *values, **named)

    async def gone(*_: Any) -> None:
        raise NamespaceNotFound("Namespace does not exist")

    monkeypatch.setattr(metadata, "put", fails)
    if failure == "namespace":
        monkeypatch.setattr(case.broker.policies.namespaces, "divide", gone)
    with pytest.raises((ServiceNotReady, MetadataUnavailable, NamespaceNotFound)):
        case.world.run(case.split())
    assert case.held == {WHOLE}
    monkeypatch.undo()
    case.world.run(case.split())
    assert case.held == {LOWER, UPPER}
