"""OAuth 2.0: a token from an issuer for a client's id and secret (client-credentials flow)."""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import unquote_to_bytes, urlencode, urlsplit

from magnetar.security.client_authentication.authentication import (
    BearerAuthentication,
    NoCredentials,
    checked_token,
    path_of,
    read_text,
)

__all__ = ["AuthenticationOauth2"]

TIMEOUT_SECONDS = 30.0
_MAX_ANSWER_BYTES = 1 << 20
_OF_LIFE = 0.9
"""The fraction of a token's lifetime after which a new token is fetched."""
_LONGEST_SECONDS = 1e9
_DISCOVERY = "/.well-known/openid-configuration"
_GRANT = "client_credentials"


class AuthenticationOauth2(BearerAuthentication):
    """Authentication by a token of an OAuth 2.0 issuer (client credentials); a new token is fetched before
    the current token expires."""

    def __init__(self, auth_params_string: str | Mapping[str, str]) -> None:
        """:param auth_params_string: a JSON object or a mapping. It contains ``issuerUrl``; either
            ``privateKey`` (the path, ``file:`` URL or ``data:`` URL of a JSON object with ``client_id`` and
            ``client_secret``) or ``client_id`` and ``client_secret`` themselves; and optionally ``audience``,
            ``scope`` and ``trustCertsFilePath`` (a PEM file). Names may also be written with underscores.
        :raises NoCredentials: a parameter is missing or malformed
        """
        given = _mapping(auth_params_string)
        kind = given.get("type", _GRANT)
        if kind != _GRANT:
            raise NoCredentials(f"OAuth 2.0 type {kind!r} is not supported; use {_GRANT}")
        self._issuer = given.get("issuerurl", "").rstrip("/")
        if urlsplit(self._issuer).scheme not in ("https", "http"):
            raise NoCredentials("OAuth 2.0 requires issuerUrl with an https address")
        self._private_key = given.get("privatekey", "")
        self._client = (given.get("clientid", ""), given.get("clientsecret", ""))
        if not self._private_key and not all(self._client):
            raise NoCredentials("OAuth 2.0 requires privateKey, or client_id and client_secret")
        self._asked_for = {name: given[name] for name in ("audience", "scope") if given.get(name)}
        self._trust = given.get("trustcertsfilepath", "")
        self._forget()

    def _forget(self) -> None:
        self._endpoint = ""
        self._token = ""
        self._until = 0.0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        """Returns the state without the lock, and without the token, which may have expired when the state is
        used."""
        left_out = ("_endpoint", "_token", "_until", "_lock")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._forget()

    @property
    def blocks(self) -> bool:
        return True

    def token(self) -> str:
        with self._lock:
            if time.monotonic() >= self._until:
                self._token, seconds = self._fetched()
                self._until = time.monotonic() + seconds * _OF_LIFE
            return self._token

    def _fetched(self) -> tuple[str, float]:
        """Returns a new token, and its lifetime in seconds."""
        if not self._endpoint:
            found = self._asked("GET", self._issuer + _DISCOVERY, "").get("token_endpoint")
            if not isinstance(found, str) or not found:
                raise NoCredentials(f"{self._issuer} has no token_endpoint")
            if self._issuer.startswith("https:") and not found.startswith("https:"):
                raise NoCredentials(f"the token_endpoint of {self._issuer} does not use TLS")
            self._endpoint = found
        client_id, secret = self._credentials()
        form = {"grant_type": _GRANT, "client_id": client_id, "client_secret": secret, **self._asked_for}
        answer = self._asked("POST", self._endpoint, urlencode(form))
        token = answer.get("access_token")
        if not isinstance(token, str):
            raise NoCredentials(f"{self._endpoint} answered without access_token")
        good = _seconds(answer.get("expires_in"))
        return checked_token(token, f"the answer of {self._endpoint}"), good

    def _credentials(self) -> tuple[str, str]:
        if not self._private_key:
            return self._client
        text = _content(self._private_key)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise NoCredentials("privateKey of OAuth 2.0 is not JSON")
        pair = (found.get("client_id"), found.get("client_secret"))
        if not all(isinstance(one, str) and one for one in pair):
            raise NoCredentials("privateKey of OAuth 2.0 has no client_id or no client_secret")
        return str(pair[0]), str(pair[1])

    def _asked(self, method: str, url: str, form: str) -> dict[str, object]:
        """Sends a request to an issuer, and returns the JSON object in the answer. Redirects are not
        followed, because only the issuer may get the secret."""
        parts = urlsplit(url)
        headers = {"Accept": "application/json"}
        if form:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection = self._connection(parts.scheme, parts.hostname or "", parts.port)
            try:
                connection.request(method, parts.path or "/", form or None, headers)
                response = connection.getresponse()
                status, data = response.status, response.read(_MAX_ANSWER_BYTES + 1)
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError) as error:
            raise NoCredentials(
                f"{parts.scheme}://{parts.netloc} cannot be reached: {type(error).__name__}"
            ) from None
        if status != 200:
            raise NoCredentials(f"{parts.scheme}://{parts.netloc} answered {status}")
        try:
            found = json.loads(data) if len(data) <= _MAX_ANSWER_BYTES else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise NoCredentials(f"{parts.scheme}://{parts.netloc} did not answer with JSON")
        return found

    def _connection(self, scheme: str, host: str, port: int | None) -> HTTPConnection:
        if scheme == "http":
            return HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        context = ssl.create_default_context(cafile=self._trust or None)
        return HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


def _mapping(params: str | Mapping[str, str]) -> dict[str, str]:
    """Returns the parameters by name, in lower case without underscores."""
    if isinstance(params, str):
        try:
            found = json.loads(params)
        except ValueError:
            raise NoCredentials("the parameters of OAuth 2.0 are not JSON") from None
        if not isinstance(found, dict):
            raise NoCredentials("the parameters of OAuth 2.0 must be a JSON object")
        params = found
    return {name.replace("_", "").lower(): str(value) for name, value in params.items() if value is not None}


def _seconds(told: object) -> float:
    """Returns the lifetime of a token in seconds; 0 if ``told`` is missing, malformed or out of range."""
    if not isinstance(told, int | float) or isinstance(told, bool):
        return 0.0
    return float(told) if 0 < told <= _LONGEST_SECONDS else 0.0


def _content(source: str) -> str:
    """Returns the content of a path, a ``file:`` or a ``data:`` URL.

    :raises NoCredentials: the content cannot be read
    """
    if not source.startswith("data:"):
        return read_text(path_of(source))
    head, _, rest = source.partition(",")
    try:
        data = unquote_to_bytes(rest)
        if head.endswith(";base64"):
            data = base64.b64decode(data, validate=True)
        return data.decode()
    except (binascii.Error, UnicodeDecodeError):
        raise NoCredentials("privateKey of OAuth 2.0 is a data: URL that cannot be read") from None
