"""Tokens, passwords and certificates in the hands of a client.

Nothing here tells a secret: neither a ``repr`` nor an exception.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote_to_bytes

__all__ = [
    "Authentication",
    "AuthenticationBasic",
    "AuthenticationTLS",
    "AuthenticationToken",
    "NoCredentials",
]

MAX_TOKEN_BYTES = 1 << 20


class NoCredentials(ValueError):
    """A client has no usable credentials; the text says why, and holds no secret."""


class Authentication:
    """Credentials of one kind; base of all."""

    method = ""
    """``auth_method_name`` of CONNECT."""

    @property
    def blocks(self) -> bool:
        """Whether :meth:`data` and :meth:`headers` may take their time: files, HTTP, callables."""
        return False

    @property
    def certificate(self) -> tuple[str, str] | None:
        """Paths of a certificate and of its key, which TLS is to show."""
        return None

    def data(self) -> bytes:
        """``auth_data`` of CONNECT, asked for anew with each connection and each AUTH_CHALLENGE.

        :raises NoCredentials: the client has no usable credentials
        """
        return b""

    def headers(self) -> Mapping[str, str]:
        """Of an HTTP request.

        :raises NoCredentials: there are none
        """
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class BearerAuthentication(Authentication):
    """Base of those whose credentials are a token."""

    method = "token"

    def token(self) -> str:
        """The present token. :raises NoCredentials: the file or callable gives no token"""
        raise NotImplementedError

    def data(self) -> bytes:
        return self.token().encode()

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token()}", "X-Pulsar-Auth-Method-Name": self.method}


class AuthenticationToken(BearerAuthentication):
    def __init__(self, token: str | Callable[[], str]) -> None:
        """:param token: a token, or what gives one: it is asked again whenever a fresh one is needed, on
            another thread

        :raises NoCredentials: a text that is no token
        """
        self._source = token
        if isinstance(token, str):
            self._source = checked_token(token, "the token")

    @property
    def blocks(self) -> bool:
        return not isinstance(self._source, str)

    def token(self) -> str:
        if isinstance(self._source, str):
            return self._source
        try:
            found = self._source()
        except NoCredentials:
            raise
        except Exception as error:  # noqa: BLE001 - the caller's own, of any kind
            # Its text may hold what it was made of.
            raise NoCredentials(f"the callable for the token failed: {type(error).__name__}") from None
        if not isinstance(found, str):
            raise NoCredentials("the callable for the token did not return a string")
        return checked_token(found, "the token of the callable")


class TokenFile:
    """A file with a token, read anew each time: whoever renews it tells nobody."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self) -> str:
        """:raises NoCredentials: it cannot be read, or holds no token"""
        return checked_token(read_text(self._path), self._path)


class AuthenticationBasic(Authentication):
    def __init__(self, username: str, password: str, method: str = "basic") -> None:
        """:param method: the name by which the broker knows passwords

        :raises NoCredentials: a name with a colon, or none
        """
        if not username or ":" in username:
            raise NoCredentials("the user name must not be empty or have a colon")
        self.method = method
        self._data = f"{username}:{password}".encode()

    def data(self) -> bytes:
        return self._data

    def headers(self) -> Mapping[str, str]:
        encoded = base64.b64encode(self._data).decode()
        return {"Authorization": f"Basic {encoded}", "X-Pulsar-Auth-Method-Name": self.method}


class AuthenticationTLS(Authentication):
    """The role is the common name of the certificate that TLS shows."""

    method = "tls"

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        """:param certificate_path: PEM, with the chain to the issuer

        :param private_key_path: PEM, not encrypted
        """
        self._paths = (certificate_path, private_key_path)

    @property
    def certificate(self) -> tuple[str, str]:
        return self._paths

    def headers(self) -> Mapping[str, str]:
        return {"X-Pulsar-Auth-Method-Name": self.method}


def checked_token(text: str, what: str) -> str:
    """:raises NoCredentials: it is empty, too long, or has characters that no token has"""
    token = text.strip()
    if not token:
        raise NoCredentials(f"{what} is empty")
    # A line break would end the header of a request, and what refuses it prints it.
    if len(token) > MAX_TOKEN_BYTES or not all("!" <= character <= "~" for character in token):
        raise NoCredentials(f"{what} is not a token: it is too long, or has blanks or control characters")
    return token


def read_text(path: str) -> str:
    """:raises NoCredentials: it cannot be read, or is no text of at most 1 MiB"""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_TOKEN_BYTES + 1)
        if len(data) <= MAX_TOKEN_BYTES:
            return data.decode()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise NoCredentials(f"{path} cannot be read: {why}") from None
    raise NoCredentials(f"{path} is larger than {MAX_TOKEN_BYTES} bytes")


def path_of(text: str) -> str:
    """The path that a ``file:`` URL names; any other text is a path itself."""
    if not text.startswith("file:"):
        return text
    rest = text.removeprefix("file:")
    return unquote_to_bytes(rest[2:] if rest.startswith("//") else rest).decode("utf-8", "surrogateescape")
