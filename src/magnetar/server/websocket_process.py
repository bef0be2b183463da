"""``magnetar websocket`` as a process: a WebSocket server in front of the brokers of a cluster."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.policies.grants import StoredGrants
from magnetar.broker.policies.namespaces import NamespaceRecords
from magnetar.broker.policies.records import Clusters, Tenants
from magnetar.broker.upkeep.revocation import Revocation
from magnetar.client.client import Client
from magnetar.client.exceptions import PulsarException
from magnetar.config.reading import SettingsContradict
from magnetar.config.websocket import LoadedWebSockets, WebSocketProcessSettings, load_websockets
from magnetar.errors import ClusterNotFound
from magnetar.http.engine.connection import HttpLimits
from magnetar.http.engine.origins import Origins
from magnetar.http.routing import Access
from magnetar.http.websocket.service import WebSocketService
from magnetar.http.websocket_server import WebSocketServer
from magnetar.io.interfaces import Io, ListeningNetwork
from magnetar.io.real import real_client_io, real_io
from magnetar.io.wheel import TimerWheel
from magnetar.metadata.interface import MetadataStore
from magnetar.metadata.zookeeper.address import AddressRefused, EnsembleAddress, ensemble_address
from magnetar.security.authorization import Authorizer, EverybodyMay
from magnetar.server.addresses import hosts_of
from magnetar.server.beside import OptionsBeside, run_beside
from magnetar.server.broker_client import TlsChecks, own_client
from magnetar.server.cluster_access import alone_access
from magnetar.server.cluster_stores import Patience, open_zookeeper
from magnetar.server.loop_process import reachable_host, say_serving, taken_port
from magnetar.server.security import Roles, authenticator, authorizer
from magnetar.server.tls import ListenerTls
from magnetar.server.websockets import limits_of

log = logging.getLogger(__name__)

_HTTP_GRACE_SECONDS = 5.0
_ANY_NUMBER = 1 << 30


def run_websockets(options: OptionsBeside) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code. A second signal ends the process
    immediately.
    """
    return run_beside(
        options,
        load_websockets,
        partial(_started, options),
        lambda _loaded, made: made.say_serving(),
        "WebSockets are not served",
    )


async def _started(
    options: OptionsBeside, loaded: LoadedWebSockets, loop: asyncio.AbstractEventLoop
) -> _WebSockets:
    made = _WebSockets(real_io(loop, "."), loop, loaded)
    try:
        await made.start(options.wait_seconds)
    except BaseException:
        await made.stop()
        raise
    return made


class _WebSockets:
    """The parts of the process, which are stopped in the reverse order of their creation."""

    def __init__(self, io: Io, loop: asyncio.AbstractEventLoop, loaded: LoadedWebSockets) -> None:
        self._io = io
        self._loop = loop
        self._loaded = loaded
        self._settings = loaded.settings
        self._shared: MetadataStore | None = None
        """The configuration store; None: the settings contain no configuration store."""
        self._tls: ListenerTls | None = None
        self._access = Access()
        self._service: WebSocketService | None = None
        self._revocation: Revocation | None = None
        self._server: WebSocketServer | None = None
        self._ports: dict[str, int] = {}
        self._brokers = ""

    async def start(self, wait_seconds: float | None) -> None:
        """Starts to serve WebSockets.

        :raises SettingsContradict: settings contradict each other, or contain no address of brokers
        :raises MetadataError: ZooKeeper does not answer in time
        :raises OSError: an address cannot be used
        """
        settings = self._settings
        _check(settings)
        if settings.web_service_port_tls is not None:
            self._tls = ListenerTls(self._io, self._loop, settings)
        asked = authenticator(self._io, settings, self._loaded.given)
        self._access = Access(asked)
        if settings.configuration_store:
            address = _address(settings.configuration_store)
            patience = Patience(self._io.clock, self._io.loop, wait_seconds)
            self._shared = await open_zookeeper(self._io, address, alone_access(settings), patience)
        self._access = Access(asked, self._authorizer())
        self._brokers = await self._where_brokers_are()
        client = self._client()
        self._service = WebSocketService(real_client_io(self._loop), lambda: client, limits_of(settings))
        wheel = TimerWheel(self._io.loop)
        self._revocation = Revocation(self._io, wheel, self._service.users, asked, self._access.authorizer)
        await self._open_listeners(self._service)

    def _authorizer(self) -> Authorizer:
        settings, shared = self._settings, self._shared
        if not settings.authorization_enabled:
            return EverybodyMay()
        if shared is None:
            raise SettingsContradict(
                "authorizationEnabled requires configurationMetadataStoreUrl, which contains the permissions"
            )
        grants = StoredGrants(shared, Tenants(shared), NamespaceRecords(shared))
        return authorizer(self._io, settings, self._loaded.given, Roles(settings), grants)

    async def _where_brokers_are(self) -> str:
        settings, shared = self._settings, self._shared
        tls = settings.broker_client_tls_enabled
        kind = "brokerServiceUrlTls" if tls else "brokerServiceUrl"
        said = settings.broker_service_url_tls if tls else settings.broker_service_url
        if said:
            return said
        if shared is None or not settings.cluster_name:
            raise SettingsContradict(
                f"{kind}, or clusterName and configurationMetadataStoreUrl, must be set, so that "
                "the server finds the brokers"
            )
        try:
            cluster = await Clusters(shared).get(settings.cluster_name)
        except ClusterNotFound as error:
            raise SettingsContradict(
                f"clusterName: cluster {settings.cluster_name} does not exist"
            ) from error
        url = str(cluster.get(kind) or "")
        if not url:
            raise SettingsContradict(
                f"cluster {settings.cluster_name} has no {kind}; set {kind} in this configuration"
            )
        return url

    def _client(self) -> Client:
        """Creates a client of the brokers. It is called during the start, so that unusable settings prevent
        the start.
        """
        settings = self._settings
        checks = TlsChecks(
            issuer=not settings.tls_allow_insecure_connection, name=settings.tls_hostname_verification_enabled
        )
        at = Addresses(self._brokers, self._brokers)
        try:
            connections = settings.web_socket_connections_per_broker
            return own_client(real_client_io(self._loop), settings, at, checks, connections)
        except PulsarException as error:
            raise SettingsContradict(str(error)) from error

    async def _open_listeners(self, service: WebSocketService) -> None:
        settings = self._settings
        path = Path(settings.status_file_path) if settings.status_file_path else None
        server = self._server = WebSocketServer(
            self._io,
            service,
            self._access,
            HttpLimits(connections=settings.max_http_server_connections or _ANY_NUMBER),
            Origins((settings.bind_address,), settings.magnetar_http_allowed_origins),
            hosts_of(settings),
            path.is_file if path is not None else None,
        )
        ports: list[tuple[str, int | None, ListeningNetwork | None]] = [
            ("ws", settings.web_service_port, self._io.network),
            ("wss", settings.web_service_port_tls, self._tls.http if self._tls else None),
        ]
        for scheme, port, network in ports:
            if port is not None and network is not None:
                with taken_port("HTTP", "--http-port", port):
                    self._ports[scheme] = await server.start(settings.bind_address, port, network)

    def say_serving(self) -> None:
        host = reachable_host(self._settings.bind_address)
        say_serving("websocket", host, self._ports, f"brokers of {self._brokers}")
        if self._settings.bind_address == "":
            log.warning("bindAddress is empty: listening on all addresses")

    async def stop(self) -> None:
        """Stops the parts, also after a failed start."""
        if self._server is not None:
            await self._server.stop(_HTTP_GRACE_SECONDS)
        if self._revocation is not None:
            self._revocation.stop()
        if self._service is not None:
            await self._service.close()
        if self._shared is not None:
            await self._shared.close()
        await self._access.authenticator.close()
        if self._tls is not None:
            self._tls.close()


def _check(settings: WebSocketProcessSettings) -> None:
    """Checks settings that depend on each other.

    :raises SettingsContradict: settings contradict each other
    """
    if settings.web_service_port is None and settings.web_service_port_tls is None:
        raise SettingsContradict("no port is configured: set webServicePort or webServicePortTls")
    try:
        Origins((), settings.magnetar_http_allowed_origins)
    except ValueError as error:
        raise SettingsContradict(str(error)) from error
    hosts_of(settings)


def _address(text: str) -> EnsembleAddress:
    """Parses the address of a store.

    :raises SettingsContradict: the value is not an address of a ZooKeeper ensemble
    """
    try:
        return ensemble_address(text)
    except AddressRefused as error:
        raise SettingsContradict(f"configurationMetadataStoreUrl: {error}") from error
