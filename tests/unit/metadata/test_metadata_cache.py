"""What is remembered of nodes is what they are, whatever is told when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from world import World

from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import SessionEvent


class Reads:
    """A cache over a world's metadata, and how often it read."""

    def __init__(self, most: int = 100, weigh: Callable[[bytes], int] = lambda _value: 1) -> None:
        self.world = World()
        self.metadata = self.world.metadata
        self.faults = self.world.faulty_metadata
        self.count = 0
        self.cache = MetadataCache(self.metadata, "/a", self._read, most=most, weigh=weigh)

    async def _read(self, path: str) -> bytes:
        self.count += 1
        node = await self.metadata.get(path)
        return node.value if node is not None else b""

    def get(self, path: str) -> bytes:
        return self.world.run(self.cache.get(path))

    def put(self, path: str, value: bytes) -> None:
        self.world.run(self.metadata.put(path, value))


@pytest.fixture
def reads() -> Reads:
    return Reads()


def test_nothing_is_read_twice_until_it_changes(reads: Reads) -> None:
    reads.put("/a/x", b"1")
    assert [reads.get("/a/x") for _ in range(3)] == [b"1"] * 3
    assert reads.count == 1
    reads.put("/a/y", b"other")
    reads.put("/ab", b"no child")
    assert reads.get("/a/x") == b"1"
    assert reads.count == 1
    reads.put("/a/x", b"2")
    assert reads.get("/a/x") == b"2"
    reads.world.run(reads.metadata.delete("/a/x"))
    assert reads.get("/a/x") == b""


@pytest.mark.parametrize("event", [SessionEvent.RECONNECTED, SessionEvent.LOST])
def test_what_was_not_told_is_read_anew(reads: Reads, event: SessionEvent) -> None:
    reads.put("/a/x", b"1")
    assert reads.get("/a/x") == b"1"
    reads.faults.disconnect()
    reads.world.run(reads.faults.inner.put("/a/x", b"2"))
    assert reads.get("/a/x") == b"1"
    if event is SessionEvent.LOST:
        reads.world.run(reads.faults.lose_session())
        reads.faults.connected = True
    else:
        reads.faults.reconnect()
    assert reads.get("/a/x") == b"2"


def test_what_changes_while_it_is_read_is_not_remembered(reads: Reads) -> None:
    reads.put("/a/x", b"1")
    loop = reads.world.simulation.loop
    reading = loop.create_task(reads.cache.get("/a/x"))
    changing = loop.create_task(reads.metadata.delete("/a/x"))
    reads.world.run(reading)
    reads.world.run(changing)
    assert reads.get("/a/x") == b""


def test_a_change_that_is_told_late_is_forgotten_by_who_made_it(reads: Reads) -> None:
    reads.put("/a/x", b"1")
    reads.get("/a/x")
    reads.faults.event_delay = 5.0
    reads.put("/a/x", b"2")
    reads.cache.forget("/a/x")
    assert reads.get("/a/x") == b"2"
    reads.world.wait(10)
    assert reads.get("/a/x") == b"2"
    assert reads.count == 3


def test_what_is_remembered_is_bounded() -> None:
    reads = Reads(most=10, weigh=len)
    for number in range(5):
        reads.put(f"/a/{number}", b"1234")
        reads.get(f"/a/{number}")
    assert len(reads.cache) <= 2
    reads.put("/a/large", b"x" * 11)
    assert reads.get("/a/large") == b"x" * 11
    assert reads.cache.known("/a/large") is None
