"""What lets a client in, or lets it do something, may go: what rested on it ends and does not come back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pulsar
import pytest
import websocket
from polling import until

from conftest import NAMESPACE, PASSWORD, Secured

ROLE = f"/namespaces/{NAMESPACE}/permissions"


class Cause:
    """Something that a client rests on, and how it goes."""

    def __init__(
        self,
        secured: Secured,
        proof: Any,
        gone: Callable[[], object],
        header: Callable[[], str] | None = None,
        *,
        token: str = "",
    ) -> None:
        """:param header: what proves the client over HTTP, where it is its proof that goes

        :param token: what proves it otherwise
        """
        self.token = token

        self.secured = secured
        self.proof = proof
        self.gone = gone
        self.header = header


def permission(secured: Secured) -> Cause:
    secured.do("POST", f"{ROLE}/paul", ["produce", "consume"])
    token = secured.token("paul")
    proof = pulsar.AuthenticationToken(token)
    return Cause(secured, proof, lambda: secured.do("DELETE", f"{ROLE}/paul"), token=token)


def part_of_a_permission(secured: Secured) -> Cause:
    """Neither of both may be left."""
    secured.do("POST", f"{ROLE}/pia", ["produce", "consume"])
    token = secured.token("pia")
    proof = pulsar.AuthenticationToken(token)
    return Cause(secured, proof, lambda: secured.do("POST", f"{ROLE}/pia", ["functions"]), token=token)


def tenant_admin(secured: Secured) -> Cause:
    def admins(*roles: str) -> None:
        secured.do("POST", "/tenants/acme", {"adminRoles": roles, "allowedClusters": ["standalone"]})

    admins("tina")
    token = secured.token("tina")
    return Cause(secured, pulsar.AuthenticationToken(token), admins, token=token)


def superuser(secured: Secured) -> Cause:
    setting = "/brokers/configuration/superUserRoles"
    secured.do("POST", f"{setting}/admin,susi")
    token = secured.token("susi")
    proof = pulsar.AuthenticationToken(token)
    return Cause(secured, proof, lambda: secured.do("DELETE", setting), token=token)


def expired_token(secured: Secured) -> Cause:
    secured.do("POST", f"{ROLE}/emil", ["produce", "consume"])
    token = secured.token("emil", 4)
    return Cause(secured, pulsar.AuthenticationToken(token), lambda: None, lambda: f"Bearer {token}")


def user_of_the_file(secured: Secured) -> Cause:
    secured.do("POST", f"{ROLE}/uwe", ["produce", "consume"])
    others = {"basil": PASSWORD}
    secured.set_users({**others, "uwe": PASSWORD})
    until(lambda: _as_basic(secured, "uwe") == 200, "uwe is known", seconds=15)
    proof = pulsar.AuthenticationBasic("uwe", PASSWORD)
    return Cause(secured, proof, lambda: secured.set_users(others), lambda: secured.basic("uwe"))


def signing_key(secured: Secured) -> Cause:
    secured.do("POST", f"{ROLE}/kai", ["produce", "consume"])
    token = secured.token("kai")
    proof = pulsar.AuthenticationToken(token)

    def replaced() -> None:
        secured.secret = os.urandom(32)
        secured.write("secret", secured.secret)
        until(lambda: secured.ask("GET", "/admin/v2/tenants")[0] == 200, "the new key counts", seconds=15)

    return Cause(secured, proof, replaced, lambda: f"Bearer {token}")


def _as_basic(secured: Secured, name: str) -> int:
    return secured.ask("GET", "/admin/v2/clusters", token="", Authorization=secured.basic(name))[0]


@contextmanager
def opened(cause: Cause, topic: str) -> Iterator[tuple[pulsar.Client, Any, Any]]:
    client = cause.secured.client(cause.proof)
    name = f"persistent://{NAMESPACE}/{topic}"
    try:
        consumer = client.subscribe(name, "s")
        producer = client.create_producer(name, send_timeout_millis=2_000)
        producer.send(b"1")
        assert consumer.receive(10_000).data() == b"1"
        yield client, producer, consumer
    finally:
        client.close()


@pytest.mark.parametrize(
    "of",
    [
        permission,
        part_of_a_permission,
        tenant_admin,
        superuser,
        expired_token,
        user_of_the_file,
        signing_key,
    ],
)
def test_what_rested_on_it_ends(secured: Secured, of: Callable[[Secured], Cause]) -> None:
    cause, topic = of(secured), of.__name__
    stays = secured.client(pulsar.AuthenticationBasic("basil", PASSWORD))
    secured.do("POST", f"{ROLE}/basil", ["produce", "consume"])
    try:
        other = stays.create_producer(f"persistent://{NAMESPACE}/{topic}")
        with opened(cause, topic) as (client, producer, _consumer):
            assert secured.open_at(topic) == 3
            cause.gone()
            until(
                lambda: secured.open_at(topic) == 1, f"{topic}: {secured.open_at(topic)} are left", seconds=15
            )
            if cause.header is not None:
                # The client itself tries again and again.
                asked = secured.ask("GET", "/admin/v2/tenants", token="", Authorization=cause.header())
                assert asked[0] == 401
            else:
                with pytest.raises(pulsar.PulsarException):
                    producer.send(b"2")
                with pytest.raises(pulsar.AuthorizationError):
                    client.create_producer(f"persistent://{NAMESPACE}/{topic}-new")
            # Whom it does not touch, it does not touch.
            other.send(b"3")
    finally:
        stays.close()


@pytest.mark.parametrize(
    "of",
    [
        permission,
        part_of_a_permission,
        tenant_admin,
        superuser,
        expired_token,
        user_of_the_file,
        signing_key,
    ],
)
def test_web_sockets_that_rested_on_it_end(secured: Secured, of: Callable[[Secured], Cause]) -> None:
    cause, topic = of(secured), f"ws-{of.__name__}"
    proof = cause.header() if cause.header is not None else f"Bearer {cause.token}"
    paths = (f"producer/{topic}", f"consumer/{topic}/s", f"reader/{topic}")
    stays = secured.web_socket(f"producer/{topic}", secured.basic("basil"))
    sockets = [secured.web_socket(path, proof) for path in paths]
    try:
        producer, *receivers = sockets
        producer.send(json.dumps({"payload": "MQ=="}))
        assert json.loads(producer.recv())["result"] == "ok"
        for one in receivers:
            assert json.loads(one.recv())["payload"] == "MQ=="
        cause.gone()
        for one in sockets:
            # Each has a time-out of its own.
            assert one.recv_data_frame()[0] == websocket.ABNF.OPCODE_CLOSE
        until(lambda: secured.open_at(topic) == 1, f"{topic}: {secured.open_at(topic)} are left", seconds=15)
        for path in paths:
            with pytest.raises(websocket.WebSocketBadStatusException) as refused:
                secured.web_socket(path, proof)
            assert refused.value.status_code in (401, 403)
        stays.send(json.dumps({"payload": "Mg=="}))
        assert json.loads(stays.recv())["result"] == "ok"
    finally:
        for one in (stays, *sockets):
            one.close()


def test_a_web_socket_is_told_why_it_ends_and_takes_nothing_more(secured: Secured) -> None:
    secured.do("POST", f"{ROLE}/wanda", ["produce", "consume"])
    secured.do("POST", f"{ROLE}/stan", ["consume"])
    proof = f"Bearer {secured.token('wanda')}"
    reader = secured.web_socket("reader/told", f"Bearer {secured.token('stan')}")
    producer = secured.web_socket("producer/told", proof)
    shared = secured.web_socket(
        "consumer/told/shared?subscriptionType=Shared&maxRedeliverCount=1&deadLetterTopic="
        f"persistent://{NAMESPACE}/told-dead",
        proof,
    )
    secured.do("POST", f"{ROLE}/wanda", ["consume"])
    for one, topic in ((producer, "told"), (shared, "told-dead")):
        code, frame = one.recv_data_frame()
        assert code == websocket.ABNF.OPCODE_CLOSE
        assert int.from_bytes(frame.data[:2], "big") == 1008
        assert f"produce on persistent://{NAMESPACE}/{topic}".encode() in frame.data
    with suppress(websocket.WebSocketException, OSError):
        producer.send(json.dumps({"payload": "MQ=="}))
    reader.settimeout(1)
    with pytest.raises(websocket.WebSocketTimeoutException):
        reader.recv()
    for socket in (reader, producer, shared):
        socket.close()


def test_http_is_asked_with_each_request(secured: Secured) -> None:
    path = f"/admin/v2/persistent/{NAMESPACE}"
    token = secured.token("hanna")
    assert secured.ask("GET", path, token=token)[0] == 403
    secured.do("POST", f"{ROLE}/hanna", ["consume"])
    assert secured.ask("GET", path, token=token)[0] == 200
    secured.do("DELETE", f"{ROLE}/hanna")
    assert secured.ask("GET", path, token=token)[0] == 403


def test_superusers_that_are_changed_stay_so_over_a_restart(secured: Secured) -> None:
    setting = "/brokers/configuration/superUserRoles"
    susi = secured.token("susi")
    assert secured.do("GET", "/brokers/configuration/values") == {}
    secured.do("POST", f"{setting}/admin%2Csusi")
    assert secured.do("GET", "/brokers/configuration/values") == {"superUserRoles": "admin,susi"}
    assert secured.do("GET", "/brokers/configuration/runtime")["superUserRoles"] == "admin,susi"
    assert secured.ask("GET", "/admin/v2/tenants", token=susi)[0] == 200
    secured.server.restart(kill=True)
    assert secured.ask("GET", "/admin/v2/tenants", token=susi)[0] == 200
    assert secured.ask("DELETE", f"/admin/v2{setting}", token=secured.token("tina"))[0] == 401
    secured.do("DELETE", setting)
    assert secured.ask("GET", "/admin/v2/tenants", token=susi)[0] == 401
    assert secured.ask("POST", "/admin/v2/brokers/configuration/brokerServicePort/1")[0] == 412
