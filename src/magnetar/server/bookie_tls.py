"""TLS towards bookies, from the settings of a cluster."""

from __future__ import annotations

import asyncio

from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import SettingsContradict
from magnetar.io.interfaces import ConnectingNetwork
from magnetar.io.real.tls_network import Upgrade, UpgradingNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles, TlsRefused
from magnetar.ledger.bookkeeper import start_tls
from magnetar.server.key_store_password import key_store_password

_UPGRADE = Upgrade(start_tls.QUESTION, start_tls.answer_bytes, start_tls.refused)


def bookie_network(loop: asyncio.AbstractEventLoop, settings: ClusterSettings) -> ConnectingNetwork | None:
    """Returns the network for connections to bookies; None: plain text.

    As with Apache's client, any certificate of a trusted issuer is accepted, whatever its name.

    :raises SettingsContradict: the files cannot be used
    """
    if not settings.bookkeeper_tls_client_authentication:
        return None
    context = ClientContext(ClientTls(_files(settings), verify_host=False))
    try:
        context()
    except TlsRefused as error:
        raise SettingsContradict(f"bookkeeperTLSClientAuthentication: {error}") from error
    return UpgradingNetwork(loop, context, _UPGRADE)


def _files(settings: ClusterSettings) -> TlsFiles:
    own, trusted = settings.bookkeeper_tls_key_file_path, settings.bookkeeper_tls_trust_certs_file_path
    own_store = _is_store("bookkeeperTLSKeyFileType", settings.bookkeeper_tls_key_file_type)
    trust_store = _is_store("bookkeeperTLSTrustCertTypes", settings.bookkeeper_tls_trust_cert_types)
    if not own or not trusted:
        raise SettingsContradict(
            "bookkeeperTLSClientAuthentication requires bookkeeperTLSKeyFilePath and "
            "bookkeeperTLSTrustCertsFilePath"
        )
    return TlsFiles(
        certificate="" if own_store else settings.bookkeeper_tls_certificate_file_path,
        key="" if own_store else own,
        trust="" if trust_store else trusted,
        key_store=own if own_store else "",
        key_store_password=key_store_password(settings.bookkeeper_tls_key_store_password_path),
        trust_store=trusted if trust_store else "",
        trust_store_password=key_store_password(settings.bookkeeper_tls_trust_store_password_path),
    )


def _is_store(name: str, kind: str) -> bool:
    """Whether the file is PKCS12 rather than PEM."""
    if kind.upper() in ("PEM", "PKCS12"):
        return kind.upper() == "PKCS12"
    raise SettingsContradict(f"{name}={kind} is not supported; use PEM or PKCS12")
