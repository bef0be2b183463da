"""Tokens, passwords and certificates of a client.

No ``repr`` and no exception contains a secret.
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
    """A client has no usable credentials; the message says why, without secrets."""


class Authentication:
    """Base class of credentials."""

    method = ""
    """``auth_method_name`` of CONNECT."""

    @property
    def blocks(self) -> bool:
        """Whether :meth:`data` and :meth:`headers` may block, because they read files, use HTTP or call
        callables."""
        return False

    @property
    def certificate(self) -> tuple[str, str] | None:
        """The paths of the client's TLS certificate and its key; None without a client certificate."""
        return None

    def data(self) -> bytes:
        """Returns ``auth_data`` of CONNECT; called for each connection and each AUTH_CHALLENGE.

        :raises NoCredentials: the client has no usable credentials
        """
        return b""

    def headers(self) -> Mapping[str, str]:
        """Returns the headers of an HTTP request.

        :raises NoCredentials: the client has no usable credentials
        """
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class BearerAuthentication(Authentication):
    """Base class of credentials that are a token."""

    method = "token"

    def token(self) -> str:
        """Returns the current token.

        :raises NoCredentials: the file or callable has no token
        """
        raise NotImplementedError

    def data(self) -> bytes:
        return self.token().encode()

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token()}", "X-Pulsar-Auth-Method-Name": self.method}


class AuthenticationToken(BearerAuthentication):
    """Authentication by a token, such as a JWT; the role is its subject."""

    def __init__(self, token: str | Callable[[], str]) -> None:
        """:param token: a token, or a callable that returns one; the callable runs in another thread whenever
            a token is needed
        :raises NoCredentials: the string is not a token
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
            # The text of the error may contain secrets.
            raise NoCredentials(f"the callable for the token failed: {type(error).__name__}") from None
        if not isinstance(found, str):
            raise NoCredentials("the callable for the token did not return a string")
        return checked_token(found, "the token of the callable")


class TokenFile:
    """A file with a token; it is read for each use, because it may be renewed at any time."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self) -> str:
        """Returns the token in the file.

        :raises NoCredentials: the file cannot be read, or has no token
        """
        return checked_token(read_text(self._path), self._path)


class AuthenticationBasic(Authentication):
    """Authentication by a user name and a password; the role is the user name."""

    def __init__(self, username: str, password: str, method: str = "basic") -> None:
        """:param username: the user name, without a colon
        :param password: the password
        :param method: the name of the authentication method at the broker
        :raises NoCredentials: the name is empty or contains a colon
        """
        if not username or ":" in username:
            raise NoCredentials("the user name must not be empty or contain a colon")
        self.method = method
        self._data = f"{username}:{password}".encode()

    def data(self) -> bytes:
        return self._data

    def headers(self) -> Mapping[str, str]:
        encoded = base64.b64encode(self._data).decode()
        return {"Authorization": f"Basic {encoded}", "X-Pulsar-Auth-Method-Name": self.method}


class AuthenticationTLS(Authentication):
    """Authentication by a TLS certificate; the role is its common name."""

    method = "tls"

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        """:param certificate_path: the path of a PEM file with the certificate and its chain to the issuer
        :param private_key_path: the path of a PEM file with the key, not encrypted
        """
        self._paths = (certificate_path, private_key_path)

    @property
    def certificate(self) -> tuple[str, str]:
        return self._paths

    def headers(self) -> Mapping[str, str]:
        return {"X-Pulsar-Auth-Method-Name": self.method}


def checked_token(text: str, what: str) -> str:
    """Returns a token, without surrounding white space, after checking that it can be sent.

    :param what: description of the token's source, for errors
    :raises NoCredentials: the token is empty, too long, or has invalid characters
    """
    token = text.strip()
    if not token:
        raise NoCredentials(f"{what} is empty")
    # A line break would end the header of a request, and the error for it would contain the token.
    if len(token) > MAX_TOKEN_BYTES or not all("!" <= character <= "~" for character in token):
        raise NoCredentials(f"{what} is not a token: it is too long, or has blanks or control characters")
    return token


def read_text(path: str) -> str:
    """Returns the content of a text file.

    :raises NoCredentials: the file cannot be read, or is not text of at most 1 MiB
    """
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
    """Returns the path of a ``file:`` URL; any other string is a path itself."""
    if not text.startswith("file:"):
        return text
    rest = text.removeprefix("file:")
    return unquote_to_bytes(rest[2:] if rest.startswith("//") else rest).decode("utf-8", "surrogateescape")
