"""The credentials of a request.

The headers are those of Pulsar's ``AuthenticationService``: ``Authorization``, the name of a method in
``X-Pulsar-Auth-Method-Name``, and the role that a proxy acts for in ``X-Original-Principal``.
"""

from __future__ import annotations

import base64
import binascii

from magnetar.http.engine.message import Request
from magnetar.security.authentication import Claim, Credentials

_METHOD = "x-pulsar-auth-method-name"
_ORIGINAL = "x-original-principal"


def claim_of(request: Request) -> Claim:
    """Returns all credentials of the request; the first valid ones count."""
    offered: list[Credentials] = []
    chosen = request.headers.get(_METHOD, "")
    scheme, _, value = request.headers.get("authorization", "").strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        offered.append(_credentials(request, "token", value.encode("latin-1")))
    elif scheme.lower() == "basic":
        offered.append(_credentials(request, "basic", _decoded(value)))
    elif chosen and scheme:
        offered.append(_credentials(request, chosen, request.headers["authorization"].encode("latin-1")))
    elif request.query.get("token"):
        offered.append(_credentials(request, "token", request.query["token"].encode()))
    if request.certificate is not None:
        offered.append(_credentials(request, "tls", b""))
    if chosen:
        offered = [one for one in offered if one.method == chosen]
    return Claim(offered or [_credentials(request, chosen, b"")], request.headers.get(_ORIGINAL, ""))


def _credentials(request: Request, method: str, data: bytes) -> Credentials:
    return Credentials(method, data, request.peer, request.certificate)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        # Refused later, like any other credentials that are not valid.
        return b""
