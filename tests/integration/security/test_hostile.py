"""What strangers try on both listeners."""

from __future__ import annotations

import base64
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conftest import NAMESPACE, Secured
from magnetar.errors import ServerErrorCode
from magnetar.protocol.frames import decode_command, encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandConnect


class Raw:
    """A connection of the binary protocol, command by command."""

    def __init__(self, secured: Secured) -> None:
        self._socket = socket.create_connection(("127.0.0.1", secured.server.port), timeout=15)
        self._held = b""

    def send(self, *commands: BaseCommand) -> None:
        self._socket.sendall(b"".join(encode_command(one) for one in commands))

    def next(self) -> BaseCommand | None:
        """None: the broker has closed."""
        while len(self._held) < 4 or len(self._held) < 4 + struct.unpack(">I", self._held[:4])[0]:
            try:
                data = self._socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._held += data
        size = 4 + struct.unpack(">I", self._held[:4])[0]
        found, self._held = decode_command(self._held[:size], 0), self._held[size:]
        return found

    def close(self) -> None:
        self._socket.close()


@contextmanager
def raw(secured: Secured) -> Iterator[Raw]:
    found = Raw(secured)
    try:
        yield found
    finally:
        found.close()


def connect(token: str | None, **more: str) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.CopyFrom(CommandConnect(client_version="x", protocol_version=19, **more))
    if token is not None:
        command.connect.auth_method_name = "token"
        command.connect.auth_data = token.encode()
    return command


def lookup() -> BaseCommand:
    topic = f"persistent://{NAMESPACE}/t"
    return BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": topic, "request_id": 1})


def unsigned(role: str) -> str:
    parts = ({"alg": "none"}, {"sub": role})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join(texts) + "."


def refusal(answer: BaseCommand | None) -> int:
    assert answer is not None
    assert answer.type == BaseCommand.ERROR
    return int(answer.error.error)


@pytest.mark.parametrize("token", [None, "", "garbage", unsigned("admin"), "\n\x1b[31m" * 100])
def test_who_proves_nothing_is_refused_on_both_listeners(secured: Secured, token: str | None) -> None:
    with raw(secured) as client:
        client.send(connect(token), lookup())
        assert refusal(client.next()) == ServerErrorCode.AUTHENTICATION
        assert client.next() is None
    if token is None or token.isprintable():
        assert secured.ask("GET", "/admin/v2/tenants", token=token or "")[0] == 401
    assert "\x1b" not in secured.server.log


@pytest.mark.parametrize("first", [lookup(), BaseCommand(type=BaseCommand.PING, ping={})])
def test_nothing_is_answered_before_connect(secured: Secured, first: BaseCommand) -> None:
    with raw(secured) as client:
        client.send(first)
        assert client.next() is None


def test_a_second_connect_ends_the_connection_and_makes_nobody_somebody_else(secured: Secured) -> None:
    for again in (connect(secured.token("admin")), connect(secured.token("mallory"))):
        with raw(secured) as client:
            client.send(connect(secured.token("mallory")), again, lookup())
            answers = [client.next(), client.next()]
            assert [None if one is None else one.type for one in answers] == [BaseCommand.CONNECTED, None]


@pytest.mark.parametrize("role", ["mallory", "admin", "proxy"])
@pytest.mark.parametrize("original", ["admin", "proxy", "alice"])
def test_only_proxies_speak_for_others(secured: Secured, role: str, original: str) -> None:
    with raw(secured) as client:
        client.send(connect(secured.token(role), original_principal=original))
        answer = client.next()
        assert answer is not None
        if role == original == "admin" or (role, original) in (("proxy", "admin"), ("proxy", "alice")):
            assert answer.type == BaseCommand.CONNECTED
        else:
            assert refusal(answer) == ServerErrorCode.AUTHORIZATION
    headers = {"X-Original-Principal": original}
    status = secured.ask("GET", "/admin/v2/tenants", token=secured.token(role), **headers)[0]
    assert status in ((200,) if role == original == "admin" else (401, 403))


def test_a_proxys_client_that_passes_on_the_superuser_gains_nothing(secured: Secured) -> None:
    """Both have to be allowed, and the proxy is not."""
    with raw(secured) as client:
        client.send(connect(secured.token("proxy"), original_principal="admin"), lookup())
        assert client.next() is not None
        answer = client.next()
        assert answer is not None
        assert answer.lookupTopicResponse.error == ServerErrorCode.AUTHORIZATION


def test_nothing_is_connected_to_for_a_stranger(secured: Secured) -> None:
    """``proxy_to_broker_url`` is where a proxy wants to go: this broker goes nowhere."""
    with socket.create_server(("127.0.0.1", 0)) as listener, raw(secured) as client:
        listener.settimeout(1)
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        client.send(connect(secured.token("mallory"), proxy_to_broker_url=target))
        client.next()
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/tenants/%2e%2e/brokers",
        "/admin/v2/tenants/..%2fbrokers",
        "/admin/v2/namespaces/acme/%2e%2e",
        "/admin/v2/namespaces/acme%2forders",
        "/admin/v2/persistent/mallory/../acme/orders",
        "/admin/v2/namespaces/mallory%2f..%2facme/orders",
        "//admin/v2/tenants",
        "/admin//v2/tenants",
        "/ADMIN/v2/tenants",
        "/admin/v2/tenants;x=/metrics",
        "/metrics/../admin/v2/tenants",
        "/admin/v2/persistent/acme/orders/%00/stats",
        "/admin/v2/brokers/configuration/superUserRoles/mallory",
    ],
)
def test_no_path_leads_around_the_rules(secured: Secured, path: str) -> None:
    token = secured.token("mallory")
    for method in ("GET", "DELETE", "POST", "PUT"):
        status, answer = secured.ask(method, path, token=token)
        assert status >= 400, (method, path, status, answer)
        assert status < 500, (method, path, status, answer)


def test_headers_and_log_lines_cannot_be_forged(secured: Secured) -> None:
    token = secured.token("eve\r\nSet-Cookie: x=1\n2026 INFO magnetar forged\u202e")
    status, answer = secured.ask("GET", "/admin/v2/brokers", token=token)
    assert status == 401
    assert "\r\nSet-Cookie" not in answer
    with raw(secured) as client:
        client.send(connect(token), lookup())
        assert client.next() is not None
        assert client.next() is not None
    assert "\n2026 INFO" not in secured.server.log
    assert "\u202e" not in secured.server.log


def test_silent_strangers_and_slow_ones_take_nobodys_place(secured: Secured) -> None:
    """200 connections that never say who they are, and clients are served as before."""
    held = [socket.create_connection(("127.0.0.1", secured.server.port)) for _ in range(200)]
    try:
        for one in held:
            one.sendall(b"\x00\x00")
        with raw(secured) as client:
            client.send(connect(secured.token("admin")), lookup())
            for kind in (BaseCommand.CONNECTED, BaseCommand.LOOKUP_RESPONSE):
                answer = client.next()
                assert answer is not None
                assert answer.type == kind
    finally:
        for one in held:
            one.close()
