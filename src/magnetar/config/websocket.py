"""The settings of a WebSocket server without a broker, typed; reads them from Pulsar's ``websocket.conf``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from magnetar.config.reading import ConfigurationError, read_settings, typed
from magnetar.config.table import websocket_settings_table
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketProcessSettings:
    """The honoured settings, with Pulsar's names in snake case as attributes; for units and ranges see
    docs/settings-websocket.md.
    """

    # Written by tools/generate_settings.py.
    cluster_name: str
    broker_service_url: str
    broker_service_url_tls: str
    status_file_path: str
    global_zookeeper_servers: str
    configuration_store_servers: str
    configuration_metadata_store_url: str
    metadata_store_session_timeout_millis: int
    zoo_keeper_session_timeout_millis: int
    web_service_port: int | None
    web_service_port_tls: int | None
    bind_address: str
    web_socket_max_text_frame_size: int
    authentication_enabled: bool
    authentication_providers: tuple[str, ...]
    authorization_enabled: bool
    authorization_provider: str
    super_user_roles: tuple[str, ...]
    authorization_allow_wildcards_matching: bool
    broker_client_authentication_plugin: str
    broker_client_authentication_parameters: str = field(repr=False)
    broker_client_trust_certs_file_path: str
    tls_hostname_verification_enabled: bool
    max_http_server_connections: int
    web_socket_connections_per_broker: int
    web_socket_session_idle_timeout_millis: int
    web_socket_ping_duration_seconds: int
    anonymous_user_role: str
    broker_client_tls_enabled: bool
    tls_certificate_file_path: str
    tls_key_file_path: str
    tls_trust_certs_file_path: str
    tls_allow_insecure_connection: bool
    tls_require_trusted_client_cert_on_connect: bool
    tls_cert_refresh_check_duration_sec: int
    tls_enabled_with_key_store: bool
    tls_key_store_type: str
    tls_key_store: str
    tls_key_store_password: str = field(repr=False)
    tls_trust_store_type: str
    tls_trust_store: str
    tls_trust_store_password: str = field(repr=False)
    web_service_tls_protocols: tuple[str, ...]
    web_service_tls_ciphers: tuple[str, ...]
    magnetar_http_allowed_origins: tuple[str, ...]
    magnetar_http_allowed_hosts: tuple[str, ...]
    magnetar_zoo_keeper_config_path: str
    magnetar_zoo_keeper_password: str = field(repr=False)
    # End of what it writes.

    @property
    def configuration_store(self) -> str:
        """The address of the configuration store, which clusters share; empty: the store is not read."""
        return (
            self.configuration_metadata_store_url
            or self.configuration_store_servers
            or self.global_zookeeper_servers
        )

    @property
    def session_timeout_ms(self) -> int:
        """The requested timeout of the ZooKeeper session, in milliseconds."""
        older = self.zoo_keeper_session_timeout_millis
        return older if older > 0 else self.metadata_store_session_timeout_millis

    # Settings of brokers and proxies that this process does not have

    @property
    def authenticate_original_auth_data(self) -> bool:
        """Always False: no client acts on behalf of others."""
        return False

    @property
    def proxy_roles(self) -> tuple[str, ...]:
        """Always empty: no client acts on behalf of others."""
        return ()

    @property
    def magnetar_replication_roles(self) -> tuple[str, ...]:
        """Always empty: clusters do not replicate through WebSockets."""
        return ()

    @property
    def tls_protocols(self) -> tuple[str, ...]:
        """Always empty: the process has no binary listener."""
        return ()

    @property
    def tls_ciphers(self) -> tuple[str, ...]:
        """Always empty: the process has no binary listener."""
        return ()

    @property
    def broker_client_certificate_file_path(self) -> str:
        """Always empty: the process authenticates at brokers with its plug-in, not with this file."""
        return ""

    @property
    def broker_client_key_file_path(self) -> str:
        """Always empty: the process authenticates at brokers with its plug-in, not with this file."""
        return ""


@dataclass(frozen=True, slots=True)
class LoadedWebSockets:
    """The result of reading a WebSocket server's configuration."""

    settings: WebSocketProcessSettings
    warnings: tuple[str, ...]
    """Warnings for the log, one sentence each."""
    given: Mapping[str, str] = field(repr=False)
    """The settings in the file and on the command line, by name; secrets are not masked."""


def load_websockets(
    path: str | Path | None, accept: Iterable[str] = (), overrides: Mapping[str, str] | None = None
) -> LoadedWebSockets:
    """Reads a ``websocket.conf``; if ``path`` is None, all settings have their defaults.

    :param accept: unsupported keys that the file may set nevertheless
    :param overrides: settings from the command line, which take precedence over the file
    :raises ConfigurationError: the file cannot be read, or a setting cannot be used
    """
    read = read_settings(path, websocket_settings_table(), accept, overrides)
    if read.problems:
        raise ConfigurationError(read.problems)
    settings = typed(WebSocketProcessSettings, read.values)
    return LoadedWebSockets(settings, tuple(read.warnings), read.everything)
