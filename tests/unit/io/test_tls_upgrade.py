"""Connections that begin in plain text and ask for TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority

from magnetar.io.real.tls_network import Upgrade, UpgradingNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles, TlsRules, server_context
from magnetar.ledger.bookkeeper import authentication

UPGRADE = Upgrade(authentication.QUESTION, authentication.answer_bytes, authentication.refused)
HEADER = bytes.fromhex("0a06080310091801")


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


GOOD = framed(HEADER + bytes.fromhex("1000d20600"))


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set_result(None)


class Server:
    """Answers what is asked in plain text in ``pieces``, and greets whoever goes on with TLS."""

    def __init__(self, context: ssl.SSLContext | None, pieces: list[bytes]) -> None:
        self.asked = b""
        self._context = context
        self._pieces = pieces

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked = await reader.readexactly(len(authentication.QUESTION))
        for piece in self._pieces:
            await asyncio.sleep(0.01)
            writer.write(piece)
        if self._context is not None:
            await writer.start_tls(self._context)
            writer.write(b"hello")
        writer.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def connected(
    authority: Authority,
    pieces: list[bytes],
    check: Callable[[Server, Any, Client], object] = lambda *_: None,
    tls: bool = True,
    host: str = "localhost",
    wanted: ClientTls | None = None,
) -> None:
    pair = authority.server(hosts=("localhost",))
    context = server_context(TlsFiles(pair.certificate, pair.key), TlsRules())
    wanted = wanted or ClientTls(TlsFiles(trust=authority.trust))

    async def scenario() -> None:
        server = Server(context if tls else None, pieces)
        async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            network = UpgradingNetwork(asyncio.get_running_loop(), ClientContext(wanted), UPGRADE)
            transport, client = await network.connect(host, port, Client)
            assert isinstance(client, Client)
            await client.over
            check(server, transport, client)

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize("pieces", [[GOOD], [GOOD[:2], GOOD[2:5], GOOD[5:]]])
def test_what_follows_the_answer_is_encrypted(authority: Authority, pieces: list[bytes]) -> None:
    def check(server: Server, transport: Any, client: Client) -> None:
        assert server.asked == authentication.QUESTION == framed(HEADER + bytes.fromhex("d20600"))
        assert client.received == b"hello"
        assert transport.get_extra_info("ssl_object") is not None

    connected(authority, pieces, check)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (framed(HEADER + bytes.fromhex("109403")), "it does not support TLS"),
        (framed(b"HTTP/1.1"), "its answer is not that of a bookie"),
        (b"HTTP/1.1 400 Bad Request" + b" " * 2000, "its answer is not that of a bookie"),
        (framed(b""), "its answer is not that of a bookie"),
        (framed(bytes.fromhex("0aff1000")), "its answer is not that of a bookie"),
        (b"", "closed the connection"),
        (GOOD[:7], "closed the connection"),
    ],
)
def test_nothing_is_said_without_tls(authority: Authority, answer: bytes, why: str) -> None:
    with pytest.raises(OSError, match=why):
        connected(authority, [answer], tls=False)


def test_whoever_answers_has_to_be_whom_it_was_asked_for(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connected(authority, [GOOD], host="127.0.0.1")
    connected(
        authority,
        [GOOD],
        host="127.0.0.1",
        wanted=ClientTls(TlsFiles(trust=authority.trust), verify_host=False),
    )
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        connected(authority, [GOOD], wanted=ClientTls(TlsFiles(trust=other.trust)))


def test_nobody_listens(authority: Authority) -> None:
    async def scenario() -> None:
        context = ClientContext(ClientTls(TlsFiles(trust=authority.trust)))
        network = UpgradingNetwork(asyncio.get_running_loop(), context, UPGRADE)
        with pytest.raises(OSError, match="Connect"):
            await network.connect("127.0.0.1", 1, Client)

    asyncio.run(asyncio.wait_for(scenario(), 30))
