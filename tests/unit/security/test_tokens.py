"""Tokens: what proves a role, and everything that must not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest
from keys import SECRET, ask, ec_key, public_der, public_pem, rsa_key, token
from simulated_io import simulated_io

from magnetar.errors import AuthenticationFailure
from magnetar.security.authentication import Authenticated
from magnetar.security.key_material import UnusableKey
from magnetar.security.options import ProviderRefused, SecurityOptions
from magnetar.security.providers.tokens import (
    MAX_TOKEN_BYTES,
    TokenKey,
    TokenProvider,
    TokenRules,
    authenticated_by,
    claims_of,
    public_key,
    secret_key,
)

RULES = TokenRules()


def authenticated(data: bytes, key: TokenKey, rules: TokenRules = RULES) -> Authenticated:
    return authenticated_by(claims_of(data, key, rules.leeway_seconds), rules)


def encoded(part: object) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def by_hand(header: object, claims: object, secret: bytes = SECRET) -> bytes:
    """A token signed with HMAC-SHA256, whatever its header says."""
    text = f"{encoded(header)}.{encoded(claims)}"
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), hashlib.sha256))}".encode()


@pytest.mark.parametrize("algorithm", ["HS256", "HS384"])
def test_a_secret_key_proves_by_each_algorithm_it_is_long_enough_for(algorithm: str) -> None:
    assert authenticated(token({"sub": "a"}, SECRET, algorithm), secret_key(SECRET)) == Authenticated("a")


def test_a_secret_key_proves_nothing_by_an_algorithm_it_is_too_short_for() -> None:
    with pytest.raises(AuthenticationFailure, match="algorithm"):
        authenticated(token({"sub": "a"}, SECRET, "HS384"), secret_key(SECRET[:32]))


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
@pytest.mark.parametrize("form", [public_der, public_pem])
def test_an_rsa_key_proves(algorithm: str, form: Any) -> None:
    assert authenticated(token({"sub": "a"}, rsa_key(), algorithm), public_key(form(rsa_key()))).role == "a"


@pytest.mark.parametrize(
    ("curve", "algorithm"), [("secp256r1", "ES256"), ("secp384r1", "ES384"), ("secp521r1", "ES512")]
)
def test_an_ec_key_proves_by_the_algorithm_of_its_curve(curve: str, algorithm: str) -> None:
    key = public_key(public_der(ec_key(curve)), "ES256")
    assert key.algorithms == (algorithm,)
    assert authenticated(token({"sub": "a"}, ec_key(curve), algorithm), key).role == "a"


@pytest.mark.parametrize("key", [secret_key(SECRET), public_key(public_der(rsa_key()))])
@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", None, 5, ["HS256"]])
def test_no_token_is_unsigned(key: TokenKey, name: object) -> None:
    text = f"{encoded({'alg': name})}.{encoded({'sub': 'admin'})}."
    for data in (text, text + "e30", text[:-1]):
        with pytest.raises(AuthenticationFailure):
            authenticated(data.encode(), key)
    with pytest.raises(AuthenticationFailure):
        authenticated(by_hand({"alg": name}, {"sub": "admin"}), key)


@pytest.mark.parametrize("form", [public_der, public_pem])
@pytest.mark.parametrize("signer", [rsa_key(), ec_key()])
def test_a_public_key_is_no_secret(form: Any, signer: Any) -> None:
    """Whoever knows the public key could else sign with it."""
    key = public_key(form(signer), "RS256" if signer is rsa_key() else "ES256")
    with pytest.raises(AuthenticationFailure, match="algorithm"):
        authenticated(by_hand({"alg": "HS256", "typ": "JWT"}, {"sub": "admin"}, form(signer)), key)


@pytest.mark.parametrize("header", [{"jwk": {}}, {"jku": "http://x"}, {"x5u": "http://x"}, {"kid": "../x"}])
def test_what_a_token_says_of_keys_counts_for_nothing(header: dict[str, Any]) -> None:
    other = bytes(reversed(SECRET))
    with pytest.raises(AuthenticationFailure, match="signature"):
        authenticated(by_hand({"alg": "HS256", **header}, {"sub": "admin"}, other), secret_key(SECRET))


def test_a_header_that_is_critical_and_not_known_is_refused() -> None:
    with pytest.raises(AuthenticationFailure):
        authenticated(by_hand({"alg": "HS256", "crit": ["x"], "x": 1}, {"sub": "a"}), secret_key(SECRET))


def test_another_key_or_another_kind_of_key_proves_nothing() -> None:
    for data in (token({"sub": "a"}, rsa_key(1), "RS256"), token({"sub": "a"}, ec_key(), "ES256")):
        with pytest.raises(AuthenticationFailure):
            authenticated(data, public_key(public_der(rsa_key())))


@pytest.mark.parametrize("left", ["a.b.c", "", ".", "..", "...", "é", "\0", "a" * 100, "{}", "e30.e30.e30"])
def test_garbage_is_refused(left: str) -> None:
    with pytest.raises(AuthenticationFailure):
        authenticated(left.encode(), secret_key(SECRET))


def test_one_changed_byte_is_enough() -> None:
    good = token({"sub": "alice"})
    for at in range(0, len(good) - 1, 7):
        bad = good[:at] + bytes((good[at] ^ 1,)) + good[at + 1 :]
        with pytest.raises(AuthenticationFailure):
            authenticated(bad, secret_key(SECRET))


@pytest.mark.parametrize("depth", [10, 10_000])
def test_claims_that_are_deep_or_no_object_are_refused(depth: int) -> None:
    with pytest.raises(AuthenticationFailure):
        authenticated(by_hand({"alg": "HS256"}, b"[" * depth + b"]" * depth), secret_key(SECRET))


def test_a_token_that_is_too_long_is_not_even_read() -> None:
    with pytest.raises(AuthenticationFailure, match="too long"):
        authenticated(token({"sub": "a", "x": "y" * MAX_TOKEN_BYTES}), secret_key(SECRET))


def test_times() -> None:
    key, now = secret_key(SECRET), int(time.time())
    with pytest.raises(AuthenticationFailure, match="expired"):
        authenticated(token({"sub": "a", "exp": now - 10}), key)
    with pytest.raises(AuthenticationFailure, match="not valid yet"):
        authenticated(token({"sub": "a", "nbf": now + 1000}), key)
    lenient = TokenRules(leeway_seconds=100)
    assert authenticated(token({"sub": "a", "exp": now - 10}), key, lenient) == Authenticated(
        "a", now - 10 + 100.0
    )
    assert authenticated(token({"sub": "a", "nbf": now + 10}), key, lenient).role == "a"
    assert authenticated(token({"sub": "a", "exp": now + 1000}), key) == Authenticated("a", now + 1000.0)
    assert authenticated(token({"sub": "a", "exp": now + 1000.9}), key) == Authenticated("a", now + 1000.0)
    # A clock that is ahead where tokens are made says nothing of what they are worth.
    assert authenticated(token({"sub": "a", "iat": now + 1000}), key).role == "a"


@pytest.mark.parametrize("ends", [10**30, 10**400, 1e300, "99999999999999999999"])
def test_a_token_may_end_after_the_world(ends: object) -> None:
    found = authenticated(token({"sub": "a", "exp": ends}), secret_key(SECRET))
    assert found.expires is not None
    assert time.time() + 1e9 < found.expires < 1e16


@pytest.mark.parametrize("ends", [None, "soon", [], {}, float("inf"), float("nan"), -1, 0])
def test_an_end_that_is_none_is_refused(ends: object) -> None:
    with pytest.raises(AuthenticationFailure):
        authenticated(by_hand({"alg": "HS256"}, {"sub": "a", "exp": ends}), secret_key(SECRET))


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"sub": "a"}, "a"),
        ({"sub": ["a", "b"]}, "a"),
        ({"sub": []}, None),
        ({"sub": [["a"]]}, None),
        ({"sub": ""}, None),
        ({"sub": [""]}, None),
        ({"sub": 5}, None),
        ({"sub": {"a": 1}}, None),
        ({"sub": None}, None),
        ({}, None),
        ({"role": "a"}, None),
    ],
)
def test_the_role_is_a_text_or_the_first_of_a_list(claims: dict[str, Any], role: str | None) -> None:
    if role is not None:
        assert authenticated(token_of(claims), secret_key(SECRET)).role == role
        return
    with pytest.raises(AuthenticationFailure, match="no role"):
        authenticated(token_of(claims), secret_key(SECRET))


def token_of(claims: object) -> bytes:
    return by_hand({"alg": "HS256"}, claims)


def test_another_claim_may_hold_the_role() -> None:
    rules = TokenRules(role_claim="who")
    assert authenticated(token({"sub": "a", "who": "b"}), secret_key(SECRET), rules).role == "b"
    with pytest.raises(AuthenticationFailure, match="'who'"):
        authenticated(token({"sub": "a"}), secret_key(SECRET), rules)


@pytest.mark.parametrize(
    ("audience", "meant"),
    [
        ("x", True),
        (["y", "x"], True),
        ("y", False),
        ([], False),
        (None, False),
        ("xx", False),
        ({"x": 1}, False),
    ],
)
def test_the_audience(audience: object, meant: bool) -> None:
    rules = TokenRules(audience_claim="aud", audience="x")
    data = token_of({"sub": "a", "aud": audience})
    if meant:
        assert authenticated(data, secret_key(SECRET), rules).role == "a"
    else:
        with pytest.raises(AuthenticationFailure, match="audience"):
            authenticated(data, secret_key(SECRET), rules)
    # Who names no audience takes tokens for any.
    assert authenticated(data, secret_key(SECRET)).role == "a"


def test_keys_that_are_refused() -> None:
    for make in (
        lambda: secret_key(SECRET[:31]),
        lambda: public_key(public_der(rsa_key(bits=1024))),
        lambda: public_key(public_der(ec_key("secp256k1")), "ES256"),
        lambda: public_key(public_der(ec_key())),
        lambda: public_key(public_der(rsa_key()), "ES256"),
        lambda: public_key(public_der(rsa_key()), "HS256"),
        lambda: public_key(public_der(rsa_key()), "none"),
        lambda: public_key(b"nothing"),
        # Of a kind that nobody has heard of.
        lambda: public_key(bytes.fromhex("300c300506032a03040303000102")),
    ):
        with pytest.raises(UnusableKey):
            make()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "tokenSecretKey"),
        ({"tokenSecretKey": "file:/nowhere"}, "tokenSecretKey"),
        ({"tokenSecretKey": base64.b64encode(b"short").decode()}, "tokenSecretKey"),
        ({"tokenPublicKey": base64.b64encode(b"no key").decode()}, "tokenPublicKey"),
        ({"tokenSecretKey": "KEY", "tokenAudience": "x"}, "tokenAudienceClaim"),
        ({"tokenSecretKey": "KEY", "tokenAudienceClaim": "x"}, "tokenAudience"),
        ({"tokenSecretKey": "KEY", "tokenAllowedClockSkewSeconds": "-1"}, "tokenAllowedClockSkewSeconds"),
    ],
)
def test_settings_that_cannot_work_are_named(given: dict[str, str], what: str) -> None:
    world = simulated_io(1)
    settings = {name: text.replace("KEY", base64.b64encode(SECRET).decode()) for name, text in given.items()}
    with pytest.raises(ProviderRefused, match=what) as refusal:
        TokenProvider(world.io, world.io.start_worker("files"), SecurityOptions(settings))
    assert base64.b64encode(SECRET).decode() not in str(refusal.value)


def test_a_key_that_is_replaced_counts_at_once_and_one_that_is_damaged_not_at_all(tmp_path: Path) -> None:
    world = simulated_io(1)
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    provider = TokenProvider(
        world.io, world.io.start_worker("files"), SecurityOptions({"tokenSecretKey": f"file://{file}"})
    )
    told: list[int] = []
    provider.listen(lambda: told.append(1))
    good, other = token({"sub": "a"}), token({"sub": "a"}, bytes(reversed(SECRET)))
    assert ask(world, provider, good).role == "a"
    file.write_bytes(bytes(reversed(SECRET)))
    world.loop.run_for(5)
    assert len(told) == 1
    assert ask(world, provider, other).role == "a"
    with pytest.raises(AuthenticationFailure, match="signature"):
        ask(world, provider, good)
    file.write_bytes(b"short")
    world.loop.run_for(5)
    assert len(told) == 2
    for data in (good, other):
        with pytest.raises(AuthenticationFailure, match="cannot be read"):
            ask(world, provider, data)
    file.write_bytes(SECRET)
    world.loop.run_for(5)
    assert len(told) == 3
    assert ask(world, provider, good).role == "a"
