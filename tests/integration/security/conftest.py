"""A server with authentication, authorization and TLS, one for each module."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import jwt
import pulsar
import pytest
import websocket
from issuer import AUDIENCE, OpenIdIssuer
from passlib.hash import apr_md5_crypt
from server import Server

sys.path.append(str(Path(__file__).parents[2] / "unit" / "security"))
from keys import certificate, ec_key, pem, private_pem, rsa_key

NAMESPACE = "acme/orders"
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_OPENID = "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID"
_CA = ("issuer", ec_key(number=1))
PASSWORD = "open:sesame"


class Secured:
    """A server, the keys and files that it goes by, and clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = os.urandom(32)
        self.write("secret", self.secret)
        self.users: dict[str, str] = {}
        self.set_users({"basil": PASSWORD})
        self.ca = str(self.write("ca.pem", pem(certificate("issuer", _CA[1]))))
        self.key = str(self.write("key.pem", private_pem(ec_key())))
        self.certify("server")
        self.issuer = OpenIdIssuer(rsa_key())
        self.server = Server(folder, self._settings())

    def _settings(self) -> dict[str, int | str]:
        return {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": ",".join(f"{_PROVIDER}{name}" for name in ("Token", "Basic", "Tls"))
            + f",{_OPENID}",
            "superUserRoles": "admin",
            # What serves WebSockets: a proof that no test takes away.
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationBasic",
            "brokerClientAuthenticationParameters": json.dumps({"userId": "basil", "password": PASSWORD}),
            "proxyRoles": "proxy",
            "tokenSecretKey": f"file:{self.folder / 'secret'}",
            "openIDAllowedTokenIssuers": self.issuer.url,
            "openIDAllowedAudiences": AUDIENCE,
            "openIDRequireIssuersUseHttps": "false",
            "basicAuthConf": str(self.folder / "htpasswd"),
            "brokerServicePortTls": 0,
            "webServicePortTls": 0,
            "tlsCertificateFilePath": str(self.folder / "server.pem"),
            "tlsKeyFilePath": self.key,
            "tlsTrustCertsFilePath": self.ca,
            "tlsCertRefreshCheckDurationSec": 1,
            "authenticationRefreshCheckSeconds": 1,
        }

    def write(self, name: str, data: bytes) -> Path:
        """Replaces a file at once, as administrators should."""
        new = self.folder / f".{name}"
        new.write_bytes(data)
        return new.replace(self.folder / name)

    def set_users(self, users: dict[str, str]) -> None:
        self.users = users
        lines = [f"{name}:{apr_md5_crypt.hash(password)}\n" for name, password in users.items()]
        self.write("htpasswd", "".join(lines).encode())

    def certify(self, name: str) -> str:
        """A certificate of the issuer that the server trusts."""
        made = certificate(name, ec_key(), _CA, hosts=("localhost",))
        return str(self.write(f"{name}.pem", pem(made)))

    def token(self, role: str, seconds: float | None = None) -> str:
        claims: dict[str, Any] = {"sub": role}
        if seconds is not None:
            claims["exp"] = int(time.time() + seconds)
        return jwt.encode(claims, self.secret, "HS256")

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """As the superuser, unless there is a token (empty: with none)."""
        proof = self.token("admin") if token is None else token
        if proof:
            headers["Authorization"] = f"Bearer {proof}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.server.http_url + path, data, headers, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request, timeout=20) as response:
                answer = response.read()
                return response.status, json.loads(answer) if answer else None
        except HTTPError as error:
            with error:
                return error.code, error.read().decode("utf-8", "replace")

    def do(self, method: str, path: str, body: Any = None) -> Any:
        """What has to succeed."""
        status, answer = self.ask(method, f"/admin/v2{path}", body)
        assert status in (200, 204), (method, path, status, answer)
        return answer

    def client(self, proof: Any, *, tls: bool = False) -> pulsar.Client:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        if not tls:
            return pulsar.Client(
                self.server.url, authentication=proof, operation_timeout_seconds=30, logger=quiet
            )
        return pulsar.Client(
            self.server.urls["pulsar+ssl"].replace("127.0.0.1", "localhost"),
            authentication=proof,
            tls_trust_certs_file_path=self.ca,
            tls_validate_hostname=True,
            operation_timeout_seconds=30,
            logger=quiet,
        )

    def basic(self, name: str, password: str = PASSWORD) -> str:
        return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()

    def web_socket(self, path: str, authorization: str) -> websocket.WebSocket:
        """One on a topic of the namespace.

        :param path: the kind, then what comes behind the namespace
        """
        kind, _, rest = path.partition("/")
        url = self.server.http_url.replace("http", "ws", 1)
        return websocket.create_connection(
            f"{url}/ws/v2/{kind}/persistent/{NAMESPACE}/{rest}",
            timeout=20,
            header={"Authorization": authorization},
        )

    def open_at(self, topic: str) -> int:
        """Producers and consumers of a topic."""
        status, found = self.ask("GET", f"/admin/v2/persistent/{NAMESPACE}/{topic}/stats")
        if status != 200:
            return 0
        consumers = [len(one["consumers"]) for one in found["subscriptions"].values()]
        return len(found["publishers"]) + sum(consumers)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("secured"))
    found.server.start()
    try:
        found.do("PUT", "/tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
        found.do("PUT", f"/namespaces/{NAMESPACE}")
        found.do("POST", f"/namespaces/{NAMESPACE}/permissions/basil", ["produce", "consume"])
        yield found
    finally:
        found.server.close()
        found.issuer.close()
