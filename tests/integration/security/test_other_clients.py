"""The official Java, Go and Rust clients with each provider, over TLS, and how they are refused."""

from __future__ import annotations

import jwt
import pytest
from issuer import AUDIENCE
from test_clients import go_command, java_command, run_program, rust_command

from conftest import NAMESPACE, PASSWORD, Secured

__all__ = ["go_command", "java_command", "rust_command"]

ROLES = ("tara", "basil", "tess", "olga")


@pytest.fixture(scope="module", autouse=True)
def _granted(secured: Secured) -> None:
    for role in ROLES:
        secured.do("POST", f"/namespaces/{NAMESPACE}/permissions/{role}", ["produce", "consume"])


def proofs(secured: Secured) -> dict[str, str]:
    return {
        "tls": secured.server.urls["pulsar+ssl"].replace("127.0.0.1", "localhost"),
        "trust": secured.ca,
        "namespace": NAMESPACE,
        "token": secured.token("tara"),
        "wrong": jwt.encode({"sub": "tara"}, b"the key of somebody else altogether", "HS256"),
        "stranger": secured.token("sam"),
        "certificate": secured.certify("tess"),
        "key": secured.key,
        "issuer": secured.issuer.url,
        "audience": AUDIENCE,
        "credentials": str(secured.write("olga.json", secured.issuer.key_file("olga").encode())),
    }


def test_java(secured: Secured, java_command: list[str]) -> None:
    given = {**proofs(secured), "basic": f'{{"userId":"basil","password":"{PASSWORD}"}}'}
    flags = [word for name, value in given.items() for word in (f"--{name}", value)]
    command = [*java_command[:-1], "interop.Secured", *flags]
    checks, _ = run_program(command, secured.server, "secured", "java", lambda: None)
    assert [check["check"] for check in checks] == [
        "token",
        "basic",
        "certificate",
        "oauth2",
        "unknown",
        "not allowed",
    ]


def test_go(secured: Secured, go_command: list[str]) -> None:
    given = {**proofs(secured), "user": "basil", "password": PASSWORD}
    flags = [word for name, value in given.items() for word in ("--proof", f"{name}={value}")]
    checks, _ = run_program([*go_command, *flags], secured.server, "secured", "go", lambda: None)
    assert {check["check"] for check in checks} == {
        "go-token",
        "go-basic",
        "go-certificate",
        "go-oauth2",
        "unknown",
        "not allowed",
    }


@pytest.mark.interop
def test_rust(secured: Secured, rust_command: list[str]) -> None:
    given = {**proofs(secured), "user": "basil", "password": PASSWORD}
    flags = [word for name, value in given.items() for word in (f"--{name}", value)]
    checks, _ = run_program([*rust_command, *flags], secured.server, "secured", "rust", lambda: None)
    assert [check["check"] for check in checks] == ["token", "basic", "unknown", "not allowed"]
