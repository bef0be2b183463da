"""Checks where a request comes from: the host name that it was sent to, the web page that sent it, and its
credentials.

A browser lets any page send requests to any address that its user can reach, including a broker on the same
machine, and sends the page's origin in the header ``Origin``. Clients other than browsers send no such
header.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from magnetar.http.engine.message import Request, asks_for_websocket
from magnetar.security.authentication import Claim, Credentials

CHANGING_METHODS = frozenset({"POST", "PUT", "DELETE", "PATCH"})
ANY = "*"
_PORTS = {"http": 80, "https": 443}
_SUBDOMAINS = "*."
_NAME = re.compile(r"[a-z0-9_]([-a-z0-9_.]*[a-z0-9_])?")
_PRIVATE = (".localhost", ".internal", ".home.arpa", ".cluster.local", ".svc")
"""Domains outside public DNS (RFC 6761, RFC 8375, ICANN's ``internal``), and the domains of Kubernetes."""
_METHOD = "x-pulsar-auth-method-name"
_ORIGINAL = "x-original-principal"


class Origins:
    """Checks the origin of web pages: accepts the broker's own addresses and the origins in the settings."""

    def __init__(self, own_hosts: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        """:param own_hosts: names and addresses of this broker, in addition to loopback addresses

        :param allowed: accepted origins, ``scheme://host[:port]``, or ``*`` for all
        :raises ValueError: an item of ``allowed`` has none of these forms
        """
        self._own = frozenset(host.strip("[]").lower() for host in own_hosts if host)
        given = tuple(allowed)
        self._any = ANY in given
        self._allowed = frozenset(_required(text) for text in given if text != ANY)

    def refusal(self, request: Request, port: int) -> str | None:
        """Returns the reason for refusing a request; None: the request is accepted.

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
    """Parses an origin; returns scheme, host and port, or None if the text is no origin, such as ``null``."""
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
        raise ValueError(
            f"magnetarHttpAllowedOrigins: {text!r} must have the form scheme://host[:port], or be *"
        )
    return parsed


class Hosts:
    """Checks the host name of plain HTTP requests.

    A page's own host name can resolve to this server's address (DNS rebinding). The browser then treats the
    answers as the page's own, and sends no ``Origin`` with reads. The ``Host`` header reveals this, because
    it contains a name of public DNS. The accepted hosts are addresses, names without a dot, and names in
    private domains, which do not exist in public DNS.

    This check is not needed with TLS, because the certificate does not match the page's name, or if clients
    authenticate, because the page has no credentials.

    The server's own names and the names in the settings are accepted, too.
    """

    def __init__(self, own: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        """:param own: names and addresses of this server

        :param allowed: further accepted names; ``*.name`` stands for all names below a name, ``*`` for all
            names
        :raises ValueError: an item of ``allowed`` has none of these forms
        """
        given = [text.strip().lower() for text in allowed]
        for text in given:
            if text != ANY and not _NAME.fullmatch(text.removeprefix(_SUBDOMAINS)):
                raise ValueError(f"magnetarHttpAllowedHosts: {text!r} must be a host name, *.name or *")
        self._any = ANY in given
        self._names = frozenset(host.strip("[]").rstrip(".").lower() for host in own if host) | set(given)
        self._below = tuple(text[1:] for text in given if text.startswith(_SUBDOMAINS))

    def refusal(self, request: Request) -> str | None:
        """Returns the reason for refusing a request; None: the request is accepted."""
        if self._any or request.secure:
            return None
        given = request.headers.get("host", "")
        if self._is_known(_host_of(given)):
            return None
        return (
            f"Host {given[:200]!r} is not a name of this server, so the request may come from a foreign "
            "page. If it is a name of this server, add it to magnetarHttpAllowedHosts"
        )

    def _is_known(self, host: str) -> bool:
        if "." not in host and ":" not in host:
            return True
        if host in self._names or host.endswith(_PRIVATE) or host.endswith(self._below):
            return True
        try:
            ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return True


def _host_of(header: str) -> str:
    """Returns the name or address of a ``Host`` header, without its port."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name, _colon, port = text.rpartition(":")
    return (name if port.isdigit() or (name and not port) else text).rstrip(".")


def claim_of(request: Request) -> Claim:
    """Returns all credentials of a request; the broker uses the first that are valid. The headers are
    Pulsar's: ``Authorization``, ``X-Pulsar-Auth-Method-Name`` with the method, and ``X-Original-Principal``
    with the role on whose behalf a proxy acts.
    """
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
