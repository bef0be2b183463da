"""Proving to a bookie who one is, over both versions of the protocol, and what bookies may say to that."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from hashlib import md5
from typing import Any

import pytest
from simulated_io import simulated_io

from magnetar.ledger.bookkeeper import bookie_protocol_pb2 as pb
from magnetar.ledger.bookkeeper.authentication import AuthProvider, digest_auth_provider
from magnetar.ledger.bookkeeper.bookie import Bookie, BookieSettings
from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.bookkeeper.wire import VERSION_2, VERSION_3, Wire
from magnetar.protocol.digest_md5 import NameAndPassword

PASSWORD = "of bookies"
CHALLENGE = b'realm="bookkeeper",nonce="of the bookie",qop="auth",charset=utf-8,algorithm=md5-sess'
GOOD_READ = struct.pack(">IBBHiqq", 28, 2, 2, 0, 0, 7, 1) + b"body"


def hexed(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()


def believed(response: bytes) -> bytes | None:
    """What a server that knows the password answers; None: it is another one's. The rule, once more."""
    said = dict(part.split("=", 1) for part in response.decode().split(","))
    said = {key: value.strip('"') for key, value in said.items()}
    secret = md5(f"broker:bookkeeper:{PASSWORD}".encode(), usedforsecurity=False).digest()
    first = hexed(secret + f":of the bookie:{said['cnonce']}".encode())

    def proof(of: str) -> str:
        second = hexed(f"{of}:bookkeeper/bookkeeper".encode())
        return hexed(f"{first}:of the bookie:00000001:{said['cnonce']}:auth:{second}".encode())

    return b"rspauth=" + proof("").encode() if said["response"] == proof("AUTHENTICATE") else None


class Guard:
    """The side of a bookie: hears what is said and answers by a script."""

    def __init__(self, script: Callable[[int, bytes], bytes | None], version_3: bool) -> None:
        self.script = script
        self.version_3 = version_3
        self.plugin = "sasl"
        self.said: list[bytes] = []
        self.questions: list[bytes] = []
        self.held = b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.held += data
        while len(self.held) >= 4:
            (length,) = struct.unpack_from(">I", self.held)
            if len(self.held) < 4 + length:
                return
            frame, self.held = self.held[4 : 4 + length], self.held[4 + length :]
            self.hear(frame)

    def hear(self, frame: bytes) -> None:
        message = self.message(frame)
        if message is None:
            self.questions.append(frame)
            self.transport.write(GOOD_READ)
            return
        assert message.authPluginName == "sasl"
        self.said.append(message.payload)
        answer = self.script(len(self.said), message.payload)
        if answer is not None:
            self.say(answer)

    def message(self, frame: bytes) -> pb.AuthMessage | None:
        if not self.version_3:
            return pb.AuthMessage.FromString(frame[4:]) if frame[:2] == b"\x02\x03" else None
        request = pb.Request.FromString(frame)
        return request.authRequest if request.HasField("authRequest") else None

    def say(self, payload: bytes) -> None:
        said = pb.AuthMessage(authPluginName=self.plugin, payload=payload)
        if self.version_3:
            header = pb.Header(version=3, operation=5, txnId=0)
            made = pb.Response(header=header, status=0, authResponse=said).SerializeToString()
        else:
            made = b"\x02\x03\x00\x00" + said.SerializeToString()
        framed = struct.pack(">I", len(made)) + made
        # In pieces, as networks have it.
        self.transport.write(framed[:7])
        self.transport.write(framed[7:])

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def sasl(number: int, said: bytes) -> bytes | None:
    return CHALLENGE if number == 1 else believed(said)


class World:
    def __init__(
        self,
        script: Callable[[int, bytes], bytes | None] = sasl,
        password: str = PASSWORD,
        wire: Wire = VERSION_2,
        plugin: str = "sasl",
    ) -> None:
        self.simulation = simulated_io(1)
        io, loop = self.simulation.io, self.simulation.loop
        self.guards: list[Guard] = []

        def accepted() -> Guard:
            self.guards.append(Guard(script, wire.numbered))
            self.guards[-1].plugin = plugin
            return self.guards[-1]

        loop.run_until(self.simulation.host.listen("", 3181, accepted))
        proof = digest_auth_provider(NameAndPassword("broker", password), io.randomness.token)
        settings = BookieSettings(30.0, 10.0, 0.2, wire, AuthProvider(proof.converse, 2.0))
        where = ("localhost", 3181)
        self.bookie = Bookie(io.loop, io.clock, io.network, "one", lambda: where, settings)
        self.told: list[tuple[int, list[bytes]]] = []

    def read(self, seconds: float = 5.0) -> list[tuple[int, list[bytes]]]:
        self.bookie.read(7, 1, lambda status, bodies: self.told.append((status, bodies)))
        self.simulation.loop.run_for(seconds)
        return self.told


@pytest.mark.parametrize("wire", [VERSION_2, VERSION_3])
def test_who_proves_is_answered(wire: Wire) -> None:
    world = World(wire=wire)
    told = world.read(1.0)
    [guard] = world.guards
    assert guard.said[0] == b""
    assert len(guard.said) == 2, "nothing more is said once both are content"
    assert len(guard.questions) == 1
    if wire is VERSION_2:
        assert told == [(Status.OK, [b"body"])]
        world.read(1.0)
        assert len(guard.questions) == 2, "it is proven once for a connection"


@pytest.mark.parametrize("wire", [VERSION_2, VERSION_3])
def test_a_bookie_that_asks_nobody_is_taken_at_its_word(wire: Wire) -> None:
    world = World(lambda _number, _said: b"", wire=wire, plugin="AuthDisabledPlugin")
    world.read(1.0)
    assert len(world.guards[0].questions) == 1


def test_what_is_still_said_of_tls_is_passed_over() -> None:
    """As a bookie with TLS and a plugin says it."""
    world = World(lambda number, said: before(number) or sasl(number, said))

    def before(number: int) -> None:
        if number == 1:
            world.guards[-1].transport.write(b"\x00\x00\x00\x0b\n\x06\x08\x03\x10\t\x18\x01\x10\xf5\x03")

    assert world.read(1.0) == [(Status.OK, [b"body"])]


def reason(caplog: pytest.LogCaptureFixture) -> str:
    [record] = [each for each in caplog.records if each.msg == "cannot connect to a bookie"]
    return str(vars(record)["reason"])


@pytest.mark.parametrize("wire", [VERSION_2, VERSION_3])
def test_a_wrong_password_is_told_as_such(caplog: pytest.LogCaptureFixture, wire: Wire) -> None:
    """Bookies say nothing then, and keep the connection."""
    world = World(password="another", wire=wire)
    with caplog.at_level(logging.WARNING):
        assert world.read() == [(Status.LOST, [])]
    assert "does not accept the user 'broker' with this password" in reason(caplog)
    assert "another" not in caplog.text
    assert world.guards[0].questions == []


@pytest.mark.parametrize(
    ("script", "plugin", "why"),
    [
        (lambda _number, _said: None, "sasl", "it does not answer SASL"),
        (lambda _number, _said: b"hello", "sasl", "not a valid DIGEST-MD5 challenge"),
        (lambda _number, _said: CHALLENGE, "mine", "the bookie requires authentication by 'mine'"),
        (
            lambda number, _said: CHALLENGE if number == 1 else b"rspauth=0",
            "sasl",
            "the server did not prove that it knows the password",
        ),
    ],
)
def test_what_a_bookie_may_say_wrong(
    caplog: pytest.LogCaptureFixture, script: Callable[[int, bytes], bytes | None], plugin: str, why: str
) -> None:
    world = World(script, plugin=plugin)
    with caplog.at_level(logging.WARNING):
        assert world.read() == [(Status.LOST, [])]
    assert why in reason(caplog)
    assert world.guards[0].questions == []


@pytest.mark.parametrize(
    "frame", [GOOD_READ, struct.pack(">I", 1 << 20), b"\x00\x00\x00\x05\x02\x03\x00\x00\xff"]
)
def test_bytes_that_are_no_answer_end_the_connection(caplog: pytest.LogCaptureFixture, frame: bytes) -> None:
    def script(_number: int, _said: bytes) -> None:
        world.guards[-1].transport.write(frame)

    world = World(script)
    with caplog.at_level(logging.WARNING):
        assert world.read() == [(Status.LOST, [])]
    assert "answers AUTH with another message" in reason(caplog)


def test_a_bookie_that_hangs_up_is_left_and_asked_again_later(caplog: pytest.LogCaptureFixture) -> None:
    hangs_up = True

    def script(number: int, said: bytes) -> bytes | None:
        if hangs_up:
            world.guards[-1].transport.close()
            return None
        return sasl(number, said)

    world = World(script)
    with caplog.at_level(logging.WARNING):
        assert world.read() == [(Status.LOST, [])]
    assert "it closes the connection" in reason(caplog)
    hangs_up = False
    assert world.read()[1:] == [(Status.OK, [b"body"])]
