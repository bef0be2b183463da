"""Settings that are changed while a broker runs: they count at once, for the next start, and not for ever."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from world import World

from magnetar.broker.policies.dynamic import Changeable, DynamicSettings, SettingRefused
from magnetar.config.settings import load
from magnetar.errors import MetadataFailure, PreconditionFailed
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.metadata.interface import NodeDamaged
from magnetar.server.security import Roles

PATH = "/admin/configuration"


class Life:
    """One life of a broker with its settings."""

    def __init__(self, world: World) -> None:
        given = {"superUserRoles": "admin, root", "proxyRoles": "proxy"}
        self.roles = Roles(load(None, frozenset(), given).settings)
        self.changed = 0
        self.dynamic = DynamicSettings(world.simulation.io, world.metadata, self.roles.dynamic, self._changed)
        world.run(self.dynamic.start())

    async def _changed(self, who_may: bool) -> None:
        assert who_may
        self.changed += 1


@pytest.fixture
def world() -> World:
    return World(settings=ManagedLedgerSettings())


def stored(world: World) -> Any:
    node = world.run(world.metadata.get(PATH))
    return json.loads(node.value)


def test_what_is_set_counts_at_once_and_in_the_next_life_until_it_is_deleted(world: World) -> None:
    life = Life(world)
    assert life.dynamic.names == ["superUserRoles", "proxyRoles", "magnetarReplicationRoles"]
    assert life.roles.superusers() == {"admin", "root"}
    world.run(life.dynamic.set("superUserRoles", "root,,  other "))
    assert life.roles.superusers() == {"root", "other"}
    assert life.roles.proxies() == {"proxy"}
    assert life.changed == 1
    world.run(life.dynamic.set("proxyRoles", "p2"))
    assert stored(world) == {"superUserRoles": "root,,  other ", "proxyRoles": "p2"}
    again = Life(world)
    assert again.roles.superusers() == {"root", "other"}
    assert again.roles.proxies() == {"p2"}
    world.run(again.dynamic.set("magnetarReplicationRoles", "east, west"))
    assert again.roles.replicators() == {"east", "west"}
    world.run(again.dynamic.delete("magnetarReplicationRoles"))
    assert again.roles.replicators() == set()
    world.run(again.dynamic.delete("superUserRoles"))
    assert again.roles.superusers() == {"admin", "root"}
    assert stored(world) == {"proxyRoles": "p2"}


def test_other_brokers_follow(world: World) -> None:
    here, elsewhere = Life(world), Life(world)
    world.run(here.dynamic.set("superUserRoles", "root"))
    world.wait(1)
    assert elsewhere.roles.superusers() == {"root"}
    assert elsewhere.changed == 1
    assert here.changed == 1, "what is the same changes nothing"


@pytest.mark.parametrize("name", ["brokerServicePort", "superuserroles", "", "../x"])
def test_what_cannot_be_changed_is_refused_and_nothing_is_stored(world: World, name: str) -> None:
    life = Life(world)
    with pytest.raises(PreconditionFailed):
        world.run(life.dynamic.set(name, "1"))
    with pytest.raises(PreconditionFailed):
        world.run(life.dynamic.delete(name))
    assert world.run(world.metadata.get(PATH)) is None


def test_what_is_refused_says_why_and_nothing_is_stored(world: World) -> None:
    """A setting that stays as it is here, and a text that none can have."""
    taken: list[str | None] = []

    def take(text: str | None) -> bool:
        taken.append(text)
        return True

    def check(text: str) -> None:
        if text == "many":
            raise SettingRefused("must be a whole number")

    told: list[bool] = []

    async def changed(who_may: bool) -> None:
        told.append(who_may)

    settings = {"maxTenants": Changeable(take, check)}
    dynamic = DynamicSettings(
        world.simulation.io, world.metadata, settings, changed, {"loadManagerClassName": "there is one"}
    )
    with pytest.raises(PreconditionFailed, match=r"Can't update loadManagerClassName .*: there is one"):
        world.run(dynamic.set("loadManagerClassName", "x"))
    with pytest.raises(PreconditionFailed, match="maxTenants=many: must be a whole number"):
        world.run(dynamic.set("maxTenants", "many"))
    assert (taken, world.run(world.metadata.get(PATH))) == ([], None)
    world.run(dynamic.set("maxTenants", "7"))
    assert (taken, told) == (["7"], [False]), "nobody's permissions rest on it"


def test_settings_that_are_not_known_stay_and_change_nothing(world: World) -> None:
    world.run(world.metadata.put(PATH, b'{"dispatchThrottlingRatePerTopicInMsg":"5"}'))
    life = Life(world)
    world.run(life.dynamic.set("proxyRoles", "p2"))
    assert stored(world) == {"dispatchThrottlingRatePerTopicInMsg": "5", "proxyRoles": "p2"}


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"superUserRoles":["a"]}', b'{"superUserRoles":null}'])
def test_a_record_that_is_damaged_makes_nobody_a_superuser(world: World, value: bytes) -> None:
    """At a start nobody is let in; in a life what counted before counts on."""
    life = Life(world)
    world.run(life.dynamic.set("superUserRoles", "root"))
    world.run(world.metadata.put(PATH, value))
    world.wait(1)
    assert life.roles.superusers() == {"root"}
    with pytest.raises(MetadataFailure):
        world.run(life.dynamic.values())
    with pytest.raises(NodeDamaged):
        Life(world)


def test_two_that_change_different_settings_at_once_both_count(world: World) -> None:
    here, elsewhere = Life(world), Life(world)
    loop = world.simulation.loop
    tasks = [
        loop.create_task(here.dynamic.set("superUserRoles", "root")),
        loop.create_task(elsewhere.dynamic.set("proxyRoles", "p2")),
    ]
    world.wait(2)
    assert [task.exception() for task in tasks] == [None, None]
    expected: Mapping[str, str] = {"superUserRoles": "root", "proxyRoles": "p2"}
    assert stored(world) == expected
    for life in (here, elsewhere):
        assert (life.roles.superusers(), life.roles.proxies()) == ({"root"}, {"p2"})
