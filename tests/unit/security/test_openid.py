"""OpenID Connect: whose tokens count, where their keys come from, and how often they are asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from keys import ask, ec_key, rsa_key, token
from simulated_io import Simulation, simulated_io

from magnetar.errors import AuthenticationFailure
from magnetar.security.authentication import Credentials
from magnetar.security.options import ProviderRefused, SecurityOptions
from magnetar.security.providers.fetching import MAX_BYTES, Fetcher, FetchFailed
from magnetar.security.providers.openid import OpenIdProvider, keys_in

ISSUER, OTHER = "https://issuer.test/realm", "https://other.test"
END = 1 << 40


def jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if hasattr(key, "decrypt") else jwt.algorithms.ECAlgorithm
    shown: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return {**shown, "kid": kid, **more}


class Issuers:
    """What is at which address, and what was asked for."""

    def __init__(self) -> None:
        self.keys: dict[str, list[dict[str, Any]]] = {
            ISSUER: [jwk(rsa_key(), "r1"), jwk(ec_key(), "e1", alg="ES256")],
            OTHER: [jwk(rsa_key(1), "r1")],
        }
        self.documents: dict[str, dict[str, Any]] = {
            url: {"issuer": url, "jwks_uri": f"{url}/keys"} for url in self.keys
        }
        self.asked: list[str] = []
        self.down = False

    def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if self.down:
            raise FetchFailed("nobody answers")
        for issuer, keys in self.keys.items():
            if url == f"{issuer}/.well-known/openid-configuration":
                return json.dumps(self.documents[issuer]).encode()
            if url == f"{issuer}/keys":
                return json.dumps({"keys": keys}).encode()
        raise FetchFailed("status 404")


class World:
    def __init__(self, **given: str) -> None:
        self.simulation: Simulation = simulated_io(1)
        self.issuers = Issuers()
        settings = {
            "openIDAllowedTokenIssuers": f"{ISSUER},{OTHER}",
            "openIDAllowedAudiences": "me,us",
            **given,
        }
        io = self.simulation.io
        self.provider = OpenIdProvider(
            io, io.start_worker("w"), SecurityOptions(settings), self.issuers.fetch
        )

    def role(self, data: bytes) -> str:
        return ask(self.simulation, self.provider, data).role

    def refuses(self, data: bytes, why: str) -> None:
        with pytest.raises(AuthenticationFailure, match=why):
            self.role(data)


def made(key: Any = None, algorithm: str = "RS256", kid: Any = "r1", leave: str = "", **claims: Any) -> bytes:
    whole = {"iss": ISSUER, "aud": "me", "sub": "alice", "exp": END, **claims}
    whole.pop(leave, None)
    return token(whole, key or rsa_key(), algorithm, **({} if kid is None else {"kid": kid}))


def test_tokens_of_several_issuers_are_taken_each_by_its_own_keys() -> None:
    world = World()
    assert world.role(made()) == "alice"
    assert world.role(made(ec_key(), "ES256", "e1", aud=["x", "us"])) == "alice"
    assert world.role(made(rsa_key(1), iss=OTHER)) == "alice"
    world.refuses(made(rsa_key(1)), "signature")
    world.refuses(made(iss=OTHER), "signature")
    assert len(world.issuers.asked) == 4, "each was asked once"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (made(iss="https://evil.test"), "issuer"),
        (made(iss=ISSUER + "/"), "issuer"),
        (made(leave="iss"), "issuer"),
        (made(aud="them"), "audience"),
        (made(aud=[["me"]]), "audience"),
        (made(leave="aud"), "audience"),
        (made(exp=5), "expired"),
        (made(leave="exp"), "no expiry"),
        (made(leave="sub"), "no role"),
        (made(kid=None), "has no key id"),
        (made(kid="unknown"), "key of the token is unknown"),
        (made(ec_key(), "ES256", "r1"), "algorithm"),
        (made(b"s" * 64, "HS256", "r1"), "algorithm"),
        (made().rsplit(b".", 1)[0] + b".", "signature|read"),
        (b"garbage", "read"),
        (b"", "read"),
    ],
)
def test_what_proves_nothing(data: bytes, why: str) -> None:
    World().refuses(data, why)


def test_strangers_issuers_are_asked_nothing() -> None:
    world = World()
    world.refuses(made(iss="https://evil.test"), "issuer")
    assert world.issuers.asked == []


def test_a_key_that_an_issuer_adds_counts_and_one_that_it_takes_away_does_not() -> None:
    world = World(openIDKeyIdCacheMissRefreshSeconds="300")
    told: list[int] = []
    world.provider.listen(lambda: told.append(1))
    world.role(made())
    world.issuers.keys[ISSUER] = [jwk(rsa_key(2), "r2")]
    world.refuses(made(rsa_key(2), kid="r2"), "key of the token is unknown")
    world.simulation.loop.run_for(301)
    assert world.role(made(rsa_key(2), kid="r2")) == "alice"
    assert told == [1], "who came by the old one proves itself again"
    world.refuses(made(), "key of the token is unknown")


def test_clients_hear_of_a_key_that_was_withdrawn_or_replaced_while_an_issuer_was_not_asked() -> None:
    world = World(openIDCacheExpirationSeconds="2000")
    told: list[int] = []
    world.provider.listen(lambda: told.append(1))
    world.role(made())
    world.simulation.loop.run_for(2001)
    world.role(made())
    assert not told
    world.issuers.keys[ISSUER] = [jwk(rsa_key(1), "r1"), jwk(ec_key(), "e1", alg="ES256")]
    world.simulation.loop.run_for(2001)
    world.refuses(made(), "signature")
    assert len(told) == 1
    del world.issuers.keys[ISSUER][1]
    world.simulation.loop.run_for(2001)
    assert world.role(made(rsa_key(1))) == "alice"
    assert len(told) == 2


def test_unknown_keys_make_an_issuer_be_asked_now_and_then_only() -> None:
    world = World()
    world.role(made())
    for number in range(100):
        world.refuses(made(kid=f"u{number}"), "key of the token is unknown")
    assert len(world.issuers.asked) == 2
    world.simulation.loop.run_for(301)
    for number in range(100):
        world.refuses(made(kid=f"u{number}"), "key of the token is unknown")
    assert len(world.issuers.asked) == 4


def test_keys_are_asked_for_anew_in_the_background_and_run_out_at_last() -> None:
    world = World(openIDCacheRefreshAfterWriteSeconds="1000", openIDCacheExpirationSeconds="2000")
    world.role(made())
    world.simulation.loop.run_for(1001)
    assert world.role(made()) == "alice"
    world.simulation.loop.run_for(1)
    assert len(world.issuers.asked) == 4
    world.issuers.down = True
    world.simulation.loop.run_for(1500)
    assert world.role(made()) == "alice", "an issuer that is down for a while is not missed"
    world.simulation.loop.run_for(1000)
    world.refuses(made(), "key of the token is unknown")
    world.issuers.down = False
    world.simulation.loop.run_for(10)
    assert world.role(made()) == "alice"


def test_many_that_come_at_once_make_it_be_asked_once() -> None:
    world = World()
    loop = world.simulation.loop
    asked = [
        loop.create_task(world.provider.authenticate(Credentials("token", made(), f"1.1.1.1:{number}")))
        for number in range(50)
    ]
    loop.run_for(0)
    asked[0].cancel()
    loop.run_for(5)
    assert [one.result().role for one in asked[1:]] == ["alice"] * 49
    assert len(world.issuers.asked) == 2


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": OTHER, "jwks_uri": f"{ISSUER}/keys"},
        {"issuer": ISSUER, "jwks_uri": "http://issuer.test/realm/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
        {"issuer": ISSUER, "jwks_uri": 5},
        {"issuer": ISSUER},
    ],
)
def test_a_discovery_document_that_is_not_to_be_believed(document: dict[str, Any]) -> None:
    world = World()
    world.issuers.documents[ISSUER] = document
    world.refuses(made(), "key of the token is unknown")
    assert len(world.issuers.asked) == 1


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"kid": "k"},
        {"kid": "k", "kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
        jwk(rsa_key(), "k", use="enc"),
        jwk(rsa_key(), "k", alg="HS256"),
        jwk(rsa_key(bits=1024), "k"),
        {**jwk(ec_key(), "k"), "x": "AAAA"},
        "k",
    ],
)
def test_keys_that_cannot_be_used_are_left_aside(key: Any) -> None:
    found = keys_in(json.dumps({"keys": [key, jwk(ec_key(), "good")]}).encode())
    assert list(found) == ["good"]


NO_LISTS = [b"", b"[]", b"{}", b'{"keys":{}}', b"[" * 100_000, b'{"keys":[' + b"1," * 101 + b"1]}"]


@pytest.mark.parametrize("data", NO_LISTS, ids=lambda data: f"{len(data)} bytes")
def test_what_is_no_list_of_keys(data: bytes) -> None:
    with pytest.raises(FetchFailed):
        keys_in(data)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"openIDAllowedTokenIssuers": ""}, "openIDAllowedTokenIssuers"),
        ({"openIDAllowedAudiences": ""}, "openIDAllowedAudiences"),
        ({"openIDAllowedTokenIssuers": "http://issuer.test"}, "https"),
        ({"openIDAllowedTokenIssuers": "ftp://x", "openIDRequireIssuersUseHttps": "false"}, "https"),
        ({"openIDAcceptedTimeLeewaySeconds": "-1"}, "Leeway"),
    ],
)
def test_settings_that_cannot_work(given: dict[str, str], what: str) -> None:
    with pytest.raises(ProviderRefused, match=what):
        World(**given)


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.end_headers()
            return
        self.send_response(500 if self.path == "/bad" else 200)
        self.end_headers()
        self.wfile.write(b"x" * (MAX_BYTES + 1 if self.path == "/long" else 10))

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_what_is_fetched_is_bounded(address: str) -> None:
    fetcher = Fetcher("", 5, 5)
    assert fetcher.get(f"{address}/good?x=1") == b"x" * 10
    for path in ("/bad", "/long", "/moved"):
        with pytest.raises(FetchFailed):
            fetcher.get(address + path)
    for url in ("http://", "http://127.0.0.1:1/x", "https" + address.removeprefix("http")):
        with pytest.raises(FetchFailed):
            fetcher.get(url)
