"""Official clients but Python's, and Apache's ``pulsar-admin``, with each provider over TLS; refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jwt
import pytest
from client_programs import go_command, java_command, rust_command
from issuer import AUDIENCE
from test_clients import run_program

from conftest import NAMESPACE, PASSWORD, Secured

sys.path.append(str(Path(__file__).parents[1] / "semantics"))
from test_java_admin import java_admin, run_lines

__all__ = ["go_command", "java_admin", "java_command", "rust_command"]

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


def test_java_admin(secured: Secured, java_admin: list[str]) -> None:
    plugin = "org.apache.pulsar.client.impl.auth.Authentication"
    topic = f"persistent://{NAMESPACE}/by-java-admin"

    def run(kind: str, parameters: str, *lines: str) -> list[tuple[int, Any, str]]:
        settings = {
            "authPlugin": f"{plugin}{kind}",
            "authParams": parameters,
            "tlsTrustCertsFilePath": secured.ca,
            "tlsEnableHostnameVerification": "true",
        }
        url = secured.server.urls["https"].replace("127.0.0.1", "localhost")
        return run_lines(java_admin, secured.server, list(lines), url, **settings)

    done = run("Token", f"token:{secured.token('admin')}", f"topics create {topic}", "tenants list")
    assert [code for code, _, _ in done] == [0, 0], done
    stats = f"topics stats {topic}"
    certificate = f"tlsCertFile:{secured.certify('tess')},tlsKeyFile:{secured.key}"
    [(code, found, complaint), (refused, _, why)] = run("Tls", certificate, stats, "tenants list")
    assert (code, refused) == (0, 1), complaint
    assert found["publishers"] == []
    assert "Only superusers" in why, why
    basic = json.dumps({"userId": "basil", "password": PASSWORD})
    [(code, found, complaint)] = run("Basic", basic, stats)
    assert code == 0, complaint
    [(code, _, why)] = run("Token", f"token:{proofs(secured)['wrong']}", stats)
    assert code == 1
    assert "signature" in why, why
