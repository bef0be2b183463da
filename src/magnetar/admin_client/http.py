"""One request to the admin interface, with nothing but the standard library."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from magnetar.admin_client.errors import AdminError, CannotConnect, refusal

TIMEOUT_SECONDS = 60.0
_REDIRECTS = (302, 307, 308)
_MAX_REDIRECTS = 5
_WARNING = re.compile(r'299 [^ ]+ "([^"]*)"')
"""What a header of warnings says, each in quotes."""
_ERRORS = 400
"""Statuses from here on are refusals."""


class AdminHttp:
    """Asks one broker, and whom it sends us to."""

    def __init__(
        self, admin_url: str, *, token: str | None = None, warn: Callable[[str], None] | None = None
    ) -> None:
        """:param token: sent as a bearer token

        :param warn: hears what the broker accepted and does not honour

        :raises AdminError: it is no HTTP address
        """
        self._url = _checked(admin_url)
        self._warn = warn
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(
        self, method: str, path: str, query: dict[str, str] | None = None, body: str | None = None
    ) -> Any:
        """The answer: parsed where it is JSON, text where not, None where empty.

        :raises AdminError: no connection, or the broker refused; the text is its reason
        """
        status, _, data = self._exchanged(method, path, query, body)
        try:
            return _answer(status, data.decode())
        except UnicodeDecodeError as error:
            raise AdminError(f"{path} answered with something that is no text") from error

    def fetch(self, path: str, query: dict[str, str] | None = None) -> tuple[Mapping[str, str], bytes]:
        """Headers, by name in lower case, and bytes of what is at a path.

        :raises AdminError: no connection, or the broker refused; the text is its reason
        """
        status, headers, data = self._exchanged("GET", path, query, None)
        if status >= _ERRORS:
            _answer(status, data.decode("utf-8", "replace"))
        return headers, data

    def _exchanged(
        self, method: str, path: str, query: dict[str, str] | None, body: str | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        url = self._url + path + (f"?{urlencode(query)}" if query else "")
        for _ in range(_MAX_REDIRECTS):
            status, headers, data = _exchange(method, url, body, self._headers)
            if self._warn is not None:
                for sentence in _WARNING.findall(headers.get("warning", "")):
                    self._warn(sentence)
            if status not in _REDIRECTS:
                return status, headers, data
            url = _checked(headers.get("location", ""))
        raise AdminError(f"too many redirects, the last to {url}")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AdminError(f"{url!r} is not an address like http://localhost:8080")
    return url.rstrip("/")


def _exchange(
    method: str, url: str, body: str | None, headers: dict[str, str]
) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers by name in lower case, body."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.headers.items()}
        if warnings := response.headers.get_all("Warning"):
            found["warning"] = ", ".join(warnings)
        return response.status, found, response.read()
    except (OSError, HTTPException) as error:
        raise CannotConnect(f"cannot ask {parts.scheme}://{parts.netloc}: {error}") from error
    finally:
        connection.close()


def _answer(status: int, text: str) -> Any:
    try:
        value = json.loads(text) if text else None
    except ValueError:
        value = text
    if status < _ERRORS:
        return value
    reason = value.get("reason") if isinstance(value, dict) else None
    raise refusal(status, str(reason or ""))
