"""TLS of a client: its options, its network, and errors of the handshake."""

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
    """Options with the names of the official client, except for the first, which also accepts a key store."""

    files: TlsFiles
    allow_insecure: bool
    validate_hostname: bool


def network_of(
    io: ClientIo, service_url: str, options: TlsOptions, authentication: Authentication | None
) -> ConnectingNetwork:
    """Returns the network to brokers, with TLS if the service URL requires it.

    :raises InvalidConfiguration: a certificate would not be used, or its key is missing
    :raises OperationNotSupported: this network does not support TLS
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
    """Returns the error of a failed connection attempt."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, _MAY_PASS):
        return TlsFailed(f"no TLS with {where}: {_said(error)}")
    return ConnectError(f"cannot connect to {where}: {error}")


def lost_connection(error: Exception | None, *, ready: bool) -> ConnectError:
    """Returns the error of a lost connection.

    :param ready: the broker had answered CONNECT
    """
    if not ready and isinstance(error, ssl.SSLError) and not isinstance(error, _MAY_PASS):
        # With TLS 1.3 a client learns only after its handshake that its certificate is not accepted.
        return TlsFailed(f"the broker closed the TLS connection: {_said(error)}")
    return ConnectError(f"the connection was lost{f': {error}' if error else ''}")


def _said(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return str(error.reason or error)
