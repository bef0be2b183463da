"""TLS and credentials for ZooKeeper, from the settings."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from magnetar.config.cluster import ClusterSettings
from magnetar.config.proxy import ProxySettings
from magnetar.config.settings import SettingsContradict
from magnetar.config.websocket import WebSocketProcessSettings
from magnetar.config.zookeeper_client import KeyStore, SecureClient, ZooKeeperClientRefused, secure_client
from magnetar.io.interfaces import ConnectingNetwork, Io
from magnetar.io.real.tls_network import TlsClientNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles, TlsRefused, TlsRules
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.security.client_authentication.authentication import NoCredentials, path_of, read_text
from magnetar.server.key_store_password import key_store_password


class ZooKeeperAccess(NamedTuple):
    """Access to one ensemble."""

    session: SessionSettings
    context: ClientContext | None = None
    """The TLS context; None: plain text."""

    def outside(self, io: Io) -> Outside:
        """Returns the surroundings of a session on the running loop."""
        network: ConnectingNetwork = io.network
        if self.context is not None:
            network = TlsClientNetwork(asyncio.get_running_loop(), self.context)
        return Outside(io.loop, io.clock, io.randomness, network)


class MetadataAccess(NamedTuple):
    """Access to the metadata of a cluster."""

    local: ZooKeeperAccess
    configuration: ZooKeeperAccess


def cluster_access(settings: ClusterSettings) -> MetadataAccess:
    """Returns the access. As in Pulsar, the file of the local store also applies to the configuration store,
    unless that has its own.

    :raises SettingsContradict: a file or the user cannot be used
    """
    session = session_settings(settings.session_timeout_ms, settings.magnetar_zoo_keeper_password)
    local = zookeeper_access("metadataStoreConfigPath", settings.metadata_store_config_path, session)
    shared = settings.configuration_store_config_path
    configuration = zookeeper_access("configurationStoreConfigPath", shared, session) if shared else local
    return MetadataAccess(local, configuration)


def alone_access(settings: ProxySettings | WebSocketProcessSettings) -> ZooKeeperAccess:
    """Returns the access of a process without brokers; Pulsar's own uses only Java properties for it.

    :raises SettingsContradict: the file or the user cannot be used
    """
    session = session_settings(settings.session_timeout_ms, settings.magnetar_zoo_keeper_password)
    path = settings.magnetar_zoo_keeper_config_path
    return zookeeper_access("magnetarZooKeeperConfigPath", path, session)


def session_settings(
    timeout_ms: int, password: str, name: str = "magnetarZooKeeperPassword"
) -> SessionSettings:
    """:param password: ``user:password`` of the scheme digest, or a ``file:`` URL of it; empty: no user

    :param name: of the setting, for errors
    :raises SettingsContradict: the value is not a user with a password
    """
    try:
        said = read_text(path_of(password)).strip() if password.startswith("file:") else password
    except NoCredentials as error:
        raise SettingsContradict(f"{name}: {error}") from error
    if said and not all(said.partition(":")):
        raise SettingsContradict(f"{name} must be user:password, or a file:///path with that")
    if password and not said:
        raise SettingsContradict(f"{name}: the file is empty")
    return SessionSettings(timeout_ms, said.encode())


def zookeeper_access(name: str, path: str, session: SessionSettings) -> ZooKeeperAccess:
    """:param name: of the setting, for errors

    :param path: configuration file of ZooKeeper's own client; empty: no file
    :raises SettingsContradict: the file cannot be used
    """
    if not path:
        return ZooKeeperAccess(session)
    try:
        secured = secure_client(path)
        if secured is None:
            return ZooKeeperAccess(session)
        context = ClientContext(_tls(secured))
        context()
    except (ZooKeeperClientRefused, TlsRefused) as error:
        raise SettingsContradict(f"{name}: {error}") from error
    return ZooKeeperAccess(session, context)


def _tls(secured: SecureClient) -> ClientTls:
    own, trusted = secured.own, secured.trusted
    pem = "" if own.pkcs12 else own.location
    files = TlsFiles(
        certificate=pem,
        key=pem,
        trust="" if trusted.pkcs12 else trusted.location,
        key_store=own.location if own.pkcs12 else "",
        key_store_password=_password(own),
        trust_store=trusted.location if trusted.pkcs12 else "",
        trust_store_password=_password(trusted),
    )
    rules = TlsRules(secured.protocols, secured.ciphers)
    return ClientTls(files, verify_host=secured.verify_host, rules=rules)


def _password(store: KeyStore) -> str:
    return key_store_password(store.password_path) or store.password
