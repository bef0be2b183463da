"""Changes whose answer was lost: what became of them is found out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from faulty_metadata import Fault
from several_sessions import SeveralSessions
from world import World

from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Check,
    Delete,
    MetadataRefused,
    MetadataStore,
    MetadataUnavailable,
    NodeMissing,
    Overtaken,
    Put,
    Step,
)
from magnetar.metadata.passing_on import PassingOnStore, ResolvingStore

BOTH = pytest.mark.parametrize("fault", list(Fault))


@BOTH
@pytest.mark.parametrize("expected", [None, MUST_NOT_EXIST])
def test_a_node_is_made_once(fault: Fault, expected: int | None) -> None:
    world = World()
    world.faulty_metadata.fail_next("put", fault)
    node = world.run(world.metadata.put("/x", b"1", expected))
    assert (node.value, node.version) == (b"1", 0)
    assert world.run(world.metadata.get("/x")) == node


@BOTH
@pytest.mark.parametrize("more", [0, 2])
def test_a_version_is_replaced_once(fault: Fault, more: int) -> None:
    world = World()
    world.run(world.metadata.put("/x", b"1"))
    for _ in range(1 + more):
        world.faulty_metadata.fail_next("put", fault)
    world.faulty_metadata.fail_next("get", fault)
    assert world.run(world.metadata.put("/x", b"2", 0)).version == 1


@BOTH
def test_what_somebody_else_wrote_is_left(fault: Fault) -> None:
    world = World()
    world.run(world.metadata.put("/x", b"1"))
    world.run(world.metadata.put("/x", b"theirs", 0))
    world.faulty_metadata.fail_next("put", fault)
    with pytest.raises(BadVersion):
        world.run(world.metadata.put("/x", b"mine", 0))
    world.faulty_metadata.fail_next("put", fault)
    with pytest.raises(BadVersion):
        world.run(world.metadata.put("/x", b"mine", MUST_NOT_EXIST))


@BOTH
def test_a_deletion_is_found_done(fault: Fault) -> None:
    world = World()
    world.run(world.metadata.put("/x", b"1"))
    world.faulty_metadata.fail_next("delete", fault)
    world.run(world.metadata.delete("/x", 0))
    assert not world.run(world.metadata.exists("/x"))
    with pytest.raises(NodeMissing):
        world.run(world.metadata.delete("/x"))


@BOTH
@pytest.mark.parametrize("more", [0, 2])
def test_what_is_changed_together_is_changed_once(fault: Fault, more: int) -> None:
    world = World()
    for path in ("/gone", "/changed", "/kept"):
        world.run(world.metadata.put(path, b"1"))
    for _ in range(1 + more):
        world.faulty_metadata.fail_next("change_together", fault)
    world.faulty_metadata.fail_next("get", fault)
    steps = [
        Check("/kept", 0),
        Delete("/gone", 0),
        Put("/changed", b"2", 0),
        Put("/made", b"3", MUST_NOT_EXIST),
    ]
    checked, gone, changed, made = world.run(world.metadata.change_together(steps))
    assert (checked, gone) == (None, None)
    assert changed is not None
    assert made is not None
    assert changed == world.run(world.metadata.get("/changed"))
    assert (changed.version, made.path, made.version) == (1, "/made", 0)
    assert world.run(world.metadata.children("/")) == ["changed", "kept", "made"]


@BOTH
def test_what_may_have_been_changed_together_before_somebody_else_came_is_told(fault: Fault) -> None:
    world = World()
    for path in ("/gone", "/changed"):
        world.run(world.metadata.put(path, b"1"))
    world.run(world.metadata.put("/changed", b"theirs", 0))
    world.faulty_metadata.fail_next("change_together", fault)
    refused = Overtaken if fault is Fault.BEFORE else BadVersion
    with pytest.raises(refused) as error:
        world.run(world.metadata.change_together([Delete("/gone", 0), Put("/changed", b"2", 0)]))
    assert error.value.step == 1
    assert world.run(world.metadata.exists("/gone"))
    world.faulty_metadata.disconnect()
    with pytest.raises(MetadataUnavailable):
        world.run(world.metadata.change_together([Delete("/gone", 0)]))
    world.faulty_metadata.reconnect()
    assert world.run(world.metadata.exists("/gone"))


def test_a_store_that_stays_away_leaves_it_unknown() -> None:
    world = World()
    world.faulty_metadata.disconnect()
    with pytest.raises(MetadataUnavailable):
        world.run(world.metadata.put("/x", b"1"))
    with pytest.raises(MetadataUnavailable):
        world.run(world.metadata.delete("/x"))


def test_sequential_nodes_are_not_made_twice() -> None:
    world = World()
    world.faulty_metadata.fail_next("put", Fault.AFTER)
    with pytest.raises(MetadataUnavailable):
        world.run(world.metadata.put("/n/-", b"", sequential=True))
    assert world.run(world.metadata.children("/n")) == ["-0000000000"]


def test_a_closed_store_refuses_for_certain() -> None:
    world = World()
    world.run(world.metadata.close())
    with pytest.raises(MetadataRefused):
        world.run(world.metadata.put("/x", b"1"))


def test_only_the_session_that_made_an_ephemeral_node_owns_it() -> None:
    world = World()
    assert world.run(world.metadata.put("/mine", b"", ephemeral=True)).own
    assert not world.run(world.metadata.put("/stays", b"")).own
    found = world.run(world.metadata.get("/mine"))
    assert found is not None
    assert found.own
    world.run(world.faulty_metadata.lose_session())
    world.faulty_metadata.reconnect()
    assert world.run(world.metadata.children("/")) == ["stays"]


class MadeAnew(PassingOnStore):
    """Its node is deleted, the answer lost, and another session makes the node anew before anybody looks."""

    def __init__(self, inner: MetadataStore, other: MetadataStore) -> None:
        super().__init__(inner)
        self._other = other

    async def _overtaken(self, path: str) -> None:
        node = await self.inner.get(path)
        if node is not None and node.own:
            await self.inner.delete(path)
            await self._other.put(path, b"theirs", MUST_NOT_EXIST, ephemeral=True)
            raise MetadataUnavailable("the answer is lost")

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self._overtaken(path)
        await super().delete(path, expected_version)

    async def put(self, path: str, value: bytes, expected_version: int | None = None, **how: Any) -> Any:
        await self._overtaken(path)
        return await super().put(path, value, expected_version, **how)

    async def change_together(self, steps: Sequence[Step]) -> Any:
        for step in steps:
            await self._overtaken(step.path)
        return await super().change_together(steps)


def test_what_another_session_made_meanwhile_is_neither_deleted_nor_changed() -> None:
    for path, change in (
        ("/deleted", lambda store: store.delete("/deleted", 0)),
        ("/deleted", lambda store: store.change_together([Delete("/deleted", 0)])),
        ("/changed", lambda store: store.put("/changed", b"disabled", 0, ephemeral=True)),
        ("/changed", lambda store: store.change_together([Put("/changed", b"disabled", 0, True)])),
    ):
        world = SeveralSessions()
        mine, other = world.session(), world.session()
        store = ResolvingStore(MadeAnew(mine, other), world.io.loop)
        world.run(store.put(path, b"mine", MUST_NOT_EXIST, ephemeral=True))
        if path == "/deleted":
            world.run(change(store))
        else:
            with pytest.raises(BadVersion):
                world.run(change(store))
        found = world.run(other.get(path))
        assert (found.value, found.version, found.own) == (b"theirs", 0, True)


class Stale(MadeAnew):
    """As :class:`MadeAnew`; the server knows of it only once it has refused a write."""

    def __init__(self, inner: MetadataStore, other: MetadataStore) -> None:
        super().__init__(inner, other)
        self._old: Any = None

    async def get(self, path: str) -> Any:
        return self._old or await super().get(path)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        before = await self.inner.get(path)
        if before is not None and before.own:
            self._old = before
        try:
            await super().delete(path, expected_version)
        except (BadVersion, NodeMissing):
            self._old = None
            raise


def test_a_deletion_that_a_server_tells_of_late_does_not_hit_the_next_node() -> None:
    world = SeveralSessions()
    mine, other = world.session(), world.session()
    store = ResolvingStore(Stale(mine, other), world.io.loop)
    world.run(store.put("/deleted", b"mine", MUST_NOT_EXIST, ephemeral=True))
    world.run(store.delete("/deleted", 0))
    found = world.run(other.get("/deleted"))
    assert (found.value, found.own) == (b"theirs", True)


class Late(PassingOnStore):
    """As an ensemble of servers: a change is on its way when the connection to one of them ends, and another
    one does not know of it until it has refused to do it twice."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.lose_next = False
        self._under_way: Any = None

    async def put(self, path: str, value: bytes, expected_version: int | None = None, **how: Any) -> Any:
        if self.lose_next:
            self.lose_next = False
            self._under_way = super().put(path, value, expected_version, **how)
            raise MetadataUnavailable("the connection was lost")
        await self._arrive()
        return await super().put(path, value, expected_version, **how)

    async def change_together(self, steps: Sequence[Step]) -> Any:
        if self.lose_next:
            self.lose_next = False
            self._under_way = super().change_together(steps)
            raise MetadataUnavailable("the connection was lost")
        await self._arrive()
        return await super().change_together(steps)

    async def _arrive(self) -> None:
        if self._under_way is not None:
            before, self._under_way = self._under_way, None
            with suppress(BadVersion):
                await before


@pytest.mark.parametrize("expected", [0, MUST_NOT_EXIST])
def test_a_change_that_a_server_tells_of_late_is_not_taken_for_anothers(expected: int) -> None:
    world = World()
    if expected == 0:
        world.run(world.metadata.put("/x", b"1"))
    late = Late(world.metadata)
    store = ResolvingStore(late, world.simulation.loop)
    late.lose_next = True
    assert world.run(store.put("/x", b"mine", expected)).version == expected + 1
    late.lose_next = True
    with pytest.raises(BadVersion):
        world.run(store.put("/x", b"otherwise", expected))


def test_steps_that_a_server_tells_of_late_are_not_taken_for_anothers() -> None:
    world = World()
    world.run(world.metadata.put("/x", b"1"))
    late = Late(world.metadata)
    store = ResolvingStore(late, world.simulation.loop)
    late.lose_next = True
    steps = [Delete("/x", 0), Put("/y", b"mine", MUST_NOT_EXIST)]
    gone, made = world.run(store.change_together(steps))
    assert gone is None
    assert made == world.run(store.get("/y"))
    late.lose_next = True
    with pytest.raises(BadVersion):
        world.run(store.change_together([Delete("/y", 1), Put("/x", b"otherwise", MUST_NOT_EXIST)]))
    assert world.run(store.children("/")) == ["y"]
