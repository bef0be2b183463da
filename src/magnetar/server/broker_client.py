"""How a broker goes to other brokers: TLS and the proof of who it is, as the settings say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from magnetar.broker.ownership.contract import Addresses
from magnetar.client.client import Client
from magnetar.config.settings import Settings, SettingsContradict
from magnetar.errors import ServiceNotReady
from magnetar.io.interfaces import Io
from magnetar.io.real import real_client_io
from magnetar.io.real.tls_network import TlsClientNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles, TlsRefused
from magnetar.security.proofs.plugins import authentication_of
from magnetar.security.proofs.proof import Authentication, NoProof
from magnetar.server.door_settings import OwnClientSettings
from magnetar.server.peer_admin import HttpPeerAdmin


class TlsChecks(NamedTuple):
    """What is looked at of a broker's certificate."""

    issuer: bool = True
    name: bool = True


_CHECKED = TlsChecks()


def peer_admin(io: Io, loop: asyncio.AbstractEventLoop, settings: Settings) -> HttpPeerAdmin:
    """:raises SettingsContradict: files cannot be used, or there is no such plug-in"""
    authentication = _authentication(settings)
    secured = None
    if settings.broker_client_tls_enabled:
        context = ClientContext(ClientTls(_files(settings, authentication)))
        try:
            context()
        except TlsRefused as error:
            raise SettingsContradict(f"brokerClientTlsEnabled: {error}") from error
        secured = TlsClientNetwork(loop, context)

    async def prove() -> Mapping[str, str]:
        if authentication is None:
            return {}
        if not authentication.blocks:
            return authentication.headers()
        return await loop.run_in_executor(None, authentication.headers)

    return HttpPeerAdmin(io.loop, io.network, secured, prove)


def own_client(
    loop: asyncio.AbstractEventLoop,
    settings: OwnClientSettings,
    at: Addresses,
    tls: TlsChecks = _CHECKED,
    connections: int = 1,
) -> Client:
    """A client in the process's own name.

    :param at: a broker's addresses
    :param tls: what is expected of brokers' certificates
    :param connections: to each broker
    """
    authentication = _authentication(settings)
    url = at.binary_tls if settings.broker_client_tls_enabled else at.binary
    if not url:
        kind = "with" if settings.broker_client_tls_enabled else "without"
        raise ServiceNotReady(f"brokerClientTlsEnabled: the broker has no binary address {kind} TLS")
    return Client(
        url,
        io=real_client_io(loop),
        connections_per_broker=connections,
        authentication=authentication,
        tls_files=_files(settings, authentication) if settings.broker_client_tls_enabled else None,
        tls_allow_insecure_connection=not tls.issuer,
        tls_validate_hostname=tls.name,
    )


def _authentication(settings: OwnClientSettings) -> Authentication | None:
    try:
        return authentication_of(
            settings.broker_client_authentication_plugin, settings.broker_client_authentication_parameters
        )
    except NoProof as error:
        raise SettingsContradict(f"brokerClientAuthenticationPlugin: {error}") from error


def _files(settings: OwnClientSettings, authentication: Authentication | None) -> TlsFiles:
    own = TlsFiles(
        certificate=settings.broker_client_certificate_file_path,
        key=settings.broker_client_key_file_path,
        trust=settings.broker_client_trust_certs_file_path,
    )
    return own.showing(authentication.certificate if authentication is not None else None)
