"""The settings of a proxy, typed; reads them from Pulsar's ``proxy.conf``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from magnetar.config.reading import ConfigurationError, read_settings, typed
from magnetar.config.table import proxy_settings_table
from magnetar.lazy_dataclass import dataclass

OF_PROXIES = re.compile(
    r"httpReverseProxy\.([^.]+)\.(path|proxyTo)|brokerClient_.*"
    # From a discovery.conf: a TLS port implies TLS, and 127.0.0.1 is among the bind addresses anyway.
    r"|bindOnLocalhost|tlsEnabled|authorizationAllowWildcardsMatching"
)
"""Matches honoured names that are not in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """The honoured settings, with Pulsar's names in snake case as attributes; for units and ranges see
    docs/settings-proxy.md.
    """

    # Written by tools/generate_settings.py.
    zookeeper_servers: str
    metadata_store_url: str
    metadata_store_session_timeout_millis: int
    max_message_size: int
    zookeeper_session_timeout_ms: int
    broker_service_url: str
    broker_service_urltls: str
    broker_web_service_url: str
    broker_web_service_urltls: str
    function_worker_web_service_url: str
    function_worker_web_service_urltls: str
    check_active_brokers: bool
    broker_proxy_connect_timeout_ms: int
    broker_proxy_read_timeout_ms: int
    broker_proxy_allowed_host_names: str
    broker_proxy_allowed_ip_addresses: str
    broker_proxy_allowed_target_ports: str
    bind_address: str
    advertised_address: str
    keep_alive_interval_seconds: int
    ha_proxy_protocol_enabled: bool
    service_port: int | None
    service_port_tls: int | None
    web_service_port: int | None
    web_service_port_tls: int | None
    web_service_tls_protocols: tuple[str, ...]
    web_service_tls_ciphers: tuple[str, ...]
    status_file_path: str
    super_user_roles: tuple[str, ...]
    authentication_enabled: bool
    authentication_providers: tuple[str, ...]
    forward_authorization_credentials: bool
    authentication_refresh_check_seconds: int
    enable_proxy_stats_endpoints: bool
    authenticate_metrics_endpoint: bool
    max_concurrent_inbound_connections: int
    max_concurrent_inbound_connections_per_ip: int
    max_concurrent_lookup_requests: int
    broker_client_authentication_plugin: str
    broker_client_authentication_parameters: str = field(repr=False)
    broker_client_trust_certs_file_path: str
    broker_client_key_file_path: str
    broker_client_certificate_file_path: str
    tls_enabled_with_broker: bool
    anonymous_user_role: str
    tls_cert_refresh_check_duration_sec: int
    tls_certificate_file_path: str
    tls_key_file_path: str
    tls_trust_certs_file_path: str
    tls_allow_insecure_connection: bool
    tls_hostname_verification_enabled: bool
    tls_protocols: tuple[str, ...]
    tls_ciphers: tuple[str, ...]
    tls_require_trusted_client_cert_on_connect: bool
    tls_enabled_with_key_store: bool
    tls_key_store_type: str
    tls_key_store: str
    tls_key_store_password: str = field(repr=False)
    tls_trust_store_type: str
    tls_trust_store: str
    tls_trust_store_password: str = field(repr=False)
    broker_client_tls_enabled_with_key_store: bool
    broker_client_tls_key_store_type: str
    broker_client_tls_key_store: str
    broker_client_tls_key_store_password: str = field(repr=False)
    broker_client_tls_trust_store_type: str
    broker_client_tls_trust_store: str
    broker_client_tls_trust_store_password: str = field(repr=False)
    http_reverse_proxy_configs: tuple[str, ...]
    http_max_request_header_size: int
    http_input_max_replay_buffer_size: int
    http_proxy_timeout: int
    max_concurrent_http_requests: int
    max_http_server_connections: int
    http_requests_limit_enabled: bool
    http_requests_max_per_second: float
    cluster_name: str
    magnetar_ha_proxy_trusted_addresses: str
    magnetar_http_allowed_origins: tuple[str, ...]
    magnetar_http_allowed_hosts: tuple[str, ...]
    magnetar_zoo_keeper_config_path: str
    magnetar_zoo_keeper_password: str = field(repr=False)
    # End of what it writes.

    @property
    def metadata_store(self) -> str:
        """The address of the store in which brokers are registered; empty: not set."""
        return self.metadata_store_url or self.zookeeper_servers

    @property
    def session_timeout_ms(self) -> int:
        """The requested timeout of the ZooKeeper session, in milliseconds."""
        older = self.zookeeper_session_timeout_ms
        return older if older > 0 else self.metadata_store_session_timeout_millis

    @property
    def authenticate_original_auth_data(self) -> bool:
        """Always False: a proxy serves clients directly, and no client acts on behalf of others."""
        return False


@dataclass(frozen=True, slots=True)
class ReverseProxy:
    """A path whose requests are forwarded to another server."""

    path: str
    """The path, with a slash at the start and none at the end."""
    proxy_to: str
    """The target, ``http://host:port/path``, without a slash at the end."""


@dataclass(frozen=True, slots=True)
class LoadedProxy:
    """The result of reading a proxy's configuration."""

    settings: ProxySettings
    warnings: tuple[str, ...]
    """Warnings for the log, one sentence each."""
    given: Mapping[str, str] = field(repr=False)
    """The settings in the file and on the command line, by name; secrets are not masked."""
    reverse_proxies: tuple[ReverseProxy, ...] = ()


def load_proxy(
    path: str | Path | None, accept: Iterable[str] = (), overrides: Mapping[str, str] | None = None
) -> LoadedProxy:
    """Reads a ``proxy.conf``; if ``path`` is None, all settings have their defaults.

    :param accept: unsupported keys that the file may set nevertheless
    :param overrides: settings from the command line, which take precedence over the file
    :raises ConfigurationError: the file cannot be read, or a setting cannot be used
    """
    read = read_settings(path, proxy_settings_table(), accept, overrides, OF_PROXIES)
    for plain, secured in (("servicePort", "servicePortTls"), ("webServicePort", "webServicePortTls")):
        item = read.given.get(plain)
        if item is not None and not item.text.strip() and read.values[secured] is not None:
            # As in Pulsar, the listener with TLS replaces it.
            read.values[plain] = None
    reverse = _reverse_proxies(read.everything, read.problems)
    if read.problems:
        raise ConfigurationError(read.problems)
    return LoadedProxy(typed(ProxySettings, read.values), tuple(read.warnings), read.everything, reverse)


def _reverse_proxies(given: Mapping[str, str], problems: list[str]) -> tuple[ReverseProxy, ...]:
    found: dict[str, dict[str, str]] = {}
    for key, text in given.items():
        match = OF_PROXIES.fullmatch(key)
        if match is not None and match[1] is not None:
            found.setdefault(match[1], {})[match[2]] = text.strip()
    made = []
    for name, parts in found.items():
        path, target = parts.get("path", ""), parts.get("proxyTo", "").rstrip("/")
        if not path.startswith("/") or not re.match(r"https?://[^/]", target):
            problems.append(
                f"httpReverseProxy.{name}: path must be /PATH and proxyTo http://HOST:PORT; set both"
            )
            continue
        made.append(ReverseProxy(path.rstrip("/"), target))
    return tuple(made)
