"""The wires that tests cut do what networks do, without which rounds with them would say nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tcp_proxy import Direction, TcpProxy


class Echo:
    """Answers what it hears, and remembers it."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            while piece := connection.recv(65536):
                self.heard += piece
                connection.sendall(piece)
        except OSError:
            # The wire was cut.
            return


@pytest.fixture
def server() -> Echo:
    return Echo()


@pytest.fixture
def wire(server: Echo) -> Iterator[TcpProxy]:
    made = TcpProxy(server.port)
    yield made
    made.close()


@pytest.fixture
def client(wire: TcpProxy) -> Iterator[socket.socket]:
    with connected(wire) as made:
        assert answer(made, b"first") == b"first"
        yield made


def connected(wire: TcpProxy) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", wire.port))
    made.settimeout(30)
    return made


def answer(client: socket.socket, body: bytes) -> bytes:
    client.sendall(body)
    return take(client, len(body))


def take(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = client.recv(size - len(found))
        assert piece, found
        found += piece
    return found


def is_silent(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(30)
    return False


@pytest.mark.parametrize("direction", [None, *Direction])
def test_what_was_sent_while_a_wire_was_silent_arrives_later(
    server: Echo, wire: TcpProxy, client: socket.socket, direction: Direction | None
) -> None:
    wire.stall(*(() if direction is None else (direction,)))
    client.sendall(b"second")
    assert is_silent(client)
    assert server.heard == (b"firstsecond" if direction is Direction.TO_CLIENT else b"first")
    wire.heal()
    assert take(client, 6) == b"second"


def test_connections_made_while_a_wire_is_silent(server: Echo, wire: TcpProxy) -> None:
    wire.stall()
    with connected(wire) as client:
        client.sendall(b"x")
        assert is_silent(client)
        wire.heal()
        assert take(client, 1) == b"x"


def test_a_reset(wire: TcpProxy, client: socket.socket) -> None:
    wire.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with connected(wire) as other:
        assert answer(other, b"x") == b"x"


def test_nobody_listens(wire: TcpProxy, client: socket.socket) -> None:
    wire.refuse()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connected(wire)
    wire.heal()
    with connected(wire) as other:
        assert answer(other, b"x") == b"x"


def test_who_ends_a_connection_ends_both_sides_of_it(wire: TcpProxy, client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""


def test_slow_wires(wire: TcpProxy, client: socket.socket) -> None:
    """A delay there and one back; what is sent at once is delayed once."""
    wire.slow(0.1)
    began = time.monotonic()
    assert answer(client, b"x") == b"x"
    assert time.monotonic() - began >= 0.2
    wire.slow(0.0, 1_000_000)
    began = time.monotonic()
    assert answer(client, bytes(200_000)) == bytes(200_000)
    assert time.monotonic() - began >= 0.2
