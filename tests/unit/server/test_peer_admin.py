"""A broker asks another one by HTTP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from certificates import Authority

from magnetar.broker.ownership.brokers import BrokerRecord, parse_record
from magnetar.broker.ownership.peers import PeerAnswer, PeerRefused
from magnetar.config.settings import SettingsContradict, load
from magnetar.errors import ServiceNotReady
from magnetar.io.real import real_io
from magnetar.security.client_authentication.authentication import NoCredentials
from magnetar.server import broker_client
from magnetar.server.broker_client import HttpPeerAdmin
from magnetar.server.broker_client import peer_admin as made_admin


class Peer:
    """Another broker, as far as bytes go."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked = b""
        self.closes = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked = await reader.readuntil(b"\r\n\r\n")
        length = int(self.asked.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        self.asked += await reader.readexactly(length)
        writer.write(self.answer)
        await writer.drain()
        if self.closes:
            writer.close()
        else:
            await reader.read()


def record(url: str) -> BrokerRecord:
    return parse_record("peer:80", b'{"webServiceUrl":"%s"}' % url.encode())


def call(
    tmp_path: Path, peer: Peer, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> PeerAnswer:
    async def scenario() -> PeerAnswer:
        server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        io = real_io(asyncio.get_running_loop(), tmp_path)

        async def prove() -> Mapping[str, str]:
            if headers is None:
                raise NoCredentials("no token")
            return headers

        admin = HttpPeerAdmin(io.loop, io.network, None, prove, seconds=0.5)
        try:
            return await admin.call(
                record(f"http://127.0.0.1:{port}"), "PUT", "/admin/v2/x", {"a": "b c"}, body
            )
        finally:
            server.close()

    return asyncio.run(scenario())


def answer(status: bytes, body: bytes = b"", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, more, len(body), body)


def test_what_is_asked_and_answered(tmp_path: Path) -> None:
    peer = Peer(answer(b"200 OK", b'{"x":1}'))
    found = call(tmp_path, peer, b"[5]", {"Authorization": "Bearer t"})
    assert (found.status, found.json()) == (200, {"x": 1})
    assert peer.asked.startswith(b"PUT /admin/v2/x?a=b+c HTTP/1.1\r\n")
    assert b"authorization: Bearer t\r\n" in peer.asked.replace(b"Authorization", b"authorization")
    assert peer.asked.endswith(b"\r\n\r\n[5]")


def test_an_empty_answer(tmp_path: Path) -> None:
    assert call(tmp_path, Peer(b"HTTP/1.1 204 No Content\r\n\r\n"), None, {}).json() is None


def test_a_request_ends_with_its_caller(tmp_path: Path) -> None:
    """Otherwise its failure would be reported as that of a task that has no owner."""

    class Connecting:
        def __init__(self) -> None:
            self.started = asyncio.Event()
            self.ended = False

        async def connect(self, *_where: object) -> None:
            self.started.set()
            try:
                await asyncio.sleep(60)
            finally:
                self.ended = True

    async def scenario() -> None:
        loop, network = asyncio.get_running_loop(), Connecting()

        async def prove() -> Mapping[str, str]:
            return {}

        admin = HttpPeerAdmin(real_io(loop, tmp_path).loop, network, None, prove)  # type: ignore[arg-type]
        asking = asyncio.create_task(admin.call(record("http://127.0.0.1:1"), "GET", "/"))
        await asyncio.wait_for(network.started.wait(), 30)
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.sleep(0)
        assert network.ended

    asyncio.run(scenario())


def test_refusals_and_where_one_is_sent(tmp_path: Path) -> None:
    with pytest.raises(PeerRefused, match="in use") as refused:
        call(tmp_path, Peer(answer(b"412 No", b'{"reason":"in use"}')), None, {})
    assert refused.value.http_status == 412
    elsewhere = Peer(answer(b"307 There", b"", b"Location: http://other:80/x?authoritative=true\r\n"))
    with pytest.raises(PeerRefused) as sent:
        call(tmp_path, elsewhere, None, {})
    assert (sent.value.status, sent.value.location) == (307, "http://other:80/x?authoritative=true")


@pytest.mark.parametrize(
    "bytes_back",
    [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"],
    ids=["nothing", "nonsense", "cut short"],
)
def test_a_peer_that_does_not_answer_is_not_ready(tmp_path: Path, bytes_back: bytes) -> None:
    with pytest.raises(ServiceNotReady, match="peer:80 cannot be reached"):
        call(tmp_path, Peer(bytes_back), None, {})


def test_a_silent_peer_is_given_up(tmp_path: Path) -> None:
    peer = Peer(b"")
    peer.closes = False
    with pytest.raises(ServiceNotReady, match="did not answer within"):
        call(tmp_path, peer, None, {})


def test_an_answer_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_client, "ANSWER_BYTES", 100)
    with pytest.raises(ServiceNotReady, match="exceeds 100 bytes"):
        call(tmp_path, Peer(answer(b"200 OK", b"x" * 101)), None, {})


def test_without_a_proof_nobody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ServiceNotReady, match="no token"):
        call(tmp_path, Peer(b""), None, None)


@pytest.mark.parametrize(
    "url",
    [
        "here",
        "http://",
        "odd://here",
        "http://here:port",
        "http://here:70000",
        "http://[here",
        "http://a..b:1",
    ],
)
def test_an_address_that_is_none_is_said(tmp_path: Path, url: str) -> None:
    async def prove() -> Mapping[str, str]:
        return {}

    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        with pytest.raises(ServiceNotReady, match="peer:80 cannot be reached"):
            await HttpPeerAdmin(io.loop, io.network, None, prove).call(record(url), "GET", "/x")

    asyncio.run(scenario())


def test_nobody_there_and_no_address(tmp_path: Path) -> None:
    async def scenario(url: str) -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)

        async def prove() -> Mapping[str, str]:
            return {}

        await HttpPeerAdmin(io.loop, io.network, None, prove).call(record(url), "GET", "/")

    with pytest.raises(ServiceNotReady, match="cannot be reached"):
        asyncio.run(scenario("http://127.0.0.1:1"))
    with pytest.raises(ServiceNotReady, match="has not registered an HTTP address"):
        asyncio.run(scenario(""))


def secured_call(
    tmp_path: Path, authority: Authority, record: Callable[[int], bytes], **lines: object
) -> str:
    """How it ends when a broker is asked that has TLS, and wants to know who comes."""
    pair, own = authority.server("peer", hosts=("127.0.0.1",)), authority.client("broker")
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.trust)
    server_side.load_cert_chain(pair.certificate, pair.key)
    server_side.verify_mode = ssl.CERT_REQUIRED
    conf = tmp_path / "broker.conf"
    used = {
        "Enabled": "true",
        "TrustCertsFilePath": authority.trust,
        "CertificateFilePath": own.certificate,
        "KeyFilePath": own.key,
        **lines,
    }
    names = {
        "Enabled": "brokerClientTlsEnabled",
        "TrustCertsFilePath": "brokerClientTrustCertsFilePath",
        "CertificateFilePath": "brokerClientCertificateFilePath",
        "KeyFilePath": "brokerClientKeyFilePath",
    }
    conf.write_text("".join(f"{names[name]}={value}\n" for name, value in used.items()))
    settings = load(conf, cluster=True).settings
    peer = Peer(answer(b"200 OK", b'{"a": 1}'))

    async def scenario() -> str:
        server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, ssl=server_side)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        admin = made_admin(real_io(loop, tmp_path), loop, settings)
        try:
            told = await admin.call(parse_record("peer:80", record(port)), "GET", "/admin/v2/x")
            return told.body.decode()
        except ServiceNotReady as error:
            return str(error)
        finally:
            server.close()

    return asyncio.run(scenario())


def of_tls(port: int) -> bytes:
    return b'{"webServiceUrl":"http://127.0.0.1:1","webServiceUrlTls":"https://127.0.0.1:%d"}' % port


def test_with_tls_it_asks_by_the_address_for_tls_and_says_who_it_is(tmp_path: Path) -> None:
    assert secured_call(tmp_path, Authority(tmp_path), of_tls) == '{"a": 1}'


def test_with_tls_a_broker_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    trust = Authority(others, "others").trust
    assert "cannot be reached" in secured_call(
        tmp_path, Authority(tmp_path), of_tls, TrustCertsFilePath=trust
    )


def test_with_tls_a_broker_without_such_an_address_is_not_asked_in_plain_text(tmp_path: Path) -> None:
    told = secured_call(
        tmp_path, Authority(tmp_path), lambda port: b'{"webServiceUrl":"http://127.0.0.1:%d"}' % port
    )
    assert "has not registered an HTTP address for this request" in told


def test_with_tls_files_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsContradict, match="brokerClientTlsEnabled"):
        secured_call(tmp_path, Authority(tmp_path), of_tls, TrustCertsFilePath=tmp_path / "nothing.pem")
