"""TLS of a client: from its options to a network, and what a failed handshake means."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from magnetar.client.exceptions import ConnectError, InvalidConfiguration, OperationNotSupported, TlsFailed
from magnetar.client.service_url import is_secured
from magnetar.io.interfaces import ClientIo, ConnectingNetwork
from magnetar.io.tls import ClientTls, TlsFiles
from magnetar.security.client_authentication.authentication import Authentication

_MAY_PASS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Names are those of the official client, but for the first, which takes a key store, too."""

    files: TlsFiles
    allow_insecure: bool
    validate_hostname: bool


def network_of(
    io: ClientIo, service_url: str, options: TlsOptions, authentication: Authentication | None
) -> ConnectingNetwork:
    """How to reach brokers: with TLS where the service URL says so.

    :raises InvalidConfiguration: a certificate that nobody would be shown, or without its key
    :raises OperationNotSupported: there is no TLS on this network
    """
    shown = authentication.certificate if authentication is not None else None
    if not is_secured(service_url):
        if shown is not None:
            raise InvalidConfiguration(
                "authentication by a certificate needs TLS; use a pulsar+ssl:// address"
            )
        return io.network
    files = options.files.showing(shown)
    if bool(files.certificate) != bool(files.key):
        raise InvalidConfiguration("a certificate and its key must be given together")
    if io.secured is None:
        raise OperationNotSupported("the network of this client does not support TLS")
    return io.secured(
        ClientTls(files, verify=not options.allow_insecure, verify_host=options.validate_hostname)
    )


def connect_failure(where: str, error: OSError) -> ConnectError:
    """Why ``where`` could not be connected to."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, _MAY_PASS):
        return TlsFailed(f"no TLS with {where}: {_said(error)}")
    return ConnectError(f"cannot connect to {where}: {error}")


def lost_connection(error: Exception | None, *, ready: bool) -> ConnectError:
    """Why a connection has ended.

    :param ready: the broker had answered CONNECT
    """
    if not ready and isinstance(error, ssl.SSLError) and not isinstance(error, _MAY_PASS):
        # With TLS 1.3 a client hears behind its handshake that its certificate will not do.
        return TlsFailed(f"the broker closed the TLS connection: {_said(error)}")
    return ConnectError(f"the connection was lost{f': {error}' if error else ''}")


def _said(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return str(error.reason or error)
