"""Version 3 of the bookies' protocol: the bytes of other clients and of bookies, and what only it can ask."""

from __future__ import annotations

from array import array
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from model_bookie import ModelBookie
from simulated_bookkeeper import SETTINGS, SimulatedServers, open_bookkeeper_store
from simulated_io import SimulatedLoop, SimulatedNetwork, simulated_io

from magnetar.ledger.bookkeeper import wire
from magnetar.ledger.bookkeeper.bookie import Bookie, BookieSettings
from magnetar.ledger.bookkeeper.digests import Digest, DigestType, master_key
from magnetar.ledger.bookkeeper.frames import Answer, Flag, FrameError, Operation, Status
from magnetar.ledger.bookkeeper.placement import DiskSpaceSettings, shuffled
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.ledger.bookkeeper.wire import VERSION_3, add_head, answer_reader, read_request
from magnetar.ledger.interface import DataDamaged, Quorums

LEDGER, UNKNOWN = 9200003, 9300000
KEY = master_key(b"")
TALK = {
    name.removeprefix("version 3: "): (bytes.fromhex(request), bytes.fromhex(answer))
    for name, request, answer in (
        line.split("\t")
        for line in (Path(__file__).parent / "data" / "conversation.tsv").read_text().splitlines()
    )
    if name.startswith("version 3: ")
}
DIGEST = Digest(DigestType.CRC32C, b"")


def asked(name: str) -> bytes:
    return TALK[name][0]


def answered(name: str, step: int = 1 << 20) -> Answer:
    data, reader = TALK[name][1], answer_reader()
    found = [answer for at in range(0, len(data), step) for answer in reader.feed(data[at : at + step])]
    assert len(found) == 1
    return found[0]


def body_of(name: str) -> bytes:
    """Of a request to add version 3 of the probe's messages: 38 bytes."""
    request = asked(name)
    at = request.index(b'"&') + 2
    return request[at : at + 38]


def test_adds_are_what_other_clients_send() -> None:
    for number, name in enumerate(("add", "add 2")):
        body = body_of(name)
        made = add_head(LEDGER, number, KEY, len(body)) + body
        # But for the number: theirs counts requests.
        assert made[:11] == asked(name)[:11]
        assert made[12:] == asked(name)[12:]
        DIGEST.check(LEDGER, number, body)


def test_a_recovery_add_says_so_before_the_body() -> None:
    """Fields may come in any order; theirs says so behind it."""
    name = "recovery add"
    body = body_of(name)
    made = add_head(LEDGER, 2, KEY, len(body), Flag.RECOVERY_ADD) + body
    flag = b"\xa0\x06\x01"
    assert flag in made
    assert flag in asked(name)
    assert len(made) == len(asked(name))
    assert sorted(made[12:]) == sorted(asked(name)[12:])


def test_high_priority_is_in_the_header() -> None:
    usual = add_head(LEDGER, 2, KEY, 10)
    urgent = add_head(LEDGER, 2, KEY, 10, Flag.HIGH_PRIORITY)
    assert urgent.count(b"\x20\x64") == 1
    assert len(urgent) == len(usual) + 2


def test_lengths_that_take_two_bytes_are_told() -> None:
    head = add_head(LEDGER, 1 << 40, KEY, 5_000_000)
    assert int.from_bytes(head[:4], "big") == len(head) - 4 + 5_000_000


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("read", lambda: read_request(3, LEDGER, 0)),
        ("read beyond end", lambda: read_request(5, LEDGER, 9)),
        ("read unknown ledger", lambda: read_request(6, UNKNOWN, 0)),
        ("read -1", lambda: read_request(7, LEDGER, -1)),
        ("fence read", lambda: read_request(17, LEDGER, -1, Flag.FENCE | Flag.HIGH_PRIORITY, KEY)),
        ("READ_LAC", lambda: wire.read_lac_request(9, LEDGER)),
        (
            "WRITE_LAC 1",
            lambda: wire.write_lac_request(10, LEDGER, 1, KEY, DIGEST.told(LEDGER, 1)),
        ),
        ("GET_BOOKIE_INFO 3", lambda: wire.disk_space_request(14)),
    ],
)
def test_other_requests_are_what_other_clients_send(name: str, made: Any) -> None:
    found = made()
    if name == "fence read":
        # Ours is urgent, too.
        assert found[0:4] == (len(asked(name)) - 4 + 2).to_bytes(4, "big")
        found = asked(name)[:5] + b"\x06" + found[6:].replace(b"\x20\x64", b"", 1)
    assert found == asked(name)


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_answers_are_read_however_they_are_cut(step: int) -> None:
    add, read = Operation.ADD, Operation.READ
    assert answered("add 2", step) == Answer(add, Status.OK, LEDGER, 1, 0, [])
    assert answered("read", step) == Answer(read, Status.OK, LEDGER, 0, 3, [body_of("add")])
    assert answered("read -1", step) == Answer(read, Status.OK, LEDGER, -1, 7, [body_of("add 2")])
    assert answered("read beyond end", step) == Answer(read, Status.NO_ENTRY, LEDGER, 9, 5, [])
    assert answered("read unknown ledger", step) == Answer(read, Status.NO_LEDGER, UNKNOWN, 0, 6, [])
    assert answered("add wrong master key", step) == Answer(add, Status.UNAUTHORIZED, LEDGER, 2, 0, [])
    assert answered("add fenced", step) == Answer(add, Status.FENCED, LEDGER, 2, 0, [])
    told = answered("READ_LAC after WRITE_LAC", step).bodies
    assert told == [DIGEST.told(LEDGER, 1), body_of("add 2")]
    space = wire.disk_space(answered("GET_BOOKIE_INFO 3", step).bodies)
    assert space == (270553174016, 74656419840)


def test_what_is_no_answer_is_refused() -> None:
    with pytest.raises(FrameError, match="an answer is not of version 3"):
        list(answer_reader().feed(b"\x00\x00\x00\x09\x02" + bytes(8)))
    with pytest.raises(FrameError, match="operation 12, status 404"):
        list(answer_reader().feed(TALK["BATCH_READ_ENTRY (no message exists)"][1]))


@pytest.mark.parametrize("kind", DigestType)
def test_what_is_told_apart_carries_a_digest(kind: DigestType) -> None:
    digest = Digest(kind, b"secret")
    body = digest.told(5, 77)
    assert digest.check_told(5, body) == 77
    for damaged in (body[:10], body + b"x", b""):
        with pytest.raises(DataDamaged):
            digest.check_told(5, damaged)
    with pytest.raises(DataDamaged, match="ledger 5"):
        digest.check_told(6, body)
    if kind is not DigestType.DUMMY:
        with pytest.raises(DataDamaged, match="digest"):
            digest.check_told(5, body[:15] + b"\x01" + body[16:])


def test_questions_of_the_same_entry_are_told_apart() -> None:
    simulation = simulated_io(1)
    loop = simulation.loop
    server = ModelBookie(loop)
    loop.run_until(simulation.host.listen("", 3181, server.factory))
    io = simulation.io
    settings = BookieSettings(5.0, 2.0, 0.2, VERSION_3)
    bookie = Bookie(io.loop, io.clock, io.network, "one", lambda: ("localhost", 3181), settings)
    told: list[tuple[str, int]] = []

    def tell(name: str) -> Any:
        return lambda status, _bodies: told.append((name, status))

    bookie.read(1, -1, tell("before"))
    head = DIGEST.head(1, 0, -1, 3, b"abc")
    bookie.add(1, 0, KEY, (head, b"abc"), tell("add"))
    bookie.read(1, -1, tell("behind"))
    bookie.read(1, -1, tell("fence"), Flag.FENCE, KEY)
    bookie.add(1, 1, KEY, (DIGEST.head(1, 1, 0, 6, b"abc"), b"abc"), tell("fenced"))
    loop.run_for(1)
    assert told == [
        ("before", Status.NO_LEDGER),
        ("add", Status.OK),
        ("behind", Status.OK),
        ("fence", Status.OK),
        ("fenced", Status.FENCED),
    ]


class Cluster:
    """Stores of several processes on model servers."""

    def __init__(self, bookies: int = 3) -> None:
        self.loop = SimulatedLoop()  # type: ignore[abstract]
        self.network = SimulatedNetwork(self.loop, 1)
        self.simulation: Any = None
        self.servers = SimulatedServers(self.network, bookies)

    def open(self, name: str, settings: BookKeeperSettings) -> BookKeeperLedgerStore:
        self.simulation = simulated_io(len(name), network=self.network, name=name)
        return self.run(open_bookkeeper_store(self.simulation, settings))

    def run(self, work: Any) -> Any:
        """In the process that was opened last."""
        return self.loop.run_until(self.simulation.loop.create_task(work))


def numbered(settings: BookKeeperSettings) -> BookKeeperSettings:
    bookies = settings.bookies
    return settings._replace(bookies=bookies._replace(bookie=bookies.bookie._replace(wire=VERSION_3)))


@pytest.mark.parametrize("writes_in", [SETTINGS, numbered(SETTINGS)], ids=["version 2", "version 3"])
def test_what_was_confirmed_is_told_when_nothing_follows(writes_in: BookKeeperSettings) -> None:
    cluster = Cluster()
    told = cluster.open("writes", writes_in._replace(explicit_lac_seconds=0.5))
    writer = cluster.run(told.create(Quorums(3, 3, 2), {}))
    other = cluster.open("reads", numbered(SETTINGS))
    for _ in range(4):
        writer.append(b"payload", array("q", [0]), array("q", [7]), 0, 1)
    cluster.loop.run_for(0.2)
    reader = cluster.run(other.open(writer.ledger_id, recover=False))
    assert cluster.run(reader.last_add_confirmed()) < 3
    cluster.loop.run_for(1)
    assert cluster.run(reader.last_add_confirmed()) == 3
    # Nothing new: nobody is told again.
    cluster.loop.run_for(1)
    requests = [bookie.model.requests for bookie in cluster.servers.bookies]
    cluster.loop.run_for(5)
    assert [bookie.model.requests for bookie in cluster.servers.bookies] == requests


def test_a_bookie_that_was_not_told_is_told_again() -> None:
    cluster = Cluster()
    store = cluster.open("writes", SETTINGS._replace(explicit_lac_seconds=0.5))
    writer = cluster.run(store.create(Quorums(3, 3, 2), {}))
    writer.append(b"payload", array("q", [0]), array("q", [7]), 0, 1)
    cluster.loop.run_for(0.2)
    cluster.servers.bookies[1].kill(forgotten_after=60.0)
    cluster.loop.run_for(2)
    cluster.servers.bookies[1].start()
    cluster.loop.run_for(3)
    wanted = DIGEST.told(writer.ledger_id, 0)
    assert [bookie.model.told.get(writer.ledger_id) for bookie in cluster.servers.bookies] == [wanted] * 3


def test_bookies_with_more_room_get_more_ledgers() -> None:
    cluster = Cluster(4)
    tera = 1 << 40
    for bookie, free in zip(cluster.servers.bookies, (tera, tera, tera, 50 * tera), strict=True):
        bookie.model.disk = (100 * tera, free)
    store = cluster.open("weighs", SETTINGS._replace(disk_space=DiskSpaceSettings()))
    cluster.loop.run_for(1)
    ids = [bookie.bookie_id for bookie in cluster.servers.bookies]
    chosen = [store.placement.ensemble(Quorums(1, 1, 1))[0] for _ in range(2000)]
    shares = [chosen.count(each) / 2000 for each in ids]
    # The large one counts three times.
    assert shares == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2], abs=0.05)


def test_disk_space_is_asked_again_for_those_that_did_not_answer_and_when_it_is_old() -> None:
    cluster = Cluster(3)
    cluster.servers.bookies[2].model.silent = True
    settings = DiskSpaceSettings(interval_seconds=100.0, retry_seconds=10.0)
    store = cluster.open("weighs", SETTINGS._replace(disk_space=settings))
    models = [bookie.model for bookie in cluster.servers.bookies]
    cluster.loop.run_for(35)
    assert [model.requests for model in models] == [1, 1, 4]
    models[2].silent = False
    cluster.loop.run_for(10)
    cluster.loop.run_for(75)
    assert [model.requests for model in models] == [2, 2, 5]
    cluster.run(store.close())


def test_whoever_should_get_nothing_less_comes_last_more_often() -> None:
    randomness = simulated_io(7).io.randomness
    first = [
        shuffled(["a", "b"], partial(_weights, {"a": 1.0, "b": 0.01}), randomness)[0] for _ in range(500)
    ]
    assert first.count("b") < 25


def _weights(weights: dict[str, float], names: Any) -> list[float]:
    return [weights[name] for name in names]
