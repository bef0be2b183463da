"""What clients prove themselves by: every form of it, and that none of it is told."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

import pytest

from magnetar.security.client_authentication.authentication import (
    Authentication,
    AuthenticationBasic,
    AuthenticationToken,
    NoCredentials,
)
from magnetar.security.client_authentication.oauth2 import AuthenticationOauth2
from magnetar.security.client_authentication.plugins import authentication_of

PULSAR = "org.apache.pulsar.client.impl.auth.Authentication"
SECRET = "kept.to.oneself"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "a token"
    path.write_text(SECRET + "\n")
    return path


@pytest.mark.parametrize("plugin", [f"{PULSAR}Token", "token"])
@pytest.mark.parametrize("form", ["token:{0}", "{0}", '{{"token":"{0}"}}', "file:{1}", "file://{1}"])
def test_tokens(plugin: str, form: str, token_file: Path) -> None:
    name = str(token_file).replace(" ", "%20")
    found = authentication_of(plugin, form.format(SECRET, name))
    assert found is not None
    assert (found.method, found.data()) == ("token", SECRET.encode())
    assert found.headers()["Authorization"] == f"Bearer {SECRET}"
    assert pickle.loads(pickle.dumps(found)).data() == SECRET.encode()
    token_file.write_text("another")
    assert found.data() == (b"another" if "file" in form else SECRET.encode())


@pytest.mark.parametrize("form", ['{{"userId":"u","password":"{0}"}}', "userId:u,password:{0}"])
def test_passwords(form: str) -> None:
    found = authentication_of(f"{PULSAR}Basic", form.format(SECRET))
    assert found is not None
    assert (found.method, found.data()) == ("basic", f"u:{SECRET}".encode())
    encoded = base64.b64encode(f"u:{SECRET}".encode()).decode()
    assert found.headers()["Authorization"] == f"Basic {encoded}"


@pytest.mark.parametrize(
    "form", ["tlsCertFile:/c,tlsKeyFile:/k", '{"tlsCertFile":"/c","tlsKeyFile":"file:///k"}']
)
def test_certificates(form: str) -> None:
    found = authentication_of(f"{PULSAR}Tls", form)
    assert found is not None
    assert (found.method, found.data(), found.certificate) == ("tls", b"", ("/c", "/k"))


def test_nothing_to_prove() -> None:
    assert authentication_of("", "") is None
    assert authentication_of(f"{PULSAR}Disabled", "x") is None


@pytest.mark.parametrize(
    ("plugin", "params", "told"),
    [
        ("", SECRET, "without authPlugin"),
        ("a.B", SECRET, "unknown plugin 'a.B'"),
        (f"{PULSAR}Sasl", SECRET, "Kerberos"),
        (f"{PULSAR}Athenz", SECRET, "Athenz"),
        ("token", "", "empty"),
        ("token", f"{SECRET}\r\nX-Other: 1", "blanks or control"),
        ("token", f'{{"token":"{SECRET}"', "not JSON"),
        ("token", "file:///not/there", "/not/there cannot be read"),
        ("basic", f"password:{SECRET}", "userId"),
        ("basic", f"userId:{SECRET}", "password"),
        ("basic", '{"userId":"a:b","password":"kept.to.oneself"}', "must not be empty or contain a colon"),
        ("tls", f"tlsCertFile:{SECRET}", "tlsKeyFile"),
        ("oauth2", SECRET, "not JSON"),
        ("oauth2", f'{{"issuerUrl":"https://i","client_secret":"{SECRET}"}}', "client_id"),
        ("oauth2", f'{{"clientId":"c","client_secret":"{SECRET}"}}', "issuerUrl"),
        ("oauth2", f'{{"type":"device","client_secret":"{SECRET}"}}', "'device'"),
        ("oauth2", f'{{"issuerUrl":"https://i","privateKey":"data:;base64,{SECRET}"}}', "data: URL"),
    ],
)
def test_what_is_refused_is_named_and_not_told(plugin: str, params: str, told: str) -> None:
    with pytest.raises(NoCredentials, match=told) as refusal:
        prove(plugin, params)
    assert SECRET not in str(refusal.value)


def prove(plugin: str, params: str) -> None:
    found = authentication_of(plugin, params)
    assert found is not None
    if isinstance(found, AuthenticationOauth2):
        found._endpoint = "http://127.0.0.1:1"
    found.data()


def test_no_repr_tells_a_secret() -> None:
    def give() -> str:
        raise ValueError(SECRET)

    found: list[Authentication] = [
        AuthenticationToken(SECRET),
        AuthenticationToken(give),
        AuthenticationBasic("u", SECRET),
        AuthenticationOauth2({"issuerUrl": "https://i", "client_id": "c", "client_secret": SECRET}),
    ]
    assert all(SECRET not in f"{each!r} {each}" for each in found)
    with pytest.raises(NoCredentials) as refusal:
        found[1].data()
    assert SECRET not in str(refusal.value)
    assert refusal.value.__suppress_context__


class Issuer(HTTPServer):
    """Gives tokens, numbered; notes the forms it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Questions)
        self.forms: list[dict[str, list[str]]] = []
        self.endpoint = "/token"
        self.expires_in: object = 3600
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Questions(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Issuer)
        assert self.path == "/.well-known/openid-configuration"
        self._tell(200, {"token_endpoint": self.server.url + self.server.endpoint})

    def do_POST(self) -> None:
        assert isinstance(self.server, Issuer)
        self.server.forms.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        token = f"token{len(self.server.forms)}"
        self._tell(
            self.server.status, {"access_token": token, "expires_in": self.server.expires_in, "echo": SECRET}
        )

    def _tell(self, status: int, answer: dict[str, object]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("form", ["path", "file", "data", "inline"])
def test_oauth2_asks_the_issuer(issuer: Issuer, form: str, tmp_path: Path) -> None:
    key = json.dumps({"client_id": "c", "client_secret": SECRET})
    (tmp_path / "key.json").write_text(key)
    ways = {
        "path": {"private_key": f"{tmp_path}/key.json"},
        "file": {"privateKey": f"file://{tmp_path}/key.json"},
        "data": {"privateKey": "data:application/json;base64," + base64.b64encode(key.encode()).decode()},
        "inline": {"client_id": "c", "client_secret": SECRET},
    }
    params = {"issuerUrl": issuer.url, "audience": "a b", **ways[form]}
    found = authentication_of(f"{PULSAR[:-14]}oauth2.AuthenticationOAuth2", json.dumps(params))
    assert found is not None
    assert (found.method, found.data(), found.data()) == ("token", b"token1", b"token1")
    assert issuer.forms == [
        {
            "grant_type": ["client_credentials"],
            "client_id": ["c"],
            "client_secret": [SECRET],
            "audience": ["a b"],
        }
    ]
    assert pickle.loads(pickle.dumps(found)).data() == b"token2"


@pytest.mark.parametrize(
    "told", [None, "3600", True, -1, float("nan"), float("inf"), pytest.param(10**400, id="vast")]
)
def test_oauth2_tokens_that_do_not_last_are_asked_for_again(issuer: Issuer, told: object) -> None:
    issuer.expires_in = told
    found = AuthenticationOauth2({"issuer_url": issuer.url, "client_id": "c", "client_secret": SECRET})
    assert [found.data(), found.data()] == [b"token1", b"token2"]


@pytest.mark.parametrize("status", [302, 307, 401, 500])
def test_oauth2_secrets_go_to_the_issuer_alone(issuer: Issuer, status: int) -> None:
    issuer.status = status
    found = AuthenticationOauth2({"issuer_url": issuer.url, "client_id": "c", "client_secret": SECRET})
    with pytest.raises(NoCredentials, match=f"answered {status}") as refusal:
        found.data()
    assert SECRET not in str(refusal.value)
    assert len(issuer.forms) == 1
