"""Checks the host name of plain HTTP requests.

A page can resolve the name that it was loaded from to this server's address (DNS rebinding). Its browser
then takes the answers for the page's own, and sends no ``Origin`` when it reads. The ``Host`` header reveals
this: it is a name in public DNS. Accepted are addresses, names without a dot, and names below domains for
private use: public DNS has none of these, and containers, services and machines nearby use them.

With TLS the certificate does not match such a name, and if clients authenticate, the page has no credentials.
Neither needs this check.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from magnetar.http.engine.message import Request

ANY = "*"
_SUBDOMAINS = "*."
_NAME = re.compile(r"[a-z0-9_]([-a-z0-9_.]*[a-z0-9_])?")
_PRIVATE = (".localhost", ".internal", ".home.arpa", ".cluster.local", ".svc")
"""Domains outside public DNS (RFC 6761, RFC 8375, ICANN's ``internal``), and those of Kubernetes."""


class Hosts:
    """Names of the server itself, names outside public DNS, and those of the settings."""

    def __init__(self, own: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        """:param own: names and addresses of this server

        :param allowed: names; ``*.name`` for all below a name, ``*`` for all
        :raises ValueError: an item of ``allowed`` has another form
        """
        given = [text.strip().lower() for text in allowed]
        for text in given:
            if text != ANY and not _NAME.fullmatch(text.removeprefix(_SUBDOMAINS)):
                raise ValueError(f"magnetarHttpAllowedHosts: {text!r} must be a host name, *.name or *")
        self._any = ANY in given
        self._names = frozenset(host.strip("[]").rstrip(".").lower() for host in own if host) | set(given)
        self._below = tuple(text[1:] for text in given if text.startswith(_SUBDOMAINS))

    def refusal(self, request: Request) -> str | None:
        """Returns why a request is refused; None: it is accepted."""
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
