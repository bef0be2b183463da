"""The simulated network: what arrives, in which pieces, and what happens when somebody goes."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_io import Conditions, SimulatedLoop, SimulatedNetwork, Simulation, simulated_io


class Side:
    """A protocol that remembers."""

    def __init__(self, *, half_open: bool = False) -> None:
        self.transport: Any = None
        self.pieces: list[bytes] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self._half_open = half_open

    @property
    def received(self) -> bytes:
        return b"".join(self.pieces)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert "lost" not in self.events
        self.pieces.append(data)

    def eof_received(self) -> bool:
        self.events.append("end")
        return self._half_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Pair:
    """A server and a client, each a process of its own, connected."""

    def __init__(self, seed: int = 1, server: Side | None = None, **conditions: Any) -> None:
        self.loop = SimulatedLoop()  # type: ignore[abstract]
        self.network = SimulatedNetwork(self.loop, seed, Conditions(**conditions))
        self.server_process: Simulation = simulated_io(seed, network=self.network, name="server")
        self.client_process: Simulation = simulated_io(seed + 1, network=self.network, name="client")
        self.server = server or Side()
        self.listener = self.server_process.loop.run_until(
            self.server_process.io.network.listen("anything", 7, lambda: self.server)
        )
        self.client = Side()
        self.client_process.loop.run_until(
            self.client_process.io.network.connect("server", 7, lambda: self.client)
        )
        self.wait()

    def wait(self, seconds: float = 1.0) -> None:
        self.loop.run_for(seconds)


@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_bytes_arrive_in_order_however_they_are_cut(pieces: int) -> None:
    for seed in range(20):
        pair = Pair(seed, pieces=pieces, window=1000)
        sent = bytes(range(256)) * 20
        for at in range(0, len(sent), 100):
            pair.client.transport.write(sent[at : at + 100])
        pair.server.transport.write(b"hello")
        pair.wait()
        assert pair.server.received == sent
        assert pair.client.received == b"hello"
        if pieces != 1:
            assert len(pair.server.pieces) > 6
        if pieces == 0:
            assert {len(piece) for piece in pair.server.pieces[:100]} == {1}


def test_a_slow_reader_holds_its_sender_back() -> None:
    pair = Pair(window=1000, send_buffer=500)
    pair.client.transport.set_write_buffer_limits(high=2000, low=1000)
    pair.server.transport.pause_reading()
    pair.client.transport.write(bytes(10_000))
    pair.wait()
    assert pair.client.events == ["made", "pause"]
    assert pair.client.transport.get_write_buffer_size() == 10_000 - 1000 - 500
    assert pair.server.received == b""
    pair.server.transport.resume_reading()
    pair.wait()
    assert len(pair.server.received) == 10_000
    assert pair.client.events == ["made", "pause", "resume"]


def test_closing_sends_what_was_written_and_ends_the_other_side() -> None:
    pair = Pair(window=10)
    pair.client.transport.write(b"x" * 100)
    pair.client.transport.close()
    assert pair.client.transport.is_closing()
    pair.wait()
    assert pair.server.received == b"x" * 100
    assert pair.server.events == ["made", "end", "lost"]
    assert pair.client.events == ["made", "lost"]
    assert pair.server.error is None
    assert not pair.network.links


def test_a_half_open_connection_breaks_when_it_is_written_to() -> None:
    pair = Pair(server=Side(half_open=True))
    pair.client.transport.close()
    pair.wait()
    assert pair.server.events == ["made", "end"]
    pair.server.transport.write(b"too late")
    pair.wait()
    assert isinstance(pair.server.error, ConnectionResetError)


def test_aborting_loses_what_is_unsent_and_resets_the_other_side() -> None:
    pair = Pair(latency=0.5)
    pair.client.transport.write(b"x" * 100)
    pair.client.transport.abort()
    pair.wait(3)
    assert pair.server.received == b""
    assert isinstance(pair.server.error, ConnectionResetError)
    assert pair.client.events == ["made", "lost"]


def test_connections_are_cut_at_any_flight() -> None:
    arrived = set()
    for seed in range(60):
        pair = Pair(seed, cut=1.0, longest_life=30)
        for number in range(40):
            pair.client.transport.write(bytes([number]))
            pair.wait(0.01)
        pair.wait()
        assert pair.client.events[-1] == pair.server.events[-1] == "lost"
        assert pair.server.received == bytes(range(len(pair.server.received)))
        arrived.add(len(pair.server.received))
    assert len(arrived) > 10


def test_a_dead_process_hears_nothing_and_its_connections_are_reset() -> None:
    pair = Pair()
    pair.client.transport.write(b"never read")
    pair.server_process.abandon()
    pair.wait()
    assert pair.server.events == ["made"]
    assert isinstance(pair.client.error, ConnectionResetError)
    with pytest.raises(ConnectionRefusedError):
        pair.client_process.loop.run_until(pair.client_process.io.network.connect("server", 7, Side))


def test_a_machine_without_power_is_silent_until_it_is_back() -> None:
    pair = Pair()
    pair.server_process.abandon(silently=True)
    pair.client.transport.write(b"is anybody there")
    pair.wait(100)
    assert pair.client.events == ["made"]
    again = simulated_io(9, network=pair.network, name="server")
    again.loop.run_until(again.io.network.listen("server", 7, Side))
    pair.client.transport.write(b"again")
    pair.wait()
    assert isinstance(pair.client.error, ConnectionResetError)


def test_connections_are_refused_and_unanswered() -> None:
    loop = SimulatedLoop()  # type: ignore[abstract]
    network = SimulatedNetwork(loop, 1, Conditions(refused=0.4, unanswered=0.3, connect_timeout=20))
    process = simulated_io(1, network=network, name="server")
    process.loop.run_until(process.io.network.listen("server", 7, Side))
    seen = set()
    for _ in range(50):
        before = loop.time()
        try:
            process.loop.run_until(process.io.network.connect("server", 7, Side))
            seen.add("made")
        except ConnectionRefusedError:
            seen.add("refused")
        except TimeoutError:
            assert loop.time() == before + 20
            seen.add("unanswered")
    assert seen == {"made", "refused", "unanswered"}


def test_a_port_is_taken_once_until_its_listener_closes() -> None:
    pair = Pair()
    network = pair.server_process.io.network
    with pytest.raises(OSError, match="in use"):
        pair.server_process.loop.run_until(network.listen("server", 7, Side))
    pair.listener.close()
    pair.server_process.loop.run_until(network.listen("server", 7, Side))


def test_a_buffer_that_is_used_again_too_early_shows() -> None:
    pair = Pair()
    buffer = bytearray(b"first")
    pair.client.transport.write(buffer)
    buffer[:] = b"other"
    pair.wait()
    assert pair.server.received == b"other"


def test_hosts_that_are_separated() -> None:
    pair = Pair()
    pair.network.separate("client", "server")
    pair.client.transport.write(b"lost")
    pair.wait(100)
    assert (pair.server.received, pair.server.events) == (b"", ["made"])
    with pytest.raises(TimeoutError):
        pair.client_process.loop.run_until(pair.client_process.io.network.connect("server", 7, Side))
    other = simulated_io(3, network=pair.network, name="other")
    other.loop.run_until(other.io.network.connect("server", 7, Side))
    pair.network.rejoin("client", "server")
    pair.wait()
    assert pair.client.events[-1] == pair.server.events[-1] == "lost"
    pair.client_process.loop.run_until(pair.client_process.io.network.connect("server", 7, Side))
