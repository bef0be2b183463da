"""Runs of adds at one bookie: which entries it gets, what counts as answered, and how it ends."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from model_bookie import ModelBookie
from simulated_io import simulated_io

from magnetar.ledger.bookkeeper.adds import AddStream
from magnetar.ledger.bookkeeper.bookie import Bookie, BookieSettings
from magnetar.ledger.bookkeeper.digests import Digest, DigestType, master_key
from magnetar.ledger.bookkeeper.frames import AnswerReader, Flag, Status, add_head, add_prefix
from magnetar.ledger.bookkeeper.hot_adds import AddedRun, Stripe, add_frames, confirmed_through, read_added

KEY = master_key(b"")
DIGEST = Digest(DigestType.CRC32C, b"")
LEDGER = 1 << 40


def frames(first: int, entries: list[bytes], length: int = 0) -> tuple[bytes, int]:
    buffer = b"<".join([b"", *entries])
    starts, ends = array("q"), array("q")
    at = 0
    for entry in entries:
        starts.append(at + 1)
        ends.append(at + 1 + len(entry))
        at = ends[-1]
    pieces: list[bytes | memoryview] = []
    prefix = add_prefix(KEY, Flag.HIGH_PRIORITY)
    length = add_frames(
        prefix, LEDGER, first, first - 1, length, buffer, starts, ends, 0, len(entries), pieces
    )
    return b"".join(pieces), length


def good_answer(ledger_id: int, entry_id: int) -> bytes:
    return bytes.fromhex("00000018020100000000 0000") + b"".join(
        number.to_bytes(8, "big", signed=True) for number in (ledger_id, entry_id)
    )


def test_frames_of_a_run_are_those_of_single_adds() -> None:
    entries = [b"", b"a", b"x" * 100, b"y" * 4095, b"z" * 4096, b"w" * 100_000]
    made, length = frames(7, entries, length=50)
    wanted = b""
    so_far = 50
    for number, entry in enumerate(entries):
        so_far += len(entry)
        body = DIGEST.head(LEDGER, 7 + number, 6, so_far, entry) + entry
        wanted += add_head(KEY, len(body), Flag.HIGH_PRIORITY) + body
    assert made == wanted
    assert length == so_far


def test_good_answers_are_read_in_runs_that_end_at_anything_else() -> None:
    run = AddedRun(capacity=4)
    data = b"".join(good_answer(LEDGER, entry_id) for entry_id in (0, 1, 7, -5, 1 << 62))
    at = read_added(data + good_answer(3, 9), 0, len(data) + 28, run)
    assert (at, run.ledger_id, list(run.entry_ids[: run.count])) == (4 * 28, LEDGER, [0, 1, 7, -5])
    both = data + good_answer(3, 9)
    at = read_added(both, at, len(both), run)
    assert (at, list(run.entry_ids[: run.count])) == (5 * 28, [1 << 62])
    at = read_added(both, at, len(both), run)
    assert (at, run.ledger_id, run.count) == (6 * 28, 3, 1)
    assert read_added(both, at, len(both), run) == at
    assert run.count == 0
    for changed in range(12):
        other = bytearray(data[:28])
        other[changed] ^= 1
        assert read_added(bytes(other), 0, 28, run) == 0
        assert run.count == 0
    assert read_added(data, 0, 27, run) == 0


@pytest.mark.parametrize("step", [1, 5, 27, 28, 29, 1000])
def test_runs_and_other_answers_come_in_their_order(step: int) -> None:
    heard: list[Any] = []
    reader = AnswerReader(
        added=lambda run: heard.extend((run.ledger_id, each) for each in run.entry_ids[: run.count])
    )
    fenced = bytearray(good_answer(5, 2))
    fenced[11] = 104
    data = good_answer(5, 0) + good_answer(5, 1) + bytes(fenced) + good_answer(6, 3) + good_answer(5, 4)
    for at in range(0, len(data), step):
        for answer in reader.feed(data[at : at + step]):
            heard.append((answer.ledger_id, answer.entry_id, answer.status))
    assert heard == [(5, 0), (5, 1), (5, 2, 104), (6, 3), (5, 4)]


@pytest.mark.parametrize("ensemble", range(1, 7))
def test_an_entry_is_in_as_many_stripes_as_it_has_copies(ensemble: int) -> None:
    for write in range(1, ensemble + 1):
        stripes = [Stripe(index, ensemble, write, 0) for index in range(ensemble)]
        for entry_id in range(40):
            wanted = {(entry_id + step) % ensemble for step in range(write)}
            assert {stripe.index for stripe in stripes if stripe.takes(entry_id)} == wanted


def _reference(answered: list[set[int]], stripes: list[Stripe], ack: int, first: int, end: int) -> int:
    """Counts only what has no gap before it in its stripe."""
    entry_id = first
    while entry_id < end:
        count = 0
        for stripe, have in zip(stripes, answered, strict=True):
            before = [each for each in range(first, entry_id + 1) if stripe.takes(each)]
            if stripe.takes(entry_id) and all(each in have for each in before):
                count += 1
        if count < ack:
            break
        entry_id += 1
    return entry_id - 1


@pytest.mark.parametrize("seed", range(60))
def test_what_is_confirmed_is_on_its_ack_quorum(seed: int) -> None:
    random = simulated_io(seed).io.randomness
    ensemble = 1 + random.below(6)
    write = 1 + random.below(ensemble)
    ack = 1 + random.below(write)
    first = random.below(20)
    end = first + 1 + random.below(30)
    stripes = [Stripe(index, ensemble, write, first) for index in range(ensemble)]
    answered: list[set[int]] = [set() for _ in stripes]
    waiting = [[each for each in range(first, end) if stripe.takes(each)] for stripe in stripes]
    told = first - 1
    while any(waiting):
        number = random.below(ensemble)
        if not waiting[number]:
            continue
        many = 1 + random.below(len(waiting[number]))
        out_of_order = random.below(3) == 0
        ids = [
            waiting[number].pop(random.below(len(waiting[number])) if out_of_order else 0)
            for _ in range(many)
        ]
        stripes[number].answered(array("q", ids), many)
        answered[number].update(ids)
        confirmed = confirmed_through(stripes, write, ack, first, end)
        assert confirmed == _reference(answered, stripes, ack, first, end)
        assert confirmed >= told
        told = confirmed
    assert told == end - 1
    assert all(stripe.next >= end and not stripe.early for stripe in stripes)


class World:
    """A client and a model bookie, and who adds there: ``heard`` has what it was told."""

    def __init__(self) -> None:
        self.simulation = simulated_io(1)
        self.loop = self.simulation.loop
        self.server = ModelBookie(self.loop)
        self.listener = self.loop.run_until(self.simulation.host.listen("", 3181, self.server.factory))
        io = self.simulation.io
        settings = BookieSettings(5.0, 2.0, 0.2)
        self.bookie = Bookie(io.loop, io.clock, io.network, "one", lambda: ("localhost", 3181), settings)
        self.heard: list[tuple[AddStream, int]] = []
        self.unsent: dict[AddStream, bytes] = {}
        self.last: dict[AddStream, int] = {}
        self.stream = self.new_stream()

    def new_stream(self, first: int = 0, ledger_id: int = LEDGER) -> AddStream:
        return AddStream(ledger_id, Stripe(0, 1, 1, first), self)

    def on_added(self, stream: AddStream) -> None:
        self.heard.append((stream, Status.OK))

    def on_not_added(self, stream: AddStream, status: int) -> None:
        self.heard.append((stream, status))

    def add(self, first: int, count: int, stream: AddStream | None = None) -> int:
        data, _ = frames(first, [b"payload"] * count)
        stream = stream or self.stream
        before = self.unsent.get(stream, b"")
        self.unsent[stream] = before + data
        self.last[stream] = first + count - 1
        self.bookie.add_soon(stream)
        return len(data)

    def sending(self, stream: AddStream) -> tuple[list[bytes], int, int]:
        data = self.unsent.pop(stream, b"")
        return [data], self.last[stream], len(data)

    def run(self, seconds: float = 1.0) -> list[tuple[AddStream, int]]:
        self.loop.run_for(seconds)
        heard, self.heard = self.heard, []
        return heard

    def failures(self, seconds: float = 1.0) -> list[tuple[AddStream, int]]:
        return [each for each in self.run(seconds) if each[1] != Status.OK]


def test_a_run_is_told_of_in_runs() -> None:
    world = World()
    size = world.add(0, 100) + world.add(100, 50)
    world.server.delay = 0.5
    world.loop.run_for(0.3)
    assert world.bookie.pending_bytes == size
    heard = world.run()
    assert {status for _, status in heard} == {Status.OK}
    assert len(heard) < 10
    assert world.stream.stripe.next == 150
    assert (world.bookie.pending_bytes, world.bookie.in_progress) == (0, 0)
    assert sorted(world.server.ledgers[LEDGER].entries) == list(range(150))


def test_the_first_entry_that_is_not_stored_ends_the_stream() -> None:
    world = World()
    world.add(0, 3)
    world.run()
    world.server.read_only = True
    world.add(3, 3)
    assert world.run() == [(world.stream, Status.READ_ONLY)]
    world.add(6, 3)
    assert world.run() == []
    assert (world.bookie.pending_bytes, world.bookie.in_progress) == (0, 0)
    assert sorted(world.server.ledgers[LEDGER].entries) == [0, 1, 2]


def test_a_silent_bookie_ends_the_stream_in_time() -> None:
    world = World()
    world.server.silent = True
    world.add(0, 3)
    assert world.run(4) == []
    world.add(3, 1)
    assert world.run(2) == [(world.stream, Status.TIMED_OUT)]
    assert (world.bookie.pending_bytes, world.bookie.in_progress) == (0, 0)


def test_a_lost_connection_ends_all_streams_and_others_can_begin() -> None:
    world = World()
    world.add(0, 3)
    world.run()
    world.server.silent = True
    other = world.new_stream(ledger_id=LEDGER)
    world.add(3, 3)
    world.add(0, 2, other)
    world.loop.run_for(0.1)
    world.server.drop_connections()
    assert world.run() == [(world.stream, Status.LOST), (other, Status.LOST)]
    assert (world.bookie.pending_bytes, world.bookie.in_progress) == (0, 0)
    world.server.silent = False
    third = world.new_stream(3)
    world.add(3, 3, third)
    assert world.failures() == []
    assert third.stripe.next == 6


def test_nothing_is_added_to_a_stream_that_is_about_to_hear_of_its_end() -> None:
    world = World()
    other = world.new_stream(ledger_id=LEDGER + 1)
    world.server.silent = True
    world.add(0, 1)
    world.add(0, 1, other)
    world.loop.run_for(0.1)
    on_not_added = world.on_not_added

    def hear(stream: AddStream, status: int) -> None:
        on_not_added(stream, status)
        if stream is world.stream:
            world.server.silent = False
            world.add(1, 1, other)

    world.on_not_added = hear  # type: ignore[method-assign]
    world.server.drop_connections()
    assert world.run() == [(world.stream, Status.LOST), (other, Status.LOST)]
    assert world.bookie.in_progress == 0
    assert sorted(world.server.ledgers[LEDGER].entries) == [0]


def test_nobody_listens() -> None:
    world = World()
    world.listener.close()
    world.add(0, 1)
    world.add(1, 1)
    assert world.run(0.1) == [(world.stream, Status.LOST)]
    other = world.new_stream()
    world.add(0, 1, other)
    assert world.run(0.01) == [(other, Status.LOST)], "a moment later"


def test_answers_of_whoever_left_are_not_those_of_who_came_after() -> None:
    world = World()
    world.server.delay = 2.0
    world.server.read_only = True
    former = world.new_stream(5)
    world.add(5, 3, former)
    world.loop.run_for(1.0)
    former.leave()
    world.server.read_only = False
    again = world.new_stream(5)
    world.add(5, 3, again)
    assert world.run(1.5) == []
    assert again.stripe.next == 5
    assert {status for _, status in world.run(1.0)} == {Status.OK}
    assert again.stripe.next == 8
    assert (world.bookie.pending_bytes, world.bookie.in_progress) == (0, 0)


def test_single_adds_have_their_answers_beside_runs() -> None:
    world = World()
    told: list[int] = []
    world.add(0, 3)
    for entry_id in (0, 1):
        head = DIGEST.head(LEDGER + 1, entry_id, -1, 1, b"x")
        world.bookie.add(LEDGER + 1, entry_id, KEY, (head, b"x"), lambda status, _bodies: told.append(status))
    world.add(3, 1)
    assert world.failures() == []
    assert told == [Status.OK, Status.OK]
    assert world.stream.stripe.next == 4
    assert world.bookie.in_progress == 0


def test_closing_ends_the_stream() -> None:
    world = World()
    world.add(0, 3)
    world.bookie.close()
    assert world.run() == [(world.stream, Status.LOST)]
    other = world.new_stream()
    world.add(0, 3, other)
    assert world.run() == [(other, Status.LOST)]
