"""The model of several ZooKeeper servers: what each session may see late, and what it may not."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

import pytest
from several_sessions import SeveralSessions

from magnetar.metadata.interface import BadVersion, Change

T = TypeVar("T")


class _Slow(Random):
    """Who connects comes to the server that hears of changes a second late."""

    def choice(self, seq: Sequence[T]) -> T:
        return seq[-1]

    def expovariate(self, lambd: float = 1.0) -> float:
        return 2.0


@pytest.fixture
def world() -> SeveralSessions:
    """With a session at the server that commits, and one at another."""
    made = SeveralSessions()
    made.session()
    made.server.spread(_Slow(), others=1)
    made.session()
    return made


def test_reads_and_events_come_late(world: SeveralSessions) -> None:
    early, late = world.stores
    changes: list[Change] = []
    late.listen("/", changes.append)
    world.run(early.put("/x", b"1"))
    node: Any = world.run(late.get("/x"))
    assert node is None
    assert not changes
    world.loop.run_for(1.1)
    node = world.run(late.get("/x"))
    assert node.value == b"1"
    assert "/x" in [change.path for change in changes]


def test_whoever_has_changed_something_sees_all_that_was_before(world: SeveralSessions) -> None:
    early, late = world.stores
    world.run(early.put("/x", b"1"))
    changing = world.loop.create_task(late.put("/y", b""))
    reading = world.loop.create_task(late.get("/x"))
    world.loop.run_for(0.5)
    assert not changing.done()
    assert not reading.done(), "it waits behind what was asked before"
    world.run(changing)
    assert world.run(reading).value == b"1"


def test_a_refusal_comes_from_those_who_know(world: SeveralSessions) -> None:
    early, late = world.stores
    version = world.run(early.put("/x", b"1")).version
    world.loop.run_for(1.1)
    world.run(early.put("/x", b"2", version))
    assert world.run(late.get("/x")).value == b"1"
    with pytest.raises(BadVersion):
        world.run(late.put("/x", b"3", version))
    assert world.run(late.get("/x")).value == b"2"


def test_no_server_is_taken_that_has_not_heard_what_the_session_has_seen(world: SeveralSessions) -> None:
    early, _ = world.stores
    before = world.server.connections[0].replica
    world.run(early.put("/x", b"1"))
    world.server.drop_connections()
    assert world.run(early.get("/x")).value == b"1"
    assert {each.replica for each in world.server.connections if each.session} != {before}
