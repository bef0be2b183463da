"""Creates the parts of a proxy from its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from magnetar.config.proxy import LoadedProxy, ProxySettings
from magnetar.config.reading import SettingsContradict
from magnetar.io.interfaces import ConnectingNetwork, Io
from magnetar.io.real.network import TcpNetwork
from magnetar.io.real.tls_network import CheckedNetwork, TlsClientNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles
from magnetar.metadata.zookeeper.address import AddressRefused, ensemble_address
from magnetar.proxy.broker_connection import GetAuthData
from magnetar.proxy.brokers import AllowedTargets, Brokers, NamedBrokers, RegisteredBrokers, networks_of
from magnetar.proxy.forwarding import Forwarding, ForwardingOptions
from magnetar.proxy.service import ProxyOptions, ProxyService
from magnetar.proxy.web_client import WebNetworks
from magnetar.security.authentication import Authenticator
from magnetar.security.client_authentication.authentication import Authentication, NoCredentials
from magnetar.security.client_authentication.plugins import authentication_of
from magnetar.server.cluster_access import alone_access
from magnetar.server.cluster_stores import Patience, open_zookeeper


def targets_of(settings: ProxySettings) -> AllowedTargets:
    """Returns the filter of the brokers that the proxy connects clients to.

    :raises SettingsContradict: a list of allowed targets is malformed
    """
    try:
        return AllowedTargets(
            settings.broker_proxy_allowed_host_names,
            settings.broker_proxy_allowed_ip_addresses,
            settings.broker_proxy_allowed_target_ports,
        )
    except ValueError as error:
        raise SettingsContradict(
            "brokerProxyAllowedHostNames, brokerProxyAllowedIPAddresses or brokerProxyAllowedTargetPorts: "
            f"{error}"
        ) from error


async def brokers_of(io: Io, settings: ProxySettings, wait_seconds: float | None) -> Brokers:
    """Returns the source of brokers: the brokers registered in the metadata store, or the brokers in the
    settings.

    :raises SettingsContradict: the settings contain neither brokers nor a metadata store
    :raises MetadataError: ZooKeeper does not answer in time
    """
    if settings.metadata_store:
        try:
            address = ensemble_address(settings.metadata_store)
        except AddressRefused as error:
            raise SettingsContradict(f"metadataStoreUrl: {error}") from error
        patience = Patience(io.clock, io.loop, wait_seconds)
        store = await open_zookeeper(io, address, alone_access(settings), patience)
        registered = RegisteredBrokers(io.loop, store)
        await registered.open()
        return registered
    named = NamedBrokers(
        settings.broker_service_url,
        settings.broker_service_urltls,
        settings.broker_web_service_url,
        settings.broker_web_service_urltls,
    )
    kind = "brokerServiceURLTLS" if settings.tls_enabled_with_broker else "brokerServiceURL"
    if not any(each.target(tls=settings.tls_enabled_with_broker) for each in named.all):
        raise SettingsContradict(
            f"metadataStoreUrl or {kind} must be set, so that the proxy finds the brokers"
        )
    if settings.check_active_brokers:
        raise SettingsContradict(
            "checkActiveBrokers requires metadataStoreUrl, where active brokers are registered"
        )
    return named


def service_of(
    io: Io,
    loop: asyncio.AbstractEventLoop,
    settings: ProxySettings,
    brokers: Brokers,
    targets: AllowedTargets,
    authenticator: Authenticator,
    *,
    redirects: bool = False,
) -> ProxyService:
    """Creates the service of a proxy from its settings.

    :param redirects: whether to redirect clients to a broker instead of forwarding their requests
    :raises SettingsContradict: the credentials of the proxy are not valid, or the list of load balancers is
        malformed
    """
    try:
        balancers = networks_of(settings.magnetar_ha_proxy_trusted_addresses)
    except ValueError as error:
        raise SettingsContradict(f"magnetarHaProxyTrustedAddresses: {error}") from error
    options = ProxyOptions(
        tls_with_broker=settings.tls_enabled_with_broker,
        max_message_size=settings.max_message_size,
        connect_seconds=settings.broker_proxy_connect_timeout_ms / 1000,
        read_seconds=settings.broker_proxy_read_timeout_ms / 1000,
        keep_alive_seconds=settings.keep_alive_interval_seconds,
        active_only=settings.check_active_brokers,
        forward_credentials=settings.forward_authorization_credentials,
        refresh_seconds=settings.authentication_refresh_check_seconds,
        connections=settings.max_concurrent_inbound_connections,
        connections_of_address=settings.max_concurrent_inbound_connections_per_ip,
        lookups=settings.max_concurrent_lookup_requests,
        redirects=redirects,
        balancers=balancers if settings.ha_proxy_protocol_enabled else (),
    )
    network = _networks(loop, settings, targets)
    chosen = network.tls if settings.tls_enabled_with_broker else network.plain
    return ProxyService(
        io,
        options,
        brokers,
        targets,
        chosen,
        authenticator,
        _auth_data_source(loop, _authentication(settings)),
    )


def forwarding_of(
    loop: asyncio.AbstractEventLoop, loaded: LoadedProxy, brokers: Brokers, targets: AllowedTargets
) -> Forwarding:
    settings = loaded.settings
    tls = settings.tls_enabled_with_broker
    functions = (
        settings.function_worker_web_service_urltls if tls else settings.function_worker_web_service_url
    )
    web = settings.broker_web_service_urltls if tls else settings.broker_web_service_url
    if web and settings.metadata_store:
        asked: Brokers = NamedBrokers("", "", "" if tls else web, web if tls else "")
    else:
        asked = brokers
    options = ForwardingOptions(
        tls=tls,
        seconds=settings.http_proxy_timeout / 1000,
        most=settings.max_concurrent_http_requests,
        forward_credentials=settings.forward_authorization_credentials,
        functions_url=functions,
        reverse=loaded.reverse_proxies,
    )
    others = WebNetworks(TcpNetwork(loop), TlsClientNetwork(loop, ClientContext(ClientTls())))
    authentication = _authentication(settings)

    async def headers() -> Mapping[str, str]:
        if authentication is None:
            return {}
        return (
            await loop.run_in_executor(None, authentication.headers)
            if authentication.blocks
            else authentication.headers()
        )

    return Forwarding(loop, options, asked, targets, _networks(loop, settings, targets), others, headers)


def _authentication(settings: ProxySettings) -> Authentication | None:
    """Returns the credentials of the proxy; None: no authentication.

    :raises SettingsContradict: the authentication plug-in or its parameters are not valid
    """
    try:
        return authentication_of(
            settings.broker_client_authentication_plugin, settings.broker_client_authentication_parameters
        )
    except NoCredentials as error:
        raise SettingsContradict(f"brokerClientAuthenticationPlugin: {error}") from error


def _auth_data_source(
    loop: asyncio.AbstractEventLoop, authentication: Authentication | None
) -> GetAuthData | None:
    if authentication is None:
        return None

    async def get_auth_data() -> tuple[str, bytes]:
        return authentication.method, await loop.run_in_executor(
            None, authentication.data
        ) if authentication.blocks else authentication.data()

    return get_auth_data


def _networks(
    loop: asyncio.AbstractEventLoop, settings: ProxySettings, targets: AllowedTargets
) -> WebNetworks:
    """Returns the networks to brokers, with and without TLS.

    :raises SettingsContradict: a key store has a type that only Java can read
    """
    authentication = _authentication(settings)
    files = _broker_files(settings).showing(
        authentication.certificate if authentication is not None else None
    )
    context = ClientContext(
        ClientTls(
            files,
            verify=not settings.tls_allow_insecure_connection,
            verify_host=settings.tls_hostname_verification_enabled,
        )
    )
    plain: ConnectingNetwork = CheckedNetwork(loop, targets.allows_address)
    return WebNetworks(plain, CheckedNetwork(loop, targets.allows_address, context))


def _broker_files(settings: ProxySettings) -> TlsFiles:
    if not settings.broker_client_tls_enabled_with_key_store:
        return TlsFiles(
            settings.broker_client_certificate_file_path,
            settings.broker_client_key_file_path,
            settings.broker_client_trust_certs_file_path or settings.tls_trust_certs_file_path,
        )
    for kind, path in (
        (settings.broker_client_tls_key_store_type, settings.broker_client_tls_key_store),
        (settings.broker_client_tls_trust_store_type, settings.broker_client_tls_trust_store),
    ):
        if path and kind.upper() != "PKCS12":
            raise SettingsContradict(
                f"{path} is a key store of type {kind}, which only Java reads; convert it to PKCS12 "
                "(keytool -importkeystore -deststoretype pkcs12)"
            )
    return TlsFiles(
        key_store=settings.broker_client_tls_key_store,
        key_store_password=settings.broker_client_tls_key_store_password,
        trust_store=settings.broker_client_tls_trust_store,
        trust_store_password=settings.broker_client_tls_trust_store_password,
    )
