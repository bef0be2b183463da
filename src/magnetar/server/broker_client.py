"""Connections of a broker to other brokers: clients and HTTP requests with the credentials in the broker's
settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import h11

from magnetar.broker.ownership.brokers import BrokerRecord
from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.ownership.peers import PeerAnswer, PeerRefused
from magnetar.broker.replication.clusters import Way
from magnetar.client.client import Client
from magnetar.client.exceptions import PulsarException
from magnetar.client.security import parse_service_url
from magnetar.config.settings import Settings, SettingsContradict
from magnetar.errors import ServiceNotReady
from magnetar.io.interfaces import ClientIo, ConnectingNetwork, Future, Io, Loop, Transport
from magnetar.io.real import real_client_io
from magnetar.io.real.tls_network import TlsClientNetwork
from magnetar.io.tasks import TaskScope
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles, TlsRefused
from magnetar.io.waiting import fail, finished, nobody_waits, settle
from magnetar.security.client_authentication.authentication import Authentication, NoCredentials
from magnetar.security.client_authentication.plugins import authentication_of
from magnetar.server.process_settings import ServingSettings

ANSWER_BYTES = 16 << 20
SECONDS = 60.0
_PORTS = {"http": 80, "https": 443}
Headers = Callable[[], Awaitable[Mapping[str, str]]]


class TlsChecks(NamedTuple):
    """Which properties of a broker's certificate a client checks: its issuer, and the host name."""

    issuer: bool = True
    name: bool = True


_CHECKED = TlsChecks()


def peer_admin(io: Io, loop: asyncio.AbstractEventLoop, settings: Settings) -> HttpPeerAdmin:
    """Returns the client for requests to other brokers.

    :raises SettingsContradict: the files for TLS cannot be used, or the authentication plug-in does not exist
    """
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
    """Returns a function that produces HTTP headers with the credentials of ``authentication``; None: no
    headers.
    """

    async def auth_headers() -> Mapping[str, str]:
        if authentication is None:
            return {}
        if not authentication.blocks:
            return authentication.headers()
        return await loop.run_in_executor(None, authentication.headers)

    return auth_headers


def client_io(io: Io, loop: asyncio.AbstractEventLoop) -> ClientIo:
    """Returns the I/O interfaces for a client inside a broker: clock, randomness and network are those of
    ``io``.

    :param loop: the loop of ``io``
    """
    return replace(real_client_io(loop), clock=io.clock, randomness=io.randomness, network=io.network)


def own_client(
    io: ClientIo,
    settings: ServingSettings,
    at: Addresses,
    tls: TlsChecks = _CHECKED,
    connections: int = 1,
) -> Client:
    """Returns a client that connects to a broker with the credentials of this process.

    :param at: a broker's addresses
    :param tls: the checks of brokers' certificates
    :param connections: number of connections to each broker
    :raises ServiceNotReady: the broker has no address for TLS, or none for plain text, whichever
        ``brokerClientTlsEnabled`` requires
    :raises InvalidUrl: the address is not a binary service URL
    """
    authentication = _authentication(settings)
    url = at.binary_tls if settings.broker_client_tls_enabled else at.binary
    if not url:
        given, suffix = ("true", "Tls") if settings.broker_client_tls_enabled else ("false", "")
        raise ServiceNotReady(
            f"brokerClientTlsEnabled={given} requires brokerServicePort{suffix}; set "
            f"brokerServicePort{suffix}"
        )
    # A client would also take the address of a web service.
    parse_service_url(url)
    return Client(
        url,
        io=io,
        connections_per_broker=connections,
        stats_interval_seconds=0,
        connection_max_idle_seconds=0,
        authentication=authentication,
        tls_files=_files(settings, authentication) if settings.broker_client_tls_enabled else None,
        tls_allow_insecure_connection=not tls.issuer,
        tls_validate_hostname=tls.name,
    )


def way_to(
    io: Io, loop: asyncio.AbstractEventLoop, settings: Settings, name: str, record: Mapping[str, Any]
) -> Way:
    """Returns the means to reach another cluster: a client, and a function for HTTP requests. The addresses
    are from the cluster's record, the credentials from the record or else from the settings
    (``brokerClient…``).

    :param name: name of the cluster, for errors
    :param record: the cluster's record, Pulsar's ``ClusterData``
    :raises ServiceNotReady: a field of the record is missing or not supported; the message names the field
    """
    tls = bool(record.get("brokerClientTlsEnabled")) or settings.broker_client_tls_enabled
    field = "brokerServiceUrlTls" if tls else "brokerServiceUrl"
    url = record.get(field) or record.get("serviceUrlTls" if tls else "serviceUrl") or ""
    if not url.startswith("pulsar"):
        raise ServiceNotReady(
            f"the record of cluster {name} has no {field}; set it with pulsar-admin clusters update"
        )
    if record.get("proxyServiceUrl"):
        raise ServiceNotReady(
            f"the record of cluster {name} has a proxyServiceUrl, which is not supported; remove this URL"
        )
    if record.get("brokerClientTlsEnabledWithKeyStore"):
        raise ServiceNotReady(
            f"the record of cluster {name} has brokerClientTlsEnabledWithKeyStore, which is not "
            "supported; use PEM files"
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
            stats_interval_seconds=0,
            connection_max_idle_seconds=0,
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
    """Returns the network for TLS connections to another cluster, whose record is ``record``.

    :raises SettingsContradict: a file cannot be used
    """
    insecure = bool(record.get("tlsAllowInsecureConnection"))
    context = ClientContext(ClientTls(files, verify=not insecure, verify_host=not insecure))
    try:
        context()
    except TlsRefused as error:
        raise SettingsContradict(f"brokerClientTlsEnabled: {error}") from error
    return TlsClientNetwork(loop, context)


def _authentication(settings: ServingSettings) -> Authentication | None:
    try:
        return authentication_of(
            settings.broker_client_authentication_plugin, settings.broker_client_authentication_parameters
        )
    except NoCredentials as error:
        raise SettingsContradict(f"brokerClientAuthenticationPlugin: {error}") from error


def _files(settings: ServingSettings, authentication: Authentication | None) -> TlsFiles:
    own = TlsFiles(
        certificate=settings.broker_client_certificate_file_path,
        key=settings.broker_client_key_file_path,
        trust=settings.broker_client_trust_certs_file_path,
    )
    return own.showing(authentication.certificate if authentication is not None else None)


class HttpPeerAdmin:
    """The HTTP client of other brokers' admin interfaces, with a new connection for each call, because calls
    are rare. See :class:`magnetar.broker.ownership.peers.PeerAdmin`.
    """

    def __init__(
        self,
        loop: Loop,
        network: ConnectingNetwork,
        secured: ConnectingNetwork | None,
        auth_headers: Headers,
        seconds: float = SECONDS,
    ) -> None:
        """:param secured: the network with TLS; None: TLS is off
        :param auth_headers: returns headers with credentials. :raises NoCredentials: no credentials are
            available
        :param seconds: timeout of each call, in seconds
        """
        self._loop = loop
        self._tasks = TaskScope(loop, "requests to brokers")
        self._network = network
        self._secured = secured
        self._auth_headers = auth_headers
        self._seconds = seconds

    async def call(
        self,
        broker: BrokerRecord,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> PeerAnswer:
        told = broker.addresses
        url = told.http_tls if self._secured is not None else told.http
        if url is None:
            raise ServiceNotReady(
                f"The broker {broker.broker_id} has not registered an HTTP address for this request"
            )
        return await self.ask(url, f"broker {broker.broker_id}", method, path, query, body)

    async def ask(
        self,
        url: str,
        who: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> PeerAnswer:
        """Sends a request like :meth:`call`, but to an address instead of a broker.

        :param url: ``http://host:port`` or, with TLS, ``https://host:port``
        :param who: name of the server in error texts
        """
        target = f"{path}?{urlencode(query)}" if query else path
        work = self._tasks.answer(self._exchange(url, method, target, body))
        try:
            answered = await finished(self._loop, work, lambda end: self._loop.call_later(self._seconds, end))
        finally:
            if not work.done():
                # The request timed out, or the caller was cancelled.
                work.cancel()
                work.add_done_callback(nobody_waits)
        if not answered:
            raise ServiceNotReady(f"The {who} did not answer within {self._seconds} s")
        try:
            answer = work.result()
        except (OSError, TlsRefused, NoCredentials, h11.ProtocolError, UnicodeError) as error:
            # UnicodeError is raised for malformed host names.
            raise ServiceNotReady(f"The {who} cannot be reached: {error}") from error
        if answer.status >= 300:
            raise PeerRefused(answer.status, _reason(answer), answer.location)
        return answer

    async def _exchange(self, url: str, method: str, target: str, body: bytes | None) -> PeerAnswer:
        host, port, netloc = _place(url)
        headers = [("Host", netloc), ("Connection", "close"), *(await self._auth_headers()).items()]
        if body is not None:
            headers += [("Content-Type", "application/json")]
        headers += [("Content-Length", str(len(body or b"")))]
        exchange = _Exchange(self._loop, h11.Request(method=method, target=target, headers=headers), body)
        network = self._secured if self._secured is not None else self._network
        await network.connect(host, port, lambda: exchange)
        try:
            answer = await exchange.answered
        finally:
            exchange.close()
        return answer


class _Exchange:
    """One request and its answer, on a connection of their own."""

    def __init__(self, loop: Loop, head: h11.Request, body: bytes | None) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._head = head
        self._body = body
        self._transport: Transport | None = None
        self._status = 0
        self._location = ""
        self._received = bytearray()
        self.answered: Future[PeerAnswer] = loop.create_future()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        transport.write(self._http.send(self._head) or b"")
        if self._body:
            transport.write(self._http.send(h11.Data(data=self._body)) or b"")
        transport.write(self._http.send(h11.EndOfMessage()) or b"")

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def eof_received(self) -> bool | None:
        self._take(b"")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        fail(
            self.answered, exc or ConnectionResetError("the connection ended before the answer was complete")
        )

    def pause_writing(self) -> None:
        """Does nothing: the only request is already queued."""

    def resume_writing(self) -> None:
        """Does nothing: see :meth:`pause_writing`."""

    def _take(self, data: bytes) -> None:
        if self.answered.done():
            return
        try:
            self._http.receive_data(data)
            while (event := self._http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                    self._location = dict(event.headers).get(b"location", b"").decode("latin-1")
                elif isinstance(event, h11.Data):
                    self._received += event.data
                    if len(self._received) > ANSWER_BYTES:
                        raise h11.RemoteProtocolError(f"the answer exceeds {ANSWER_BYTES} bytes")
                elif isinstance(event, h11.EndOfMessage):
                    settle(self.answered, PeerAnswer(self._status, bytes(self._received), self._location))
                    return
                elif isinstance(event, h11.ConnectionClosed):
                    raise ConnectionResetError("the connection ended before the answer was complete")
        except (h11.ProtocolError, OSError) as error:
            fail(self.answered, error)


def _place(url: str) -> tuple[str, int, str]:
    """Returns the host, the port, and ``host:port`` of a URL. The URL can be malformed, because it comes from
    the metadata.

    :raises OSError: the URL has no valid host and port
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise OSError(f"{url[:300]!r} is not a valid URL: {error}") from error
    if not host or port is None:
        raise OSError(f"{url[:300]!r} is not a valid HTTP URL")
    return host, port, parts.netloc


def _reason(answer: PeerAnswer) -> str:
    try:
        found = answer.json()
    except ValueError:
        found = None
    reason = found.get("reason") if isinstance(found, dict) else None
    return reason if isinstance(reason, str) else answer.body[:1000].decode("utf-8", "replace")
