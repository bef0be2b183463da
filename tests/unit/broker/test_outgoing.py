"""What a connection sends in one turn, and when it stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from simulated_io import SimulatedDisk, simulated_io

from magnetar.broker.flow.outgoing import (
    MESSAGES_HIGH_WATER,
    REQUESTS_HIGH_WATER,
    TIGHT_HIGH_WATER,
    Outgoing,
    UnsentBytes,
)
from magnetar.io.interfaces import LARGE_PIECE, Buffer


class Socket:
    """A transport whose client reads when the test says so."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.in_pieces = 0
        """How often it was handed several pieces at once."""
        self.unsent = 0
        self.closing = False
        self.limits: tuple[int, int] = (0, 0)
        self.aborted = False
        self.paused: Callable[[], None] = lambda: None
        """Called when it has more than it wants."""

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.limits = (high, low)
        if self.unsent > high:
            self.paused()

    def abort(self) -> None:
        self.aborted = True
        self.unsent = 0

    def write(self, data: bytes | bytearray) -> None:
        self.written.append(bytes(data))
        self.unsent += len(data)

    def writelines(self, pieces: Sequence[Buffer]) -> None:
        self.in_pieces += 1
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closing


class World:
    def __init__(self) -> None:
        self.simulation = simulated_io(1, SimulatedDisk(1))
        self.room_again = 0
        self.overfull: list[bool] = []
        self.socket = Socket()
        self.unsent = UnsentBytes(self.simulation.io.clock, 3 * MESSAGES_HIGH_WATER)
        loop = self.simulation.io.loop
        self.outgoing = Outgoing(loop, self._on_room, self.overfull.append, self.unsent)
        self.outgoing.use(self.socket)

    def another(self) -> tuple[Outgoing, Socket]:
        """One more connection, of another client."""
        other, socket = Outgoing(self.simulation.io.loop, lambda: None, lambda _: None, self.unsent), Socket()
        other.use(socket)
        return other, socket

    def _on_room(self) -> None:
        self.room_again += 1

    def turn(self) -> None:
        """Lets the loop go round."""
        self.simulation.loop.run_for(0.001)


@pytest.fixture
def world() -> World:
    return World()


def test_frames_of_one_turn_are_one_write(world: World) -> None:
    for frame in (b"a", bytearray(b"b"), b"c"):
        world.outgoing.queue(frame)
    assert world.socket.written == []
    world.turn()
    assert world.socket.written == [b"abc"]
    assert world.socket.limits == (MESSAGES_HIGH_WATER, MESSAGES_HIGH_WATER // 2)


def test_large_frames_of_one_turn_are_not_put_together(world: World) -> None:
    large = bytes(2 * LARGE_PIECE)
    for frame in (b"head", memoryview(large)):
        world.outgoing.queue(frame)
    world.turn()
    assert world.socket.written == [b"head" + large]
    assert world.socket.in_pieces == 1
    for frame in (*[b"small"] * 10, memoryview(large)):
        world.outgoing.queue(frame)
    world.turn()
    assert world.socket.written[1:] == [b"small" * 10 + large]
    assert world.socket.in_pieces == 1
    assert world.unsent.used == world.socket.unsent


def test_what_is_queued_counts_as_unsent(world: World) -> None:
    """All that was cached could be queued in one turn, before the socket had a say."""
    world.outgoing.queue(bytes(MESSAGES_HIGH_WATER - 10))
    assert world.outgoing.room == 10
    world.outgoing.queue(bytes(20))
    assert world.outgoing.room < 0
    world.turn()
    assert world.outgoing.room == MESSAGES_HIGH_WATER
    assert world.room_again == 1


def test_a_paused_socket_has_no_room_until_it_resumes(world: World) -> None:
    world.outgoing.pause()
    world.outgoing.queue(b"answers go on")
    world.turn()
    assert world.socket.written == [b"answers go on"]
    assert (world.outgoing.room, world.room_again) == (0, 0)
    world.outgoing.resume()
    assert world.outgoing.room > 0
    assert world.room_again == 1


def test_a_client_that_takes_no_answers_is_not_read(world: World) -> None:
    world.outgoing.queue(bytes(REQUESTS_HIGH_WATER + 1))
    world.outgoing.pause()
    world.turn()
    world.outgoing.queue(b"more")
    world.turn()
    assert world.overfull == [True]
    world.outgoing.resume()
    assert world.overfull == [True, False]


def test_nothing_is_written_to_what_is_closing_or_gone(world: World) -> None:
    world.outgoing.queue(b"a")
    world.socket.closing = True
    world.turn()
    world.outgoing.queue(b"b")
    world.outgoing.use(None)
    world.turn()
    assert world.socket.written == []


def test_when_all_together_have_too_much_unsent_each_may_have_little(world: World) -> None:
    """A thousand consumers that read nothing took a gigabyte."""
    others = [world.another() for _ in range(4)]
    for other, _socket in others:
        other.queue(bytes(MESSAGES_HIGH_WATER))
    assert world.unsent.used == 4 * MESSAGES_HIGH_WATER
    assert world.outgoing.room == TIGHT_HIGH_WATER
    assert world.socket.limits == (TIGHT_HIGH_WATER, TIGHT_HIGH_WATER // 2)
    world.turn()
    assert world.outgoing.room == TIGHT_HIGH_WATER, "written is not sent"
    world.outgoing.pause()
    for _other, socket in others:
        socket.unsent = 0
    world.simulation.loop.run_for(1)
    world.outgoing.resume()
    assert world.outgoing.room == MESSAGES_HIGH_WATER
    assert world.socket.limits == (MESSAGES_HIGH_WATER, MESSAGES_HIGH_WATER // 2)
    assert world.unsent.used == 0


def test_what_goes_with_its_connection_is_unsent_no_more(world: World) -> None:
    other, _socket = world.another()
    other.queue(bytes(1000))
    world.turn()
    other.queue(bytes(10))
    assert world.unsent.used == 1010
    other.use(None)
    assert world.unsent.used == 0
    world.turn()
    assert world.unsent.used == 0


def test_answers_nobody_takes_stop_reading_sooner_when_all_together_have_too_much(world: World) -> None:
    for _ in range(4):
        world.another()[0].queue(bytes(MESSAGES_HIGH_WATER))
    stopped: list[bool] = []
    outgoing, socket = (
        Outgoing(world.simulation.io.loop, lambda: None, stopped.append, world.unsent),
        Socket(),
    )
    socket.paused = outgoing.pause
    outgoing.use(socket)
    outgoing.queue(bytes(5 * TIGHT_HIGH_WATER))
    world.turn()
    assert stopped == [True]
    outgoing.resume()
    assert stopped == [True, False]


def test_far_beyond_the_budget_the_fullest_are_closed(world: World) -> None:
    """A thousand clients that take none of their answers took gigabytes."""
    others = [world.another() for _ in range(100)]
    for number, (other, socket) in enumerate(others):
        other.queue(bytes(MESSAGES_HIGH_WATER + number))
        world.turn()
        world.simulation.loop.run_for(0.2)
        if socket.aborted:
            other.use(None)
    world.outgoing.room  # noqa: B018 - whoever asks counts again
    assert world.unsent.used <= 13 * MESSAGES_HIGH_WATER
    assert sum(socket.aborted for _, socket in others) >= 88
