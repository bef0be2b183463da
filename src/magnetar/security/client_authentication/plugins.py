"""Creates credentials from ``authPlugin`` and ``authParams``, as in Pulsar's command lines and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from magnetar.security.client_authentication.authentication import (
    Authentication,
    AuthenticationBasic,
    AuthenticationTLS,
    AuthenticationToken,
    NoCredentials,
    TokenFile,
    path_of,
)

__all__ = ["authentication_of"]

_PULSAR = "org.apache.pulsar.client.impl.auth."
_NOT_HERE = {
    f"{_PULSAR}AuthenticationAthenz": "Athenz",
    f"{_PULSAR}AuthenticationSasl": "Kerberos (SASL)",
    f"{_PULSAR}AuthenticationKeyStoreTls": "a key store of Java",
    "athenz": "Athenz",
    "sasl": "Kerberos (SASL)",
}


def authentication_of(plugin: str, params: str) -> Authentication | None:
    """Returns the credentials; None for no authentication.

    :param plugin: the name of a class of Pulsar, or ``token``, ``basic``, ``tls``, ``oauth2``; empty: no
        authentication
    :raises NoCredentials: the plug-in is unknown, or its parameters are malformed; the message contains no
        secrets
    """
    name = plugin.strip()
    if name in ("", f"{_PULSAR}AuthenticationDisabled", "none"):
        if params.strip() and not name:
            raise NoCredentials("authParams is given without authPlugin: set authPlugin, too")
        return None
    if name in _NOT_HERE:
        raise NoCredentials(
            f"authPlugin: {_NOT_HERE[name]} is not supported; use tokens, Basic, TLS or OAuth 2.0"
        )
    make = _PLUGINS.get(name)
    if make is None:
        raise NoCredentials(f"authPlugin: unknown plugin {name[:200]!r}")
    return make(params.strip())


def _token(params: str) -> Authentication:
    """Returns the credentials in ``token:…``, ``file:…``, JSON with ``token``, or the token itself."""
    if params.startswith("token:"):
        return AuthenticationToken(params.removeprefix("token:"))
    if params.startswith("file:"):
        return AuthenticationToken(TokenFile(path_of(params)))
    if params.startswith("{"):
        return AuthenticationToken(_needed(_json(params), "token"))
    return AuthenticationToken(params)


def _basic(params: str) -> Authentication:
    """Returns the credentials in JSON with ``userId`` and ``password``, or ``userId:…,password:…``."""
    found = _either(params)
    user = found.get("userId") or found.get("username")
    if user is None:
        raise NoCredentials("authParams of Basic require userId and password")
    return AuthenticationBasic(user, _needed(found, "password"))


def _tls(params: str) -> Authentication:
    """Returns the credentials in ``tlsCertFile:…,tlsKeyFile:…``, or JSON with both."""
    found = _either(params)
    return AuthenticationTLS(
        path_of(_needed(found, "tlsCertFile")),
        path_of(_needed(found, "tlsKeyFile")),
    )


def _oauth2(params: str) -> Authentication:
    # Imported late, so that commands without HTTP and TLS start fast.
    from magnetar.security.client_authentication.oauth2 import AuthenticationOauth2

    return AuthenticationOauth2(params)


_PLUGINS: Mapping[str, Callable[[str], Authentication]] = {
    f"{_PULSAR}AuthenticationToken": _token,
    f"{_PULSAR}AuthenticationBasic": _basic,
    f"{_PULSAR}AuthenticationTls": _tls,
    f"{_PULSAR}oauth2.AuthenticationOAuth2": _oauth2,
    "token": _token,
    "basic": _basic,
    "tls": _tls,
    "oauth2": _oauth2,
}


def _either(params: str) -> dict[str, str]:
    if params.startswith("{"):
        return _json(params)
    pairs = (part.partition(":") for part in params.split(","))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _json(params: str) -> dict[str, str]:
    try:
        found = json.loads(params)
    except ValueError:
        raise NoCredentials("authParams are not JSON") from None
    if not isinstance(found, dict):
        raise NoCredentials("authParams are not a JSON object")
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _needed(found: Mapping[str, str], name: str) -> str:
    if not found.get(name):
        raise NoCredentials(f"authParams require {name}")
    return found[name]
