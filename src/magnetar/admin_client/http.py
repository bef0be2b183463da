"""One request to the admin interface, with nothing but the standard library."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from magnetar.admin_client.errors import AdminError, CannotConnect, refusal

TIMEOUT_SECONDS = 60.0
_REDIRECTS = (302, 307, 308)
_MAX_REDIRECTS = 5


class AdminHttp:
    """Asks one broker, and whom it sends us to."""

    def __init__(self, admin_url: str, *, token: str | None = None) -> None:
        """:param token: sent as a bearer token

        :raises AdminError: it is no HTTP address
        """
        self._url = _checked(admin_url)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(
        self, method: str, path: str, query: dict[str, str] | None = None, body: str | None = None
    ) -> Any:
        """The answer: parsed where it is JSON, text where not, None where empty.

        :raises AdminError: no connection, or the broker refused; the text is its reason
        """
        url = self._url + path + (f"?{urlencode(query)}" if query else "")
        for _ in range(_MAX_REDIRECTS):
            status, location, text = _exchange(method, url, body, self._headers)
            if status not in _REDIRECTS:
                return _answer(status, text)
            url = _checked(location)
        raise AdminError(f"too many redirects, the last to {url}")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AdminError(f"{url!r} is not an address like http://localhost:8080")
    return url.rstrip("/")


def _exchange(method: str, url: str, body: str | None, headers: dict[str, str]) -> tuple[int, str, str]:
    """Status, place to go to, body."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        return response.status, response.headers.get("Location", ""), response.read().decode()
    except (OSError, HTTPException, UnicodeDecodeError) as error:
        raise CannotConnect(f"cannot ask {parts.scheme}://{parts.netloc}: {error}") from error
    finally:
        connection.close()


def _answer(status: int, text: str) -> Any:
    try:
        value = json.loads(text) if text else None
    except ValueError:
        value = text
    if status < 400:
        return value
    reason = value.get("reason") if isinstance(value, dict) else None
    raise refusal(status, str(reason or ""))
