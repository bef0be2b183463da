"""How a client proves who it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from magnetar.security.principal import ANONYMOUS, Principal

PeerCertificate = Mapping[str, object]
"""What TLS has verified of a client's certificate, as Python's :meth:`ssl.SSLSocket.getpeercert` tells it."""


class Authenticator(Protocol):
    """Asked once for each connection of the binary door; the client waits for its answer."""

    async def authenticate(
        self, method: str, data: bytes, peer: str, tls: PeerCertificate | None
    ) -> Principal:
        """Who the client is. May take its time: as long as the broker bears a silent client, at most; it is
        cancelled when the client goes.

        :param method: the name of what the client proves itself by; empty: by nothing
        :param data: the proof
        :param peer: ``host:port`` of the client
        :param tls: None: the connection has no TLS, or the client no certificate
        :raises AuthenticationFailure: it did not prove who it is
        """
        ...


class NobodyIsAsked:
    """Takes everybody as they come, whatever they say of themselves."""

    async def authenticate(
        self, method: str, data: bytes, peer: str, tls: PeerCertificate | None
    ) -> Principal:
        """Anonymous, always."""
        return ANONYMOUS
