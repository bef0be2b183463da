"""Those who ask: the columns of the matrix, and the settings of the broker that they ask."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass

KEY = hashlib.sha256(b"access matrix").digest()
"""Of a broker that serves for this test only."""

SETTINGS: Mapping[str, str] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": "data:;base64," + base64.b64encode(KEY).decode(),
    "superUserRoles": "admin,proxyadmin",
    "proxyRoles": "proxy,bareproxy,proxyadmin",
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "transactionCoordinatorEnabled": "true",
}

TENANT, OTHER_TENANT = "matrix", "elsewhere"
TENANT_ADMINS = ("owner", "proxy")


@dataclass(frozen=True, slots=True)
class Column:
    """One kind of client."""

    name: str
    token: str = ""
    original: str = ""
    """For whom it says that it speaks."""
    unknown: bool = False
    """It cannot prove itself, whatever it asks for."""
    administers: bool = False
    """What it may do rests on no permission."""
    asks_every_way: bool = False
    """It asks of partitions, by legacy names and so on, too, where not all do."""


def token(role: str, *, expires: int = 0, key: bytes = KEY) -> str:
    """A signed token, as ``pulsar tokens create`` makes them."""
    claims: dict[str, str | int] = {"sub": role, **({"exp": expires} if expires else {})}
    head = _encoded(json.dumps({"alg": "HS256"}).encode()) + b"." + _encoded(json.dumps(claims).encode())
    return (head + b"." + _encoded(hmac.digest(key, head, "sha256"))).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


SUPERUSER = Column("superuser", token("admin"), administers=True, asks_every_way=True)

OPENER = Column("opener", token("opener"))
"""Opens transactions, which others try to change."""

COLUMNS = (
    Column("nobody", unknown=True, asks_every_way=True),
    Column("wrong-token", token("admin", key=b"another key" * 3), unknown=True),
    Column("expired-token", token("admin", expires=1_500_000_000), unknown=True),
    Column("stranger", token("stranger"), asks_every_way=True),
    Column("other-admin", token("neighbour")),
    Column("impostor", token("owner"), original="admin"),
    Column("proxy-alone", token("proxy")),
    Column("proxy-for-proxy", token("proxyadmin"), original="proxy"),
    Column("proxied-stranger", token("proxyadmin"), original="stranger"),
    Column("bare-proxied-admin", token("bareproxy"), original="owner"),
    Column("producer", token("producer"), asks_every_way=True),
    Column("proxied-producer", token("proxy"), original="producer"),
    Column("consumer", token("consumer"), asks_every_way=True),
    Column("proxied-consumer", token("proxy"), original="consumer"),
    Column("tenant-admin", token("owner"), administers=True, asks_every_way=True),
    Column("proxied-admin", token("proxy"), original="owner", administers=True),
    Column("proxied-superuser", token("proxyadmin"), original="admin", administers=True),
    SUPERUSER,
)
"""From those who may least to those who may most."""
