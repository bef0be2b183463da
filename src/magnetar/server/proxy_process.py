"""``magnetar proxy`` and ``magnetar discovery`` as processes: listeners, brokers, authentication."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from magnetar.config.proxy import LoadedProxy, ProxySettings, load_proxy
from magnetar.config.reading import SettingsContradict
from magnetar.http.engine.connection import HttpLimits
from magnetar.http.engine.origins import Hosts, Origins
from magnetar.io.interfaces import Io, Listener, ListeningNetwork
from magnetar.io.real import real_io
from magnetar.lazy_dataclass import dataclass
from magnetar.proxy.client_connection import ClientConnection
from magnetar.proxy.forwarding import Redirecting
from magnetar.proxy.service import ProxyService
from magnetar.proxy.web_server import WebOptions, WebServer
from magnetar.server.addresses import hosts_of
from magnetar.server.beside import OptionsBeside, run_beside
from magnetar.server.loop_process import reachable_host, say_serving, taken_port
from magnetar.server.proxy_parts import brokers_of, forwarding_of, service_of, targets_of
from magnetar.server.security import authenticator
from magnetar.server.tls import ListenerTls

log = logging.getLogger(__name__)

_HTTP_GRACE_SECONDS = 5.0
_ANY_NUMBER = 1 << 30


@dataclass(frozen=True)
class ProxyProcessOptions(OptionsBeside):
    discovery: bool = False
    """Whether the process redirects clients to a broker instead of forwarding their requests."""


def run_proxy(options: ProxyProcessOptions) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code. A second signal ends the process
    immediately.
    """
    title = "discovery" if options.discovery else "proxy"
    return run_beside(
        options,
        load_proxy,
        partial(_started, options),
        lambda loaded, proxy: _say_serving(title, loaded.settings, proxy.ports),
        "the proxy is not started",
    )


class _Proxy:
    """The parts of the process, which are stopped in the reverse order of their creation."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        """The actual ports, by scheme."""
        self.listeners: list[Listener] = []
        self.service: ProxyService | None = None
        self.web: WebServer | None = None
        self.tls: ListenerTls | None = None

    async def stop(self) -> None:
        """Stops the parts, also after a failed start."""
        for listener in self.listeners:
            listener.close()
        if self.web is not None:
            await self.web.stop(_HTTP_GRACE_SECONDS)
        if self.service is not None:
            await self.service.stop()
            await self.service.brokers.close()
            await self.service.authenticator.close()
        if self.tls is not None:
            self.tls.close()


async def _started(
    options: ProxyProcessOptions, loaded: LoadedProxy, loop: asyncio.AbstractEventLoop
) -> _Proxy:
    settings = loaded.settings
    io = real_io(loop, ".")
    proxy = _Proxy()
    try:
        await _start(proxy, io, options, loaded, loop)
    except BaseException:
        await proxy.stop()
        raise
    if not proxy.ports:
        raise SettingsContradict(
            "no port is configured: set servicePort, servicePortTls, webServicePort or webServicePortTls"
        )
    log.debug("serving", extra={"brokers": len(proxy.service.brokers.all) if proxy.service else 0})
    if settings.bind_address == "":
        log.warning("bindAddress is empty: listening on all addresses")
    return proxy


async def _start(
    proxy: _Proxy,
    io: Io,
    options: ProxyProcessOptions,
    loaded: LoadedProxy,
    loop: asyncio.AbstractEventLoop,
) -> None:
    settings = loaded.settings
    _check(settings)
    targets = targets_of(settings)
    if settings.service_port_tls is not None or settings.web_service_port_tls is not None:
        proxy.tls = ListenerTls(io, loop, settings)
    asked = authenticator(io, settings, loaded.given)
    brokers = await brokers_of(io, settings, options.wait_seconds)
    service = proxy.service = service_of(
        io, loop, settings, brokers, targets, asked, redirects=options.discovery
    )
    proxy.web = WebServer(
        io,
        HttpLimits(
            body_bytes=settings.http_input_max_replay_buffer_size,
            head_bytes=settings.http_max_request_header_size,
            connections=settings.max_http_server_connections or _ANY_NUMBER,
        ),
        Origins((settings.bind_address, settings.advertised_address), settings.magnetar_http_allowed_origins),
        _hosts(settings),
        _web_options(settings),
        service,
        Redirecting(brokers) if options.discovery else forwarding_of(loop, loaded, brokers, targets),
    )
    await _open_listeners(proxy, io, settings, lambda: ClientConnection(service))


def _check(settings: ProxySettings) -> None:
    """Checks settings that depend on each other.

    :raises SettingsContradict: settings contradict each other
    """
    if settings.ha_proxy_protocol_enabled and settings.service_port_tls is not None:
        raise SettingsContradict(
            "haProxyProtocolEnabled and servicePortTls cannot be used together, because a PROXY header "
            "before TLS is not supported; terminate TLS at the load balancer"
        )
    try:
        Origins((), settings.magnetar_http_allowed_origins)
    except ValueError as error:
        raise SettingsContradict(str(error)) from error
    hosts_of(settings)


def _hosts(settings: ProxySettings) -> Hosts | None:
    """Returns the host names under which HTTP requests may address the proxy; None: any name, because clients
    authenticate to the proxy or the brokers.
    """
    if settings.authentication_enabled or settings.forward_authorization_credentials:
        return None
    return hosts_of(settings, (settings.advertised_address,))


def _web_options(settings: ProxySettings) -> WebOptions:
    path = Path(settings.status_file_path) if settings.status_file_path else None
    return WebOptions(
        cluster=settings.cluster_name,
        stats=settings.enable_proxy_stats_endpoints,
        authenticate_metrics=settings.authenticate_metrics_endpoint,
        superusers=frozenset(settings.super_user_roles),
        requests_per_second=(
            settings.http_requests_max_per_second if settings.http_requests_limit_enabled else 0.0
        ),
        rotation_file=path.is_file if path is not None else None,
    )


async def _open_listeners(
    proxy: _Proxy, io: Io, settings: ProxySettings, client: Callable[[], ClientConnection]
) -> None:
    """Opens the listeners of the proxy.

    :raises OSError: an address cannot be used
    """
    tls, host = proxy.tls, settings.bind_address
    binary: list[tuple[str, int | None, ListeningNetwork | None]] = [
        ("pulsar", settings.service_port, io.network),
        ("pulsar+ssl", settings.service_port_tls, tls.binary if tls else None),
    ]
    for scheme, port, network in binary:
        if port is None or network is None:
            continue
        with taken_port("the binary protocol", "--binary-port", port):
            listener = await network.listen(host, port, client)
        proxy.listeners.append(listener)
        proxy.ports[scheme] = listener.port
    web: list[tuple[str, int | None, ListeningNetwork | None]] = [
        ("http", settings.web_service_port, io.network),
        ("https", settings.web_service_port_tls, tls.http if tls else None),
    ]
    for scheme, port, network in web:
        if port is None or network is None or proxy.web is None:
            continue
        with taken_port("HTTP", "--http-port", port):
            proxy.ports[scheme] = await proxy.web.start(host, port, network)


def _say_serving(title: str, settings: ProxySettings, ports: Mapping[str, int]) -> None:
    where = settings.metadata_store or settings.broker_service_url or settings.broker_service_urltls
    host = reachable_host(settings.advertised_address or settings.bind_address)
    say_serving(title, host, ports, f"brokers of {where}")
