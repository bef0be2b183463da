"""A WebSocket on a transport that only remembers."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_io.loop import SimulatedLoop
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from magnetar.http.engine.message import Request
from magnetar.http.engine.websocket import WebSocket, WebSocketLimits, refusal_of, upgrade


class Remembers:
    """A transport and a conversation."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = self.aborted = self.paused = False
        self.messages: list[str] = []
        self.socket: WebSocket | None = None
        self.ends = 0
        self.told_to_go_on = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else default

    def opened(self, socket: WebSocket) -> None:
        self.socket = socket

    def received(self, text: str) -> None:
        self.messages.append(text)

    def go_on(self) -> None:
        self.told_to_go_on += 1

    def ended(self) -> None:
        self.ends += 1


class World:
    def __init__(self, **limits: Any) -> None:
        self.loop = SimulatedLoop()
        self.seen = Remembers()
        self.socket = WebSocket(self.seen, self.loop, WebSocketLimits(**limits))
        self.client = Connection(ConnectionType.CLIENT)
        self.socket.begin(self.seen, b"")  # type: ignore[arg-type]

    def say(self, event: Any) -> None:
        self.socket.data_received(self.client.send(event))

    def heard(self) -> list[Any]:
        self.client.receive_data(bytes(self.seen.written))
        self.seen.written.clear()
        return list(self.client.events())


def test_messages_go_both_ways_however_they_are_cut() -> None:
    world = World()
    whole = world.client.send(TextMessage("one")) + world.client.send(
        TextMessage("t", message_finished=False)
    )
    whole += world.client.send(TextMessage("wo"))
    for byte in whole:
        world.socket.data_received(bytes([byte]))
    assert world.seen.messages == ["one", "two"]
    assert world.socket.remote == "127.0.0.1:5"
    world.socket.send("answer")
    assert [event.data for event in world.heard()] == ["answer"]


def test_a_message_in_parts_is_one_that_others_wait_for_and_pings_do_not() -> None:
    world = World()
    world.socket.send_part("one ", last=False)
    world.socket.send("behind")
    world.say(Ping(b"x"))
    world.socket.send_part("two ", last=False)
    world.socket.send_part("three", last=True)
    world.socket.send_part("whole", last=True)
    heard = world.heard()
    assert [event.payload for event in heard if isinstance(event, Pong)] == [b"x"]
    texts = [event for event in heard if isinstance(event, TextMessage)]
    assert "".join(event.data for event in texts) == "one two threebehindwhole"
    assert [event.message_finished for event in texts] == [False, False, True, True, True]


def test_a_message_in_parts_may_end_early() -> None:
    world = World()
    world.socket.send_part("one ", last=False)
    world.socket.close(1011, "given up")
    world.socket.send_part("two", last=True)
    assert [type(event) for event in world.heard()] == [TextMessage, CloseConnection]


def test_what_came_with_the_request_counts() -> None:
    world = World()
    seen = Remembers()
    socket = WebSocket(seen, world.loop, WebSocketLimits())
    socket.begin(seen, world.client.send(TextMessage("early")))  # type: ignore[arg-type]
    assert seen.messages == ["early"]


def test_what_comes_behind_the_end_is_left_alone() -> None:
    world = World()
    end, late = world.client.send(CloseConnection(1000)), Connection(ConnectionType.CLIENT)
    world.socket.data_received(bytes(end + late.send(TextMessage("late")) + late.send(Ping(b"late"))))
    [close] = world.heard()
    assert isinstance(close, CloseConnection)
    assert (world.seen.messages, world.seen.closed, world.seen.aborted) == ([], True, False)


def test_pings_are_answered() -> None:
    world = World()
    world.say(Ping(b"x"))
    [pong] = world.heard()
    assert isinstance(pong, Pong)
    assert pong.payload == b"x"


@pytest.mark.parametrize(
    ("event", "code"),
    [(TextMessage("x" * 11), 1009), (BytesMessage(b"x"), 1003)],
)
def test_what_is_not_taken_ends_it(event: Any, code: int) -> None:
    world = World(message_bytes=10)
    world.say(event)
    [close] = world.heard()
    assert isinstance(close, CloseConnection)
    assert close.code == code
    assert not world.seen.messages
    world.socket.send("nobody hears this")
    assert not world.seen.written
    world.say(close.response())
    assert world.seen.closed


def test_many_small_pieces_are_too_large_together() -> None:
    world = World(message_bytes=10)
    for _ in range(4):
        world.say(TextMessage("xxx", message_finished=False))
    [close] = world.heard()
    assert close.code == 1009


def test_frames_that_are_none_end_it() -> None:
    world = World()
    world.socket.data_received(b"\xff\xff\xff\xff")
    [close] = world.heard()
    assert close.code == 1002


def test_who_does_not_say_goodbye_is_cut_off() -> None:
    world = World()
    world.socket.close(1000, "x" * 500)
    [close] = world.heard()
    assert len(close.reason) == 120
    world.loop.run_for(6.0)
    assert world.seen.aborted


def test_the_client_ends_it() -> None:
    world = World()
    world.say(CloseConnection(1000))
    [close] = world.heard()
    assert close.code == 1000
    assert world.seen.closed
    world.socket.connection_lost(None)
    world.socket.connection_lost(None)
    assert world.seen.ends == 1


def test_one_that_never_began_is_told_to_have_ended() -> None:
    world = World()
    seen = Remembers()
    WebSocket(seen, world.loop, WebSocketLimits()).connection_lost(None)
    assert seen.ends == 1


def test_who_takes_nothing_is_not_read() -> None:
    world = World()
    assert world.socket.takes
    world.socket.pause_writing()
    assert world.seen.paused
    assert not world.socket.takes
    world.socket.resume_writing()
    assert not world.seen.paused
    assert world.socket.takes
    assert world.seen.told_to_go_on == 1
    world.socket.pause_writing()
    world.socket.close(1000)
    # That the client says goodbye, too, has to be heard.
    assert not world.seen.paused
    assert not world.socket.takes


def test_idle_ones_end_and_pings_go_out() -> None:
    world = World(idle_seconds=10.0, ping_seconds=4.0)
    world.loop.run_for(9.0)
    assert [type(event) for event in world.heard()] == [Ping, Ping]
    world.socket.send("still here")
    world.heard()
    world.loop.run_for(9.0)
    assert CloseConnection not in [type(event) for event in world.heard()]
    world.loop.run_for(2.0)
    [close] = [event for event in world.heard() if isinstance(event, CloseConnection)]
    assert close.code == 1001


def asked(**headers: str) -> Request:
    given = {
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return Request("GET", "/ws", headers=given)


def test_the_handshake_is_that_of_the_standard() -> None:
    # The key and its answer are those of RFC 6455, section 1.3.
    world = World()
    response = upgrade(asked(), WebSocket(world.seen, world.loop, WebSocketLimits()))
    assert dict(response.headers)["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert refusal_of(asked()) is None


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (asked(upgrade="h2c"), 426),
        (asked(sec_websocket_version="8"), 426),
        (asked(sec_websocket_key="short"), 400),
        (asked(sec_websocket_key="c2hvcnQ="), 400),
    ],
)
def test_what_is_no_handshake_is_refused(request_: Request, status: int) -> None:
    response = refusal_of(request_)
    assert response is not None
    assert response.status == status


def test_an_end_before_the_connection_is_a_websocket_is_told_once_it_is() -> None:
    world = World()
    seen = Remembers()
    socket = WebSocket(seen, world.loop, WebSocketLimits())
    socket.close(1008, "not allowed any more")
    socket.begin(seen, world.client.send(TextMessage("early")))  # type: ignore[arg-type]
    assert not seen.messages
    assert seen.socket is None
    world.seen.written = seen.written
    [close] = world.heard()
    assert (close.code, close.reason) == (1008, "not allowed any more")
    socket.connection_lost(None)
    assert seen.ends == 1


def test_a_frame_that_is_too_large_is_refused_by_its_head_and_not_read_on() -> None:
    world = World(message_bytes=1000)
    world.socket.data_received(b"\x81\xff" + ((1 << 63) - 1).to_bytes(8, "big"))
    [close] = world.heard()
    assert close.code == 1009
    assert world.seen.paused
    world.socket.data_received(bytes(1 << 20))
    world.loop.run_for(10.0)
    assert world.seen.aborted
    assert not world.seen.messages
