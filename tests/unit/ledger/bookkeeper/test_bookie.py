"""Questions to one bookie: each is answered once, whatever becomes of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from model_bookie import ModelBookie
from simulated_io import simulated_io

from magnetar.io.real import real_io
from magnetar.ledger.bookkeeper.adds import AddStream
from magnetar.ledger.bookkeeper.bookie import Bookie, BookieSettings
from magnetar.ledger.bookkeeper.digests import Digest, DigestType, master_key
from magnetar.ledger.bookkeeper.frames import Flag, Status
from magnetar.ledger.bookkeeper.hot_adds import Stripe

KEY = master_key(b"")
DIGEST = Digest(DigestType.CRC32C, b"")
LEDGER = 7


class World:
    """A client and a model bookie; ``told`` has what was answered, in order."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = simulated_io(seed)
        self.loop = self.simulation.loop
        self.server = ModelBookie(self.loop)
        self.listener: Any = None
        self.where: tuple[str, int] | None = ("localhost", 3181)
        self.start()
        io = self.simulation.io
        self.bookie = Bookie(
            io.loop, io.clock, io.network, "one", lambda: self.where, BookieSettings(5.0, 2.0, 0.2)
        )
        self.told: list[tuple[Any, int, list[bytes]]] = []

    def start(self) -> None:
        self.listener = self.loop.run_until(self.simulation.host.listen("", 3181, self.server.factory))

    def stop(self) -> None:
        self.listener.close()
        self.server.drop_connections()

    def tell(self, what: Any) -> Any:
        return lambda status, bodies: self.told.append((what, status, bodies))

    def add(self, entry_id: int, payload: bytes = b"payload", flags: Flag = Flag.NONE) -> None:
        head = DIGEST.head(LEDGER, entry_id, entry_id - 1, len(payload) * (entry_id + 1), payload)
        self.bookie.add(LEDGER, entry_id, KEY, (head, payload), self.tell(("add", entry_id)), flags)

    def read(self, entry_id: int, flags: Flag = Flag.NONE) -> None:
        key = KEY if flags & Flag.FENCE else b""
        self.bookie.read(LEDGER, entry_id, self.tell(("read", entry_id)), flags, key)

    def answers(self, seconds: float = 1) -> list[tuple[Any, int]]:
        """What was answered by then, since the last time."""
        self.loop.run_for(seconds)
        told, self.told = self.told, []
        return [(what, status) for what, status, _ in told]


def test_what_is_added_is_read() -> None:
    world = World()
    for entry_id in range(3):
        world.add(entry_id, b"x" * entry_id)
    assert world.answers() == [(("add", entry_id), Status.OK) for entry_id in range(3)]
    world.read(1)
    world.read(-1)
    world.read(9)
    world.bookie.read_batch(LEDGER, 0, 10, 1 << 20, world.tell("batch"))
    world.loop.run_for(1)
    [(_, _, [second]), (_, last_status, [last]), (_, missing, []), (_, _, batch)] = world.told
    assert DIGEST.check(LEDGER, 1, second).length == 2
    assert DIGEST.check(LEDGER, -1, last).entry_id == 2
    assert (last_status, missing) == (Status.OK, Status.NO_ENTRY)
    assert [DIGEST.check(LEDGER, entry_id, body).entry_id for entry_id, body in enumerate(batch)] == [0, 1, 2]


def test_one_turn_is_one_write() -> None:
    world = World()
    world.add(0)
    world.answers()
    writes: list[int] = []
    transport = world.server.connections[0].transport.peer
    write_all = transport.writelines
    transport.writelines = lambda pieces: (writes.append(len(pieces)), write_all(pieces))
    for entry_id in range(1, 50):
        world.add(entry_id)
    assert len(world.answers()) == 49
    assert writes == [3 * 49]
    assert world.bookie.in_progress == 0


def test_whoever_fences_ends_those_who_add() -> None:
    world = World()
    world.add(0)
    world.read(-1, Flag.FENCE)
    world.answers()
    world.add(1)
    world.add(1, flags=Flag.RECOVERY_ADD)
    assert world.answers() == [(("add", 1), Status.FENCED), (("add", 1), Status.OK)]


def test_a_lost_connection_answers_what_waits_and_another_one_is_made() -> None:
    world = World()
    world.add(0)
    world.answers()
    world.server.silent = True
    world.add(1)
    world.read(0)
    world.answers(0.1)
    world.stop()
    assert world.answers() == [(("add", 1), Status.LOST), (("read", 0), Status.LOST)]
    world.read(0)
    assert world.answers() == [(("read", 0), Status.LOST)], "nobody listens"
    world.server.silent = False
    world.start()
    world.read(0)
    assert world.answers() == [(("read", 0), Status.OK)]


def test_a_bookie_that_is_silent_lets_questions_time_out_one_by_one() -> None:
    world = World()
    world.add(0)
    world.answers()
    world.server.silent = True
    world.read(0)
    assert world.answers(2) == []
    world.read(1)
    world.read(0)
    assert world.answers(3.7) == [(("read", 0), Status.TIMED_OUT)]
    assert sorted(world.answers(2)) == [(("read", 0), Status.TIMED_OUT), (("read", 1), Status.TIMED_OUT)]
    assert world.bookie.in_progress == 0


def test_answers_that_come_too_late_are_dropped() -> None:
    world = World()
    world.add(0)
    world.answers()
    world.server.delay = 6.0
    world.read(0)
    assert world.answers(10) == [(("read", 0), Status.TIMED_OUT)]
    world.server.delay = 0.0
    world.read(0)
    assert world.answers() == [(("read", 0), Status.OK)]


def test_a_server_that_is_no_bookie() -> None:
    world = World()
    world.add(0)
    world.answers()
    world.server.connections[0].transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    world.read(0)
    assert world.answers() == [(("read", 0), Status.LOST)]
    world.read(0)
    assert world.answers() == [(("read", 0), Status.OK)]


class Adding:
    """Whoever adds; hears that nothing was."""

    def __init__(self) -> None:
        self.told: Any = asyncio.get_running_loop().create_future()

    def sending(self, stream: AddStream) -> tuple[Sequence[bytes], int, int]:
        raise AssertionError(f"there is a connection for {stream}")

    def on_added(self, stream: AddStream) -> None:
        raise AssertionError(f"{stream} was added to")

    def on_not_added(self, _stream: AddStream, status: int) -> None:
        self.told.set_result(status)


@pytest.mark.parametrize("where", [("127.0.0.1", 1 << 17), ("a..b", 3181), ("nobody\0", 3181)])
def test_an_address_that_is_none_answers_what_waits(where: tuple[str, int], tmp_path: Path) -> None:
    async def asked() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        bookie = Bookie(io.loop, io.clock, io.network, "one", lambda: where, BookieSettings(1000.0))
        adding, read = Adding(), io.loop.create_future()
        bookie.add_soon(AddStream(LEDGER, Stripe(0, 1, 1, 0), adding))
        bookie.read(LEDGER, 0, lambda status, _bodies: read.set_result(status))
        async with asyncio.timeout(30):
            assert (await adding.told, await read) == (Status.LOST, Status.LOST)
        assert bookie.unreachable
        bookie.close()

    asyncio.run(asked())


def test_closing_loses_what_waits() -> None:
    world = World()
    world.add(0)
    world.bookie.close()
    world.read(0)
    assert world.answers() == [(("add", 0), Status.LOST), (("read", 0), Status.LOST)]


@pytest.mark.parametrize("seed", range(30))
def test_each_question_is_answered_once(seed: int) -> None:
    world = World(seed)
    conditions = world.simulation.host.network.conditions
    conditions.cut, conditions.longest_life, conditions.pieces, conditions.latency = 0.7, 20, 3, 0.3
    random = world.simulation.io.randomness
    asked = 0
    for _ in range(40):
        for _ in range(random.below(6)):
            if random.below(2):
                world.add(asked)
            else:
                world.read(random.below(asked + 1))
            asked += 1
        world.loop.run_for(random.fraction())
    world.loop.run_for(20)
    assert len(world.told) == asked
    stored = {what[1] for what, status, _ in world.told if what[0] == "add" and status == Status.OK}
    assert stored <= set(world.server.ledgers[LEDGER].entries)
