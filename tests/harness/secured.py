"""A server that asks who its clients are: tokens, passwords and certificates, with TLS and without."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import bcrypt
import jwt
from certificates import Authority
from server import Server

SUPERUSER = "admin"
PASSWORD = "hard to guess"
_SECRET = bytes(range(40))
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


class SecuredServer(Server):
    """Its superusers are ``admin``, however they prove that; ``basic`` has the password ``PASSWORD``."""

    def __init__(self, folder: Path, **more: int | str) -> None:
        self.authority = Authority(folder)
        pair = self.authority.server()
        (folder / "secret").write_bytes(_SECRET)
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (folder / "htpasswd").write_text(f"basic:{hashed}\n")
        super().__init__(
            folder,
            {
                "brokerServicePortTls": 0,
                "webServicePortTls": 0,
                "tlsCertificateFilePath": pair.certificate,
                "tlsKeyFilePath": pair.key,
                "tlsTrustCertsFilePath": self.authority.trust,
                "authenticationEnabled": "true",
                "authenticationProviders": ",".join(
                    f"{_PROVIDER}{kind}" for kind in ("Tls", "Token", "Basic")
                ),
                "tokenSecretKey": f"file://{folder}/secret",
                "basicAuthConf": f"file://{folder}/htpasswd",
                "authorizationEnabled": "true",
                "superUserRoles": SUPERUSER,
                **more,
            },
        )

    @property
    def tls_url(self) -> str:
        return self.urls["pulsar+ssl"]

    @property
    def https_url(self) -> str:
        return self.urls["https"]


def token(role: str, seconds: float | None = None) -> str:
    """:param seconds: how long it is good for; None: for ever"""
    claims: dict[str, object] = {"sub": role}
    if seconds is not None:
        claims["exp"] = time.time() + seconds
    return jwt.encode(claims, _SECRET, "HS256")


def short_lived(role: str, seconds: float, given: list[str]) -> Callable[[], str]:
    """Gives tokens that are good for so long, and notes them."""

    def give() -> str:
        given.append(token(role, seconds))
        return given[-1]

    return give
