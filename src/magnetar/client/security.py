"""How a client reaches brokers: service URLs, TLS and credentials."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from magnetar.client.exceptions import (
    ConnectError,
    ErrorGettingAuthenticationData,
    InvalidConfiguration,
    InvalidUrl,
    OperationNotSupported,
    TlsFailed,
)
from magnetar.io.interfaces import ClientIo, ConnectingNetwork
from magnetar.io.tls import ClientTls, TlsFiles
from magnetar.security.client_authentication.authentication import Authentication, NoCredentials

if TYPE_CHECKING:
    from magnetar.client.failover import ClusterAddress

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
_WEB_PORTS = {"http": 80, "https": 443}
_MAY_PASS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
AuthData = tuple[str, bytes]
"""The name of an authentication method, and its data."""
NO_AUTH_DATA: AuthData = ("", b"")


@dataclass(frozen=True, slots=True)
class Address:
    """One host of a service URL."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class BrokerUrls(NamedTuple):
    """The addresses of a topic's broker; an empty string means that the broker has no address of this
    kind.
    """

    plain: str
    tls: str


FindBroker = Callable[[str], Awaitable[BrokerUrls]]
"""Looks up the broker of a topic. Raises PulsarException if no web service answers, or if the web service
refuses.
"""


def parse_service_url(url: str) -> tuple[Address, ...]:
    """Returns the broker addresses in a service URL, at least one.

    :raises InvalidUrl: the string is neither a ``pulsar://`` nor a ``pulsar+ssl://`` URL
    """
    scheme, separator, rest = url.partition("://")
    port = _PORTS.get(scheme)
    if port is None or not separator:
        raise InvalidUrl(f"{url!r} is not a service URL; use a form like pulsar://localhost:6650")
    return tuple(_address(part, url, port) for part in rest.rstrip("/").split(","))


def is_web(url: str) -> bool:
    """Whether a service URL begins with ``http://`` or ``https://``, so that web services look up brokers.

    :raises InvalidUrl: the HTTP URL is malformed
    """
    scheme, _, rest = url.partition("://")
    port = _WEB_PORTS.get(scheme)
    if port is None:
        return False
    for part in rest.rstrip("/").split(","):
        _address(part, url, port)
    return True


def parse_proxy_url(url: str) -> Address:
    """Returns the address in the URL of a proxy.

    :raises InvalidUrl: the string is not a URL like ``pulsar+ssl://host:port`` with one host
    """
    found = parse_service_url(url)
    if not is_secured(url) or len(found) > 1:
        raise InvalidUrl(f"proxy_service_url must be like pulsar+ssl://proxy:6651, not {url!r}")
    return found[0]


def is_secured(url: str) -> bool:
    """Whether a service URL requires TLS."""
    return url.startswith(("pulsar+ssl://", "https://"))


def _address(text: str, url: str, default_port: int) -> Address:
    host, port = text, ""
    if text.startswith("["):
        host, bracket, after = text[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise InvalidUrl(f"{url!r}: {text!r} must have the form host:port")
        port = after[1:]
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if not host or "/" in text or not (port == "" or (port.isascii() and port.isdigit())):
        raise InvalidUrl(f"{url!r}: {text!r} must have the form host:port")
    number = int(port) if port else default_port
    if not 0 < number < 65536:
        raise InvalidUrl(f"{url!r}: {number} is not a port; use a number from 1 to 65535")
    return Address(host, number)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The TLS options of a client; ``files`` are PEM files or key stores."""

    files: TlsFiles
    allow_insecure: bool
    validate_hostname: bool
    proxy: Address | None = None
    """A proxy for all connections, which finds the broker by SNI; None: no proxy."""

    def of(self, shown: tuple[str, str] | None) -> ClientTls:
        """Returns the TLS settings for connections.

        :param shown: paths of a client certificate and its private key that are used as credentials; None:
            credentials of another kind, or no credentials
        """
        return ClientTls(
            self.files.showing(shown),
            verify=not self.allow_insecure,
            verify_host=self.validate_hostname,
            proxy=(self.proxy.host, self.proxy.port) if self.proxy is not None else None,
        )


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """What a client needs to connect to one cluster: addresses, network and credentials."""

    addresses: tuple[Address, ...]
    """The broker addresses of the service URL; empty: web services look up brokers."""
    find: FindBroker | None
    network: ConnectingNetwork
    get_auth_data: Callable[[], Awaitable[AuthData]] | None


def access_to(
    io: ClientIo, service: ClusterAddress, tls: TlsOptions, *, timeout: float, listener_name: str
) -> ServiceAccess:
    """Returns what a client needs to connect to a cluster.

    :param timeout: maximum time for each answer of a web service, in seconds
    :param listener_name: the advertised listener to request; empty: the default listener
    :raises InvalidUrl: the service URL is malformed
    :raises InvalidConfiguration: only one of client certificate and private key is set; or a certificate or
        the proxy requires TLS, but the service URL is without TLS
    :raises OperationNotSupported: the network of ``io`` does not support TLS
    """
    url, credentials = service.service_url, service.authentication
    addresses: tuple[Address, ...] = ()
    web = is_web(url)
    if not web:
        addresses = parse_service_url(url)
    if service.tls_trust_certs_file_path:
        tls = replace(tls, files=replace(tls.files, trust=service.tls_trust_certs_file_path))
    network = network_of(io, url, tls, credentials)
    find: FindBroker | None = None
    if web:
        # Imported late: most clients need no HTTP.
        from magnetar.client.web_lookup import finder

        settings = tls.of(credentials.certificate if credentials is not None else None)
        find = finder(io, url, credentials, settings, timeout=timeout, listener_name=listener_name)
    return ServiceAccess(
        addresses,
        find,
        network,
        auth_data_source(io, credentials) if credentials is not None else None,
    )


def network_of(
    io: ClientIo, service_url: str, options: TlsOptions, authentication: Authentication | None
) -> ConnectingNetwork:
    """Returns the network for connections to brokers, with TLS if the service URL requires TLS.

    :raises InvalidConfiguration: only one of client certificate and private key is set; or a certificate or
        the proxy requires TLS, but the service URL is without TLS
    :raises OperationNotSupported: the network of ``io`` does not support TLS
    """
    shown = authentication.certificate if authentication is not None else None
    if not is_secured(service_url):
        if options.proxy is not None:
            raise InvalidConfiguration(
                f"proxy_service_url requires TLS: use a pulsar+ssl:// address instead of {service_url}"
            )
        if shown is not None:
            raise InvalidConfiguration(
                "authentication by a certificate requires TLS; use a pulsar+ssl:// URL"
            )
        return io.network
    files = options.files.showing(shown)
    if bool(files.certificate) != bool(files.key):
        raise InvalidConfiguration("a client certificate and its private key must be set together")
    if io.secured is None:
        raise OperationNotSupported(
            "the network interface that this client was given (ClientIo) does not support TLS"
        )
    return io.secured(options.of(shown))


def connect_failure(where: str, error: OSError) -> ConnectError:
    """Converts the error of a failed connection attempt."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, _MAY_PASS):
        return TlsFailed(f"no TLS with {where}: {_said(error)}")
    return ConnectError(f"cannot connect to {where}: {error}")


def lost_connection(error: Exception | None, *, ready: bool) -> ConnectError:
    """Returns the client's error for a lost connection.

    :param error: the error of the transport; None: the broker closed the connection
    :param ready: whether the broker had answered CONNECT
    """
    if not ready and isinstance(error, ssl.SSLError) and not isinstance(error, _MAY_PASS):
        # With TLS 1.3 a client learns only after its handshake that its certificate is not accepted.
        return TlsFailed(f"the broker closed the TLS connection: {_said(error)}")
    return ConnectError(f"the connection was lost{f': {error}' if error else ''}")


def _said(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return str(error.reason or error)


def auth_data_source(io: ClientIo, authentication: Authentication) -> Callable[[], Awaitable[AuthData]]:
    """Returns a function that provides current credentials whenever it is called.

    The returned function raises ErrorGettingAuthenticationData if no credentials are available.
    """

    async def get_auth_data() -> AuthData:
        try:
            if authentication.blocks:
                return authentication.method, await io.apart(authentication.data)
            return authentication.method, authentication.data()
        except NoCredentials as error:
            raise ErrorGettingAuthenticationData(str(error)) from None

    return get_auth_data
