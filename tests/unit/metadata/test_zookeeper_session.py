"""A session with ZooKeeper over lost connections, silent servers and expiry, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from model_zookeeper import ModelZooKeeper
from simulated_io import Simulation, simulated_io

from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    Change,
    MetadataRefused,
    MetadataUnavailable,
    SessionEvent,
)
from magnetar.metadata.zookeeper.address import AddressRefused, ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

TIMEOUT = 6.0
LOST_AFTER = TIMEOUT * 5 / 6


class World:
    """One client, one model server; ``events`` of the session with their times."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation: Simulation = simulated_io(seed)
        self.loop = self.simulation.loop
        self.server = ModelZooKeeper(self.loop)
        self.listener: Any = None
        self.events: list[tuple[SessionEvent, float]] = []
        self.changes: list[Change] = []
        self.listen()
        self.store = self.opened()
        self.store.listen_session(lambda event: self.events.append((event, self.loop.time())))
        self.loop.run_for(0.1)

    def listen(self) -> None:
        host = self.simulation.host
        self.listener = self.loop.run_until(host.listen("", 2181, self.server.factory))

    def outside(self) -> Outside:
        io = self.simulation.io
        return Outside(io.loop, io.clock, io.randomness, io.network)

    def opened(self, wait_seconds: float = 10) -> ZooKeeperMetadataStore:
        address = ensemble_address("zk:localhost:2181/root")
        settings = SessionSettings(int(TIMEOUT * 1000))
        return self.loop.run_until(
            ZooKeeperMetadataStore.open_store(self.outside(), address, settings, wait_seconds=wait_seconds)
        )

    def go_away(self) -> None:
        self.listener.close()
        self.server.drop_connections()

    @property
    def told(self) -> list[SessionEvent]:
        return [event for event, _ in self.events]

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until(awaitable)

    def start(self, awaitable: Any) -> asyncio.Task[Any]:
        task = self.loop.create_task(awaitable)
        self.loop.run_for(0.01)
        return task


def test_a_server_that_ends_every_connection_at_once_is_not_asked_without_a_pause() -> None:
    world = World()
    greeted: list[float] = []
    open_session = world.server.open_session

    def opened(number: int, timeout: float) -> Any:
        greeted.append(world.loop.time())
        world.loop.call_later(0.01, world.server.drop_connections)
        return open_session(number, timeout)

    world.server.open_session = opened  # type: ignore[method-assign]
    world.server.drop_connections()
    world.loop.run_for(5)
    assert 3 < len(greeted) < 30
    world.server.open_session = open_session  # type: ignore[method-assign]
    world.loop.run_for(2)
    assert world.store.session.connected
    assert SessionEvent.LOST not in world.told


def test_the_late_end_of_an_attempt_is_no_end_of_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    network = world.simulation.io.network
    connect, attempts = network.connect, 0

    async def connected(host: str, port: int, factory: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            return await connect(host, port, factory)
        made = factory()
        try:
            await world.loop.create_future()
        finally:
            world.loop.call_later(1.0, made.connection_lost, None)

    monkeypatch.setattr(network, "connect", connected)
    world.server.drop_connections()
    world.loop.run_for(10)
    assert attempts == 2
    assert world.told == [SessionEvent.CONNECTED, SessionEvent.DISCONNECTED, SessionEvent.RECONNECTED]


def test_the_session_goes_on_over_a_new_connection() -> None:
    world = World()
    world.store.listen("/", world.changes.append)
    world.run(world.store.put("/own", b"", ephemeral=True))
    number = world.store.session.session_id
    world.go_away()
    world.loop.run_for(2)
    reading = world.start(world.store.get("/own"))
    world.listen()
    node = world.run(reading)
    assert node.own
    assert world.store.session.session_id == number
    assert world.told == [SessionEvent.CONNECTED, SessionEvent.DISCONNECTED, SessionEvent.RECONNECTED]
    world.changes.clear()
    world.run(world.store.put("/own", b"1"))
    assert [change.path for change in world.changes] == ["/own"], "it watches on the new connection, too"


def test_a_silent_server_means_a_lost_session_before_it_can_expire() -> None:
    world = World()
    world.run(world.store.put("/own", b"", ephemeral=True))
    last = world.loop.time()
    world.server.silent = True
    waiting = world.start(world.store.put("/x", b""))
    world.loop.run_for(TIMEOUT * 2)
    lost_at = dict(world.events)[SessionEvent.LOST]
    assert last + LOST_AFTER - TIMEOUT / 6 <= lost_at <= last + LOST_AFTER + 0.01 + TIMEOUT / 6
    (expired,) = [when for _, when in world.server.expired]
    assert lost_at < expired
    with pytest.raises(MetadataUnavailable):
        world.run(waiting)
    world.server.silent = False
    world.loop.run_for(TIMEOUT)
    assert world.told[-1] is SessionEvent.RECONNECTED
    assert world.run(world.store.get("/own")) is None


@pytest.mark.parametrize("seconds", [0.3 * step for step in range(10)])
def test_a_session_that_was_given_up_is_never_taken_up_again(seconds: float) -> None:
    world = World()
    world.server.max_timeout = 1000
    world.run(world.store.put("/own", b"", ephemeral=True))
    first = world.store.session.session_id
    world.server.sessions[first].timeout = 1000
    world.server.silent = True
    world.loop.run_for(LOST_AFTER)
    world.loop.run_for(seconds)
    assert SessionEvent.LOST in world.told
    world.server.speak()
    world.loop.run_for(2)
    assert world.told[-1] is SessionEvent.RECONNECTED
    assert world.store.session.session_id != first
    own = world.run(world.store.get("/own"))
    assert not own.own, "it is the other session's, which the server has not ended yet"


@pytest.mark.parametrize("seed", range(20))
def test_it_is_lost_here_before_it_expires_there(seed: int) -> None:
    world = World(seed)
    world.simulation.host.network.conditions.latency = 0.5
    for _ in range(seed % 7):
        world.run(world.store.put(f"/n{world.loop.time()}", b""))
        world.loop.run_for(0.1 * seed)
    world.go_away()
    world.loop.run_for(TIMEOUT * 2)
    assert dict(world.events)[SessionEvent.LOST] < world.server.expired[0][1]


def test_what_was_sent_may_have_happened_and_what_was_not_has_not() -> None:
    world = World()
    world.server.silent = True
    sent = world.start(world.store.put("/sent", b"", MUST_NOT_EXIST))
    world.go_away()
    with pytest.raises(MetadataUnavailable) as unknown:
        world.run(sent)
    assert not isinstance(unknown.value, MetadataRefused)
    asked = world.start(world.store.put("/asked", b""))
    world.loop.run_for(TIMEOUT)
    with pytest.raises(MetadataRefused, match="lost"):
        world.run(asked)
    later = world.start(world.store.get("/later"))
    world.loop.run_for(TIMEOUT * 2)
    with pytest.raises(MetadataRefused, match="no connection"):
        world.run(later)


def test_a_session_that_a_server_ended_is_lost_and_another_one_begins() -> None:
    world = World()
    world.store.listen("/", world.changes.append)
    first = world.store.session.session_id
    world.server.end_session(world.server.sessions[first])
    world.loop.run_for(2)
    assert world.told[1:] == [SessionEvent.DISCONNECTED, SessionEvent.LOST, SessionEvent.RECONNECTED]
    assert world.store.session.session_id != first
    world.run(world.store.put("/again", b""))
    assert "/again" in [change.path for change in world.changes]


def test_a_quiet_session_stays() -> None:
    world = World()
    world.loop.run_for(TIMEOUT * 100)
    assert world.told == [SessionEvent.CONNECTED]
    assert not world.server.expired


def test_a_damaged_answer_costs_the_connection_alone() -> None:
    world = World()
    [connection] = world.server.connections
    connection._send(b"\0\0")
    world.loop.run_for(1)
    assert world.told == [SessionEvent.CONNECTED, SessionEvent.DISCONNECTED, SessionEvent.RECONNECTED]
    assert world.run(world.store.exists("/")) is True


def test_nobody_there() -> None:
    world = World()
    world.go_away()
    with pytest.raises(MetadataRefused, match="localhost:2181/root cannot be reached"):
        world.opened(wait_seconds=3)


def test_closing_ends_the_session_at_the_server() -> None:
    world = World()
    world.run(world.store.put("/own", b"", ephemeral=True))
    world.run(world.store.close())
    world.loop.run_for(0.1)
    assert not world.server.sessions
    assert "/root/own" not in world.server.nodes
    with pytest.raises(MetadataRefused, match="closed"):
        world.run(world.store.get("/own"))
    world.run(world.store.close())


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk:a:1,b:2/x/y", (("a", 1), ("b", 2)), "/x/y"),
        ("a", (("a", 2181),), ""),
        ("zk://a:1/", (("a", 1),), ""),
        ("zookeeper:[::1]:7,[::2]", (("::1", 7), ("::2", 2181)), ""),
    ],
)
def test_addresses(text: str, hosts: tuple[tuple[str, int], ...], chroot: str) -> None:
    found = ensemble_address(text)
    assert (found.hosts, found.chroot) == (hosts, chroot)
    assert ensemble_address(str(found)) == found


@pytest.mark.parametrize("text", ["", "zk:", "a:0", "a:x", "a,,b", "a:1/x//y", "a:99999", "a/../b"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(AddressRefused):
        ensemble_address(text)


def test_a_session_whose_connections_meet_an_unexpected_error_is_lost_and_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    found: list[Exception] = []
    monkeypatch.setattr(
        world.loop, "call_exception_handler", lambda context: found.append(context["exception"])
    )
    session = world.store.session
    connect, before = session._connect, session.session_id

    async def defective(*_arguments: object) -> bool:
        raise KeyError("a defect")

    monkeypatch.setattr(session, "_connect", defective)
    world.server.drop_connections()
    world.loop.run_for(2.0)
    assert {type(error) for error in found} == {KeyError}
    assert world.told[-1] is SessionEvent.LOST
    with pytest.raises(MetadataUnavailable):
        world.run(world.store.get("/none"))
    monkeypatch.setattr(session, "_connect", connect)
    world.loop.run_for(20.0)
    assert session.connected
    assert session.session_id != before
    assert world.run(world.store.get("/none")) is None
