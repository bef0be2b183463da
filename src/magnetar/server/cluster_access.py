"""TLS and credentials of a broker for ZooKeeper and bookies, from the settings of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from magnetar.config.cluster import ClusterSettings
from magnetar.config.jaas import LoginModule, LoginRefused, login_sections
from magnetar.config.proxy import ProxySettings
from magnetar.config.settings import SettingsContradict
from magnetar.config.websocket import WebSocketProcessSettings
from magnetar.config.zookeeper_client import KeyStore, SecureClient, ZooKeeperClientRefused, secure_client
from magnetar.io.interfaces import ConnectingNetwork, Io
from magnetar.io.real.tls_network import TlsClientNetwork, Upgrade, UpgradingNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles, TlsRefused, TlsRules
from magnetar.ledger.bookkeeper import authentication
from magnetar.ledger.bookkeeper.authentication import AuthProvider, digest_auth_provider
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.protocol.digest_md5 import NameAndPassword
from magnetar.security.client_authentication.authentication import NoCredentials, path_of, read_text

_UPGRADE = Upgrade(authentication.QUESTION, authentication.answer_bytes, authentication.refused)
_PLUGIN = "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
_SECTION_NAME = "saslJaasClientSectionName"
_SECTION = "BookKeeper"
_DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


class ZooKeeperAccess(NamedTuple):
    """TLS and session settings for one ZooKeeper ensemble."""

    session: SessionSettings
    context: ClientContext | None = None
    """The TLS context; None: plain text."""

    def outside(self, io: Io) -> Outside:
        """Returns the I/O environment of a ZooKeeper session on the running loop."""
        network: ConnectingNetwork = io.network
        if self.context is not None:
            network = TlsClientNetwork(asyncio.get_running_loop(), self.context)
        return Outside(io.loop, io.clock, io.randomness, network)


class MetadataAccess(NamedTuple):
    """Access to the metadata stores of a cluster."""

    local: ZooKeeperAccess
    configuration: ZooKeeperAccess


def cluster_access(settings: ClusterSettings) -> MetadataAccess:
    """Returns the access to the local metadata store and to the configuration store. As in Pulsar, the
    configuration file for ZooKeeper's client at the local store also applies to the configuration store,
    unless a separate file is set for the configuration store.

    :raises SettingsContradict: a file cannot be used, or the user for ZooKeeper is malformed
    """
    session = session_settings(settings.session_timeout_ms, settings.magnetar_zoo_keeper_password)
    local = zookeeper_access("metadataStoreConfigPath", settings.metadata_store_config_path, session)
    shared = settings.configuration_store_config_path
    configuration = zookeeper_access("configurationStoreConfigPath", shared, session) if shared else local
    return MetadataAccess(local, configuration)


def alone_access(settings: ProxySettings | WebSocketProcessSettings) -> ZooKeeperAccess:
    """Returns the ZooKeeper access of a proxy or WebSocket server, which Pulsar configures only by Java
    properties.

    :raises SettingsContradict: the file cannot be used, or the user for ZooKeeper is malformed
    """
    session = session_settings(settings.session_timeout_ms, settings.magnetar_zoo_keeper_password)
    path = settings.magnetar_zoo_keeper_config_path
    return zookeeper_access("magnetarZooKeeperConfigPath", path, session)


def session_settings(
    timeout_ms: int, password: str, name: str = "magnetarZooKeeperPassword"
) -> SessionSettings:
    """Returns the settings of a session with ZooKeeper.

    :param password: ``user:password`` for digest authentication, or a ``file:`` URL of a file with it; empty:
        no user
    :param name: the name of the setting, for errors
    :raises SettingsContradict: the value is not a user with a password
    """
    try:
        said = read_text(path_of(password)).strip() if password.startswith("file:") else password
    except NoCredentials as error:
        raise SettingsContradict(f"{name}: {error}") from error
    if said and not all(said.partition(":")):
        raise SettingsContradict(
            f"{name} must be user:password, or file:///path of a file that contains user:password"
        )
    if password and not said:
        raise SettingsContradict(f"{name}: the file is empty; it must contain user:password")
    return SessionSettings(timeout_ms, said.encode())


def zookeeper_access(name: str, path: str, session: SessionSettings) -> ZooKeeperAccess:
    """Returns the ZooKeeper access: credentials, TLS and session.

    :param name: the name of the setting, for errors
    :param path: configuration file of ZooKeeper's Java client; empty: no file
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


def bookie_network(loop: asyncio.AbstractEventLoop, settings: ClusterSettings) -> ConnectingNetwork | None:
    """Returns the network for connections to bookies; None: plain text.

    As with Apache's client, any certificate of a trusted issuer is accepted; its host name is not checked.

    :raises SettingsContradict: the files for TLS cannot be used
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
    """Whether ``kind``, the value of the setting ``name``, is PKCS12 rather than PEM.

    :raises SettingsContradict: the value is neither PKCS12 nor PEM
    """
    if kind.upper() in ("PEM", "PKCS12"):
        return kind.upper() == "PKCS12"
    raise SettingsContradict(f"{name}={kind} is not supported; use PEM or PKCS12")


def bookie_auth_provider(settings: ClusterSettings, random: Callable[[int], bytes]) -> AuthProvider | None:
    """Returns the authentication towards bookies; None: no authentication.

    :param random: returns as many random bytes as its argument says
    :raises SettingsContradict: the plug-in is not supported, or the login file cannot be used
    """
    plugin = settings.bookkeeper_client_authentication_plugin
    if not plugin:
        return None
    if plugin != _PLUGIN:
        raise SettingsContradict(
            f"bookkeeperClientAuthenticationPlugin={plugin} is not supported; use {_PLUGIN} (DIGEST-MD5)"
        )
    name = settings.bookkeeper_client_authentication_parameters_name
    if name not in ("", _SECTION_NAME):
        raise SettingsContradict(
            f"bookkeeperClientAuthenticationParametersName={name} is not supported; use {_SECTION_NAME}"
        )
    section = settings.bookkeeper_client_authentication_parameters or _SECTION
    return digest_auth_provider(_credentials(settings.magnetar_jaas_config_path, section), random)


def _credentials(path: str, section: str) -> NameAndPassword:
    if not path:
        raise SettingsContradict(
            "bookkeeperClientAuthenticationPlugin requires magnetarJaasConfigPath, the file that Java gets "
            "as -Djava.security.auth.login.config"
        )
    try:
        sections = login_sections(path)
    except LoginRefused as error:
        raise SettingsContradict(f"magnetarJaasConfigPath: {error}") from error
    modules = sections.get(section, ())
    if not modules:
        raise SettingsContradict(
            f"magnetarJaasConfigPath: {path} has no section {section} with a login module"
        )
    module = modules[0]
    if module.name != _DIGEST:
        raise SettingsContradict(f"magnetarJaasConfigPath: {path}, {section}: {_not_here(module)}")
    missing = [option for option in ("username", "password") if not module.options.get(option)]
    if missing:
        raise SettingsContradict(
            f"magnetarJaasConfigPath: {path}, {section}: {module.name} lacks {' and '.join(missing)}"
        )
    return NameAndPassword(module.options["username"], module.options["password"])


def _not_here(module: LoginModule) -> str:
    if module.name == _KERBEROS:
        return f"Kerberos (GSSAPI) is not supported; use a password ({_DIGEST})"
    return f"unknown login module {module.name}; use {_DIGEST}"


def key_store_password(path: str) -> str:
    """Returns the password in a file, without surrounding white space; empty if ``path`` is empty.

    :raises SettingsContradict: the file cannot be read
    """
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsContradict(
            f"{path}, the file with the password of a key store, cannot be read: {error}"
        ) from error
