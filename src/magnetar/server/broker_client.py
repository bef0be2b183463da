"""How a broker connects to other brokers: with the TLS and the credentials of its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.ownership.peers import PeerAnswer
from magnetar.broker.replication.clusters import Way
from magnetar.client.client import Client
from magnetar.client.exceptions import PulsarException
from magnetar.config.settings import Settings, SettingsContradict
from magnetar.errors import ServiceNotReady
from magnetar.io.interfaces import ClientIo, Io
from magnetar.io.real import real_client_io
from magnetar.io.real.tls_network import TlsClientNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles, TlsRefused
from magnetar.security.client_authentication.authentication import Authentication, NoCredentials
from magnetar.security.client_authentication.plugins import authentication_of
from magnetar.server.peer_admin import Headers, HttpPeerAdmin
from magnetar.server.process_settings import OwnClientSettings


class TlsChecks(NamedTuple):
    """Which properties of a broker's certificate are checked."""

    issuer: bool = True
    name: bool = True


_CHECKED = TlsChecks()


def peer_admin(io: Io, loop: asyncio.AbstractEventLoop, settings: Settings) -> HttpPeerAdmin:
    """:raises SettingsContradict: files cannot be used, or the plug-in does not exist"""
    authentication = _authentication(settings)
    secured = None
    if settings.broker_client_tls_enabled:
        context = ClientContext(ClientTls(_files(settings, authentication)))
        try:
            context()
        except TlsRefused as error:
            raise SettingsContradict(f"brokerClientTlsEnabled: {error}") from error
        secured = TlsClientNetwork(loop, context)

    return HttpPeerAdmin(io.loop, io.network, secured, _auth_data_source(loop, authentication))


def _auth_data_source(loop: asyncio.AbstractEventLoop, authentication: Authentication | None) -> Headers:
    """Returns a function that returns the headers with the credentials."""

    async def auth_headers() -> Mapping[str, str]:
        if authentication is None:
            return {}
        if not authentication.blocks:
            return authentication.headers()
        return await loop.run_in_executor(None, authentication.headers)

    return auth_headers


def client_io(io: Io, loop: asyncio.AbstractEventLoop) -> ClientIo:
    """Returns the interfaces of a client inside a broker: the broker's own where it has them.

    :param loop: the loop of ``io``
    """
    return replace(real_client_io(loop), clock=io.clock, randomness=io.randomness, network=io.network)


def own_client(
    io: ClientIo,
    settings: OwnClientSettings,
    at: Addresses,
    tls: TlsChecks = _CHECKED,
    connections: int = 1,
) -> Client:
    """Returns a client that uses the credentials of this process.

    :param at: a broker's addresses
    :param tls: the checks of brokers' certificates
    :param connections: number of connections to each broker
    """
    authentication = _authentication(settings)
    url = at.binary_tls if settings.broker_client_tls_enabled else at.binary
    if not url:
        kind = "with" if settings.broker_client_tls_enabled else "without"
        raise ServiceNotReady(f"brokerClientTlsEnabled: the broker has no binary address {kind} TLS")
    return Client(
        url,
        io=io,
        connections_per_broker=connections,
        authentication=authentication,
        tls_files=_files(settings, authentication) if settings.broker_client_tls_enabled else None,
        tls_allow_insecure_connection=not tls.issuer,
        tls_validate_hostname=tls.name,
    )


def way_to(
    io: Io, loop: asyncio.AbstractEventLoop, settings: Settings, name: str, record: Mapping[str, Any]
) -> Way:
    """Returns how to reach another cluster: from the cluster's record, else the settings (``brokerClient…``).

    :param record: Pulsar's ``ClusterData``
    :raises ServiceNotReady: the record does not say how to reach the cluster, or in a form that is not
        supported; the text names the field
    """
    tls = bool(record.get("brokerClientTlsEnabled")) or settings.broker_client_tls_enabled
    field = "brokerServiceUrlTls" if tls else "brokerServiceUrl"
    url = record.get(field) or record.get("serviceUrlTls" if tls else "serviceUrl") or ""
    if not url.startswith("pulsar"):
        raise ServiceNotReady(f"the record of cluster {name} has no {field}")
    if record.get("proxyServiceUrl"):
        raise ServiceNotReady(
            f"the record of cluster {name} has a proxyServiceUrl: proxies are not supported"
        )
    if record.get("brokerClientTlsEnabledWithKeyStore"):
        raise ServiceNotReady(
            f"the record of cluster {name} has brokerClientTlsEnabledWithKeyStore: use PEM files instead"
        )
    try:
        authentication = (
            authentication_of(record["authenticationPlugin"], record["authenticationParameters"])
            if record.get("authenticationPlugin") and record.get("authenticationParameters")
            else _authentication(settings)
        )
        files = _files(settings, authentication)
        if record.get("brokerClientTlsEnabled"):
            files = TlsFiles(
                certificate=record.get("brokerClientCertificateFilePath") or "",
                key=record.get("brokerClientKeyFilePath") or "",
                trust=record.get("brokerClientTrustCertsFilePath") or "",
            ).showing(authentication.certificate if authentication is not None else None)
        client = Client(
            url,
            io=client_io(io, loop),
            connections_per_broker=settings.replication_connections_per_broker,
            listener_name=record.get("listenerName") or None,
            authentication=authentication,
            tls_files=files if tls else None,
            tls_allow_insecure_connection=bool(record.get("tlsAllowInsecureConnection")),
        )
        secured = _secured(loop, files, authentication, record) if tls else None
    except (NoCredentials, SettingsContradict, PulsarException) as error:
        raise ServiceNotReady(f"the record of cluster {name} cannot be used: {error}") from error
    admin = HttpPeerAdmin(io.loop, io.network, secured, _auth_data_source(loop, authentication))
    http_url = record.get("serviceUrlTls" if tls else "serviceUrl") or ""

    async def ask(method: str, path: str, query: Mapping[str, str], body: bytes) -> PeerAnswer:
        if not http_url.startswith("http"):
            raise ServiceNotReady(f"the record of cluster {name} has no serviceUrl{'Tls' if tls else ''}")
        return await admin.ask(http_url, f"cluster {name}", method, path, query, body)

    return Way(client, ask)


def _secured(
    loop: asyncio.AbstractEventLoop,
    files: TlsFiles,
    authentication: Authentication | None,
    record: Mapping[str, object],
) -> TlsClientNetwork:
    """:raises SettingsContradict: files cannot be used"""
    insecure = bool(record.get("tlsAllowInsecureConnection"))
    context = ClientContext(ClientTls(files, verify=not insecure, verify_host=not insecure))
    try:
        context()
    except TlsRefused as error:
        raise SettingsContradict(f"brokerClientTlsEnabled: {error}") from error
    return TlsClientNetwork(loop, context)


def _authentication(settings: OwnClientSettings) -> Authentication | None:
    try:
        return authentication_of(
            settings.broker_client_authentication_plugin, settings.broker_client_authentication_parameters
        )
    except NoCredentials as error:
        raise SettingsContradict(f"brokerClientAuthenticationPlugin: {error}") from error


def _files(settings: OwnClientSettings, authentication: Authentication | None) -> TlsFiles:
    own = TlsFiles(
        certificate=settings.broker_client_certificate_file_path,
        key=settings.broker_client_key_file_path,
        trust=settings.broker_client_trust_certs_file_path,
    )
    return own.showing(authentication.certificate if authentication is not None else None)
