"""Checks which web pages may change something.

A browser lets any page send requests to any address that its user can reach, including a broker on the same
machine, and sends the page's origin in ``Origin``. Tools send no such header.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from magnetar.http.engine.message import Request, asks_for_websocket

CHANGING_METHODS = frozenset({"POST", "PUT", "DELETE", "PATCH"})
ANY = "*"
_PORTS = {"http": 80, "https": 443}


class Origins:
    """Accepted origins: those of the broker's own addresses, and those of the settings."""

    def __init__(self, own_hosts: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        """:param own_hosts: names and addresses of this broker besides those of the loopback interface

        :param allowed: ``scheme://host[:port]``, or ``*`` for all
        :raises ValueError: an item of ``allowed`` has another form
        """
        self._own = frozenset(host.strip("[]").lower() for host in own_hosts if host)
        given = tuple(allowed)
        self._any = ANY in given
        self._allowed = frozenset(_required(text) for text in given if text != ANY)

    def refusal(self, request: Request, port: int) -> str | None:
        """Returns why a request is refused; None: it is accepted.

        :param port: the port of this broker
        """
        origin = request.headers.get("origin")
        if origin is None or self._any or not _may_change_something(request):
            return None
        parsed = _parsed(origin)
        if parsed is not None and (parsed in self._allowed or self._is_own(parsed, request, port)):
            return None
        return (
            f"Pages of {origin[:200]!r} may not change anything here: it is neither an address of this "
            "broker nor listed in magnetarHttpAllowedOrigins"
        )

    def _is_own(self, origin: tuple[str, str, int], request: Request, port: int) -> bool:
        scheme, host, origin_port = origin
        own_scheme = "https" if request.secure else "http"
        if scheme != own_scheme:
            return False
        # The owner of a page can resolve its name to this address at any time, so a match with the requested
        # host proves nothing.
        if not (_is_loopback(host) or host in self._own or host == request.local_host.lower()):
            return False
        # Behind a mapped port the broker knows its external port only from the request.
        return origin_port == port or _parsed(f"{own_scheme}://{request.headers.get('host', '')}") == origin


def _may_change_something(request: Request) -> bool:
    if request.method in CHANGING_METHODS:
        return True
    # Browsers let any page open a WebSocket to any host. A page with credentials got them from their owner.
    has_credentials = "authorization" in request.headers or bool(request.query.get("token"))
    return asks_for_websocket(request) and not has_credentials


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _parsed(text: str) -> tuple[str, str, int] | None:
    """Returns scheme, host and port; None if the text is not an origin, such as ``null``."""
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        return None
    if not host or scheme not in _PORTS or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return scheme, host, _PORTS[scheme] if port is None else port


def _required(text: str) -> tuple[str, str, int]:
    parsed = _parsed(text)
    if parsed is None:
        raise ValueError(f"magnetarHttpAllowedOrigins: {text!r} must be scheme://host[:port] or *")
    return parsed
