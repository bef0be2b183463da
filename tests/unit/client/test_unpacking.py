"""Large compressed contents, opened beside the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_io.loop import SimulatedLoop

from magnetar.client.exceptions import InvalidMessage, MessageTooBig, PulsarException, Timeout
from magnetar.client.message import RawEntry
from magnetar.client.unpacking import ALONE_BYTES, Aside, Unpacking
from magnetar.io.locks import Room
from magnetar.protocol.compression import compress
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

SIZE = 4 * ALONE_BYTES


def entry(size: int = SIZE, *, told: int | None = None, entry_id: int = 0) -> RawEntry:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.compression = CompressionType.ZLIB
    metadata.uncompressed_size = size if told is None else told
    return RawEntry(1, entry_id, -1, 0, 0, build_entry(metadata, compress(CompressionType.ZLIB, bytes(size))))


class World:
    def __init__(self, room_bytes: int = 2 * SIZE) -> None:
        self.loop = SimulatedLoop()
        self.room = Room(self.loop, room_bytes, waiting=10, seconds=5.0)
        self.unpacking = Unpacking(self._apart, self.room, most=SIZE, copies=2)
        self.opened: list[RawEntry] = []
        self.failed: list[PulsarException] = []
        self.aside = Aside(
            self.loop, self.unpacking, self.opened.append, lambda _entry, error: self.failed.append(error)
        )

    @staticmethod
    async def _apart(work: Callable[[], Any]) -> Any:
        return work()

    def take(self, one: RawEntry) -> None:
        assert self.aside.takes(one)
        self.loop.run_for(0.0)


def test_small_and_plain_contents_are_left_to_the_consumer() -> None:
    world = World()
    assert not world.aside.takes(entry(ALONE_BYTES))
    assert not Aside(world.loop, None, world.opened.append, print).takes(entry())
    assert world.aside.entry is None


def test_a_large_one_is_opened_and_its_room_is_held_as_long_as_its_messages() -> None:
    world = World()
    world.take(entry())
    [found] = world.opened
    [message] = found.messages("t")
    assert message.data() == bytes(SIZE)
    assert world.room.used == 2 * SIZE
    world.opened.clear()
    del found
    assert world.room.used == 2 * SIZE
    del message
    assert world.room.used == 0


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (entry(SIZE + 1), MessageTooBig),
        (entry(told=SIZE - 1), InvalidMessage),
        (entry(SIZE - 1, told=SIZE), InvalidMessage),
    ],
)
def test_what_is_too_large_or_not_as_its_producer_says_fails(
    one: RawEntry, kind: type[PulsarException]
) -> None:
    world = World()
    world.take(one)
    assert [type(error) for error in world.failed] == [kind]
    assert world.aside.entry is None
    world.failed.clear()
    assert world.room.used == 0


def test_one_for_which_no_room_comes_free_fails_as_a_time_out() -> None:
    world = World(3 * SIZE)
    world.take(entry())
    world.take(entry(entry_id=1))
    assert len(world.opened) == 1
    world.loop.run_for(6.0)
    assert [type(error) for error in world.failed] == [Timeout]


def test_what_nobody_wants_any_more_is_dropped() -> None:
    world = World(3 * SIZE)
    world.take(entry())
    world.take(entry(entry_id=1))
    assert world.aside.forget() == 1
    assert world.aside.forget() == 0
    world.opened.clear()
    world.loop.run_for(1.0)
    assert not world.opened
    assert world.room.used == 0
