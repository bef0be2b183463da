"""The official Python client with each provider that it has, over TLS; tokens and certificates change."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from certificates import Authority
from polling import until

from conftest import NAMESPACE, PASSWORD, Secured

ROLES = {"token": "tara", "basic": "basil", "tls": "tess", "oauth2": "olga"}


@pytest.fixture(scope="module", autouse=True)
def _granted(secured: Secured) -> None:
    for role in ROLES.values():
        secured.do("POST", f"/namespaces/{NAMESPACE}/permissions/{role}", ["produce", "consume"])


def credentials_of(secured: Secured, method: str) -> Any:
    if method == "token":
        return pulsar.AuthenticationToken(secured.token(ROLES[method]))
    if method == "basic":
        return pulsar.AuthenticationBasic(ROLES[method], PASSWORD)
    if method == "oauth2":
        return pulsar.AuthenticationOauth2(json.dumps(secured.issuer.parameters(ROLES[method])))
    return pulsar.AuthenticationTLS(secured.certify(ROLES[method]), secured.key)


@pytest.mark.parametrize("method", ROLES)
def test_it_publishes_and_consumes_through_tls(secured: Secured, method: str) -> None:
    topic = f"persistent://{NAMESPACE}/by-{method}"
    client = secured.client(credentials_of(secured, method), tls=True)
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    producer.send(b"content")
    assert consumer.receive(10_000).data() == b"content"
    [publisher] = secured.do("GET", f"/persistent/{NAMESPACE}/by-{method}/stats")["publishers"]
    assert publisher["address"]
    client.close()


def test_a_certificate_of_another_authority_is_refused(secured: Secured, tmp_path: Path) -> None:
    stranger = pulsar.Client(
        secured.server.urls["pulsar+ssl"],
        authentication=credentials_of(secured, "token"),
        tls_trust_certs_file_path=Authority(tmp_path, "somebody").trust,
        operation_timeout_seconds=3,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    with pytest.raises((pulsar.ConnectError, pulsar.Timeout)):
        stranger.create_producer(f"persistent://{NAMESPACE}/never")
    stranger.close()


class Publishing:
    """Publishes one message after another, and reads them back."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self._consumer = client.subscribe(topic, "s")
        self._producer = client.create_producer(topic)
        self.sent = 0

    def until(self, check: Callable[[], bool], seconds: float = 30) -> None:
        """Goes on until something is so, and a few messages longer."""
        deadline = time.monotonic() + seconds
        left = 20
        while left:
            assert time.monotonic() < deadline, "it did not come"
            left -= check()
            self._producer.send(b"%d" % self.sent)
            self.sent += 1
            time.sleep(0.01)

    def read_back(self) -> list[int]:
        return [int(self._consumer.receive(10_000).data()) for _ in range(self.sent)]


def test_tokens_are_renewed_while_it_publishes(secured: Secured) -> None:
    supplied: list[float] = []

    def supply() -> str:
        supplied.append(time.monotonic())
        return secured.token("tara", seconds=4)

    client = secured.client(pulsar.AuthenticationToken(supply))
    publishing = Publishing(client, f"persistent://{NAMESPACE}/renewed")
    began = time.monotonic()
    publishing.until(lambda: time.monotonic() - began > 6)
    assert len(supplied) >= 3
    assert publishing.read_back() == list(range(publishing.sent))
    [publisher] = secured.do("GET", f"/persistent/{NAMESPACE}/renewed/stats")["publishers"]
    assert publisher["producerId"] == 0, "it was the same producer all the time"
    client.close()


def shown(secured: Secured) -> int:
    """The serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=secured.ca)
    place = urlsplit(secured.server.urls["pulsar+ssl"])
    with (
        socket.create_connection((place.hostname, place.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        certificate = secure.getpeercert()
        assert certificate is not None
        return int(str(certificate["serialNumber"]), 16)


def test_certificates_are_read_anew_while_it_publishes(secured: Secured) -> None:
    client = secured.client(credentials_of(secured, "token"), tls=True)
    publishing = Publishing(client, f"persistent://{NAMESPACE}/reloaded")
    before = shown(secured)
    secured.certify("server")
    publishing.until(lambda: shown(secured) != before)
    newest = shown(secured)
    secured.write("server.pem", b"no certificate at all")
    publishing.until(lambda: "cannot use the changed certificates" in secured.server.log)
    assert shown(secured) == newest
    secured.certify("server")
    publishing.until(lambda: shown(secured) != newest)
    assert publishing.read_back() == list(range(publishing.sent))
    client.close()


def test_a_hello_that_drips_is_given_up(secured: Secured) -> None:
    place = urlsplit(secured.server.urls["pulsar+ssl"])
    with socket.create_connection((place.hostname, place.port), timeout=30) as slow:
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400)
        sent = 0

        def is_ended() -> bool:
            nonlocal sent
            try:
                slow.sendall(hello[sent : sent + 1])
            except OSError:
                return True
            sent += 1
            return False

        until(is_ended, "the end of a connection that never says hello", seconds=25, every=0.05)
    assert shown(secured)


MISSING = ("acme/orders/nothing-yet", "acme/no-namespace/t", "no-tenant/no-namespace/t")
"""In a namespace that there is, in one that there is not, and in a tenant that there is not."""


@pytest.mark.parametrize("topic", MISSING)
def test_a_role_without_rights_does_not_learn_which_names_exist(secured: Secured, topic: str) -> None:
    client = secured.client(pulsar.AuthenticationToken(secured.token("nobody")))
    try:
        for attempt in (client.create_producer, lambda name: client.subscribe(name, "s")):
            with pytest.raises(pulsar.AuthorizationError):
                attempt(f"persistent://{topic}")
    finally:
        client.close()


@pytest.mark.parametrize("topic", MISSING[1:])
def test_a_superuser_hears_that_a_namespace_is_missing(secured: Secured, topic: str) -> None:
    client = secured.client(pulsar.AuthenticationToken(secured.token("admin")))
    try:
        with pytest.raises(pulsar.TopicNotFound):
            client.create_producer(f"persistent://{topic}")
    finally:
        client.close()
