"""The process of a broker: event loop, signals, the line that announces that the broker serves, and an
orderly stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from magnetar import __version__, hot
from magnetar.broker.admin.all import Admin
from magnetar.broker.policies.dynamic import Changeable
from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import ConfigurationError, Loaded, Settings, SettingsContradict, load
from magnetar.exit_codes import FAILED, SUCCEEDED
from magnetar.http.admin_pace import AdminLimits
from magnetar.http.endpoint_server import AUDIT
from magnetar.http.engine.connection import HttpLimits
from magnetar.http.engine.origins import Origins
from magnetar.http.metrics.rendering import MetricsOptions
from magnetar.http.routing import Access, Application, Process
from magnetar.http.server import HttpServer
from magnetar.io.interfaces import Io
from magnetar.io.real import real_io
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import settle
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.security.authentication import Authenticator, NobodyIsAsked
from magnetar.security.authorization import Authorizer
from magnetar.security.rules import Grants
from magnetar.server.addresses import BindAddress, bind_addresses, check_listeners, exposures, hosts_of_broker
from magnetar.server.logs import LogFormat, configure_logging
from magnetar.server.loop_process import (
    PortTaken,
    listen_to_signals,
    new_loop,
    prepare_process,
    reachable_host,
    say_serving,
    taken_port,
)
from magnetar.server.security import Roles, authenticator, authorizer
from magnetar.server.settings import load_entry_filters
from magnetar.server.telemetry import exporter, wanted_telemetry
from magnetar.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from magnetar.server.tls import ListenerTls
    from magnetar.telemetry.exporter import Exporter

log = logging.getLogger(__name__)

_HTTP_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class ProcessOptions:
    """The options on the command line."""

    data_dir: Path | None = None
    """The data directory; None: the broker stores no data on this machine."""
    config: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Settings from the command line, by Pulsar's names."""
    accept_unhonoured: frozenset[str] = frozenset()
    log_format: LogFormat = "text"
    log_level: str = "info"


@dataclass(frozen=True)
class BrokerSurroundings:
    """The environment of a broker: settings, addresses, authorization and the process."""

    io: Io
    settings: Settings
    runtime_settings: Mapping[str, str]
    """The effective value of every setting, as text."""
    advertised_host: str
    """The advertised host; an IPv6 address is in brackets."""
    http_ports: Mapping[str, int]
    """The actual HTTP ports, by scheme (``http``, ``https``)."""
    bind_addresses: Sequence[BindAddress]
    """The addresses to listen on for the binary protocol."""
    tls: ListenerTls | None = None
    """The TLS contexts; None: no bind address uses TLS."""
    authenticator: Authenticator = field(default_factory=NobodyIsAsked)
    make_authorizer: Callable[[Grants], Authorizer] | None = None
    """Creates the authorizer; None: authorization is off."""
    cluster: ClusterSettings | None = None
    """The settings of the cluster; None: a standalone broker."""
    dynamic: Mapping[str, Changeable] = field(default_factory=dict)
    """Settings that can be changed while the broker runs, and functions that apply their changes."""
    stop: Callable[[], None] = lambda: None
    """Begins an orderly stop of the process."""


class Broker(Protocol):
    """The interface of a broker, with its stores, to its process."""

    @property
    def admin(self) -> Admin: ...

    @property
    def process(self) -> Process: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def binary_ports(self) -> Mapping[str, int]:
        """The actual ports of bind addresses without a listener name, by scheme (``pulsar``,
        ``pulsar+ssl``).
        """
        ...

    @property
    def may_be_interrupted(self) -> bool:
        """Whether the start can be cancelled now."""
        ...

    async def start(self) -> None:
        """Opens the stores and serves the binary protocol.

        :raises OSError: an address or the data directory cannot be used
        :raises LedgerError: the ledger store cannot be opened
        :raises MetadataError: the metadata store cannot be opened
        """
        ...

    async def stop(self) -> bool:
        """Stops serving, makes all data durable and closes the stores; also after a failed start.

        :returns: False if the metadata store did not answer, so that it may still list this broker, or a
            bundle or topic as served by it; no acknowledged data is lost
        """
        ...


MakeBroker = Callable[[BrokerSurroundings], Broker]


def advertised_host(settings: Settings) -> str:
    """Returns the advertised host: the setting, or the listener's host, or ``localhost``."""
    return reachable_host(settings.advertised_address or settings.bind_address)


def run_process(
    title: str, options: ProcessOptions, make_broker: MakeBroker, *, cluster: bool = False
) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code. A second signal ends the process
    immediately.

    :param cluster: whether metadata and ledgers are in ZooKeeper and BookKeeper instead of the embedded
        stores
    """
    try:
        loaded = load(options.config, options.accept_unhonoured, options.overrides, cluster=cluster)
        load_entry_filters(loaded.settings.entry_filter_names)
    except ConfigurationError as error:
        for problem in error.problems:
            sys.stderr.write(f"magnetar: {problem}\n")
        return FAILED
    configure_logging(options.log_format, options.log_level)
    logging.getLogger(AUDIT).disabled = not loaded.settings.magnetar_audit_enabled
    for warning in loaded.warnings:
        log.warning(warning)
    interpreted = hot.status(hot.SERVING).warning()
    if interpreted is not None:
        log.warning(interpreted)
    prepare_process()
    loop = new_loop()
    try:
        return loop.run_until_complete(_serve(title, options, loaded, make_broker, loop))
    except (OSError, LedgerError, MetadataError, SettingsContradict) as error:
        log.debug("start failed", exc_info=error)
        sys.stderr.write(f"magnetar: not started with {_data(options)}: {_reason(error)}\n")
        return FAILED
    finally:
        loop.close()


def _data(options: ProcessOptions) -> str:
    return "data in BookKeeper" if options.data_dir is None else f"data in {options.data_dir}"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and not isinstance(error, PortTaken):
        return error.strerror
    return str(error)


class Assembly:
    """A broker with its HTTP server, TLS, authentication and telemetry, which are started and stopped
    together."""

    def __init__(
        self,
        io: Io,
        loop: asyncio.AbstractEventLoop,
        loaded: Loaded,
        make_broker: MakeBroker,
        stop: Callable[[], None],
        broker_io: Io | None = None,
        asked_through: Callable[[Authenticator], Authenticator] | None = None,
        telemetry: TelemetrySettings | None = None,
    ) -> None:
        """:param stop: begins an orderly stop of the process
        :param broker_io: the I/O interface of the broker alone; None: ``io``, which the other parts use
        :param asked_through: wraps the authenticator; None: the authenticator is used directly
        :param telemetry: settings of the export to an OpenTelemetry collector; None: no export
        :raises SettingsContradict: settings contradict each other
        """
        self._io = io
        self._broker_io = broker_io or io
        self._loop = loop
        self._loaded = loaded
        self._make_broker = make_broker
        self._stop_process = stop
        settings = loaded.settings
        self.host = advertised_host(settings)
        self._bind_addresses = bind_addresses(settings)
        check_listeners(settings, self._bind_addresses)
        self.exposures = exposures(settings, self._bind_addresses)
        """Warnings about listeners that other machines can reach."""
        self._roles = Roles(settings)
        asked = authenticator(io, settings, loaded.given, self._roles.proxies)
        self._asked = asked_through(asked) if asked_through is not None else asked
        self._tls: ListenerTls | None = None
        if any(bind.tls for bind in self._bind_addresses):
            # Few standalone brokers have TLS.
            from magnetar.server.tls import ListenerTls

            self._tls = ListenerTls(io, loop, settings)
        self._http = HttpServer(
            io,
            _http_limits(settings),
            _http_origins(settings, self.host),
            hosts_of_broker(settings, self.host),
            dashboard=settings.magnetar_dashboard_enabled,
            admin_limits=AdminLimits(
                settings.magnetar_max_admin_requests_per_second_per_role,
                settings.magnetar_max_concurrent_admin_requests_per_role,
            ),
        )
        self._http_ports: Mapping[str, int] = {}
        self._telemetry = telemetry
        self._exporter: Exporter | None = None

    async def make(self) -> Broker:
        """Creates the broker, which does not serve yet; HTTP already answers that the broker is starting.

        :raises OSError: an address cannot be used
        """
        self._http_ports = await _open_http(self._http, self._bind_addresses, self._tls)
        loaded, roles = self._loaded, self._roles
        io, settings = self._broker_io, loaded.settings
        place = BrokerSurroundings(
            io,
            settings,
            loaded.texts,
            self.host,
            self._http_ports,
            [bind for bind in self._bind_addresses if bind.binary],
            self._tls,
            self._asked,
            lambda grants: authorizer(io, settings, loaded.given, roles, grants),
            loaded.cluster,
            roles.dynamic,
            self._stop_process,
        )
        return self._make_broker(place)

    def serve_http(self, broker: Broker) -> None:
        """Starts serving HTTP requests with a started broker."""
        settings = self._loaded.settings
        process = broker.process
        if self._telemetry is not None:
            instance = f"{self.host}:{next(iter(self._http_ports.values()), 0)}"
            sending = exporter(self._io, self._telemetry, process.figures, settings.cluster_name, instance)
            process = replace(process, figures=sending.figures)
            sending.start()
            self._exporter = sending
        self._http.serve(
            Application(
                broker.admin,
                process,
                _metrics_options(settings),
                __version__,
                settings.cluster_name,
                Access(self._asked, broker.authorizer, not settings.authenticate_metrics_endpoint),
            )
        )

    def ports(self, broker: Broker) -> Mapping[str, int]:
        """Returns the actual ports of bind addresses without a listener name, by scheme."""
        return {**broker.binary_ports, **self._http_ports}

    async def stop(self, broker: Broker) -> int:
        """Stops the broker and all other parts; returns the exit code of the process."""
        if self._exporter is not None:
            await self._exporter.begin_last()
        seconds = self._loaded.settings.broker_shutdown_timeout_ms / 1000
        code = await _stop(self._http, broker, seconds)
        if self._exporter is not None:
            await self._exporter.stop()
        await self._asked.close()
        if self._tls is not None:
            self._tls.close()
        return code


async def _serve(
    title: str,
    options: ProcessOptions,
    loaded: Loaded,
    make_broker: MakeBroker,
    loop: asyncio.AbstractEventLoop,
) -> int:
    stopping = listen_to_signals(loop)
    io = real_io(loop, options.data_dir or ".")
    telemetry = wanted_telemetry(os.environ)
    assembly = Assembly(io, loop, loaded, make_broker, partial(settle, stopping), telemetry=telemetry)
    broker = await assembly.make()
    try:
        if not await _started(broker, loop, stopping):
            return FAILED
        for exposure in assembly.exposures:
            log.warning(str(exposure))
        assembly.serve_http(broker)
        say_serving(title, assembly.host, assembly.ports(broker), _data(options))
        await stopping
        log.info("stopping")
    finally:
        code = await assembly.stop(broker)
    if code == 0:
        log.info("stopped")
    return code


async def _started(broker: Broker, loop: asyncio.AbstractEventLoop, stopping: asyncio.Future[None]) -> bool:
    """Starts the broker; returns False if a signal arrived while the broker waited for other services."""
    starting = TaskScope(loop, "the broker").answer(broker.start())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() and broker.may_be_interrupted:
        starting.cancel()
        await asyncio.wait({starting})
        log.info("stopped before the start was complete")
        return False
    await starting
    return True


async def _open_http(
    http: HttpServer, listening: Sequence[BindAddress], tls: ListenerTls | None
) -> dict[str, int]:
    """Opens the listeners; returns the ports of bind addresses without a listener name, by scheme."""
    ports: dict[str, int] = {}
    for bind in listening:
        if bind.binary:
            continue
        with taken_port("HTTP", bind.option, bind.port):
            port = await http.start(bind.host, bind.port, tls.http if tls and bind.tls else None)
        if not bind.listener:
            ports.setdefault(bind.scheme, port)
    return ports


async def _stop(http: HttpServer, broker: Broker, timeout_seconds: float) -> int:
    """Stops HTTP and the broker within the timeout; returns the exit code, ``FAILED`` if the timeout
    passes."""
    try:
        async with asyncio.timeout(timeout_seconds):
            await http.stop(min(_HTTP_GRACE_SECONDS, timeout_seconds))
            complete = await broker.stop()
    except TimeoutError:
        log.error("stopping took too long", extra={"seconds": timeout_seconds})
        return FAILED
    if not complete:
        log.error("stopped, but the metadata store did not record every end; the next start repairs this")
        return FAILED
    return SUCCEEDED


def _http_limits(settings: Settings) -> HttpLimits:
    return HttpLimits(
        body_bytes=settings.http_body_limit_bytes,
        head_bytes=settings.http_max_request_header_size,
        connections=settings.max_http_server_connections,
        connections_of_address=settings.magnetar_max_http_connections_per_ip,
    )


def _http_origins(settings: Settings, host: str) -> Origins:
    """Returns the web origins from which pages in browsers may send requests.

    :raises SettingsContradict: an allowed origin is malformed
    """
    try:
        return Origins((settings.bind_address, host), settings.magnetar_http_allowed_origins)
    except ValueError as error:
        raise SettingsContradict(str(error)) from error


def _metrics_options(settings: Settings) -> MetricsOptions:
    return MetricsOptions(
        version=__version__,
        topic_level=settings.expose_topic_level_metrics_in_prometheus,
        consumer_level=settings.expose_consumer_level_metrics_in_prometheus,
        producer_level=settings.expose_producer_level_metrics_in_prometheus,
        managed_ledger_level=settings.expose_managed_ledger_metrics_in_prometheus,
        split_partition=settings.split_topic_and_partition_label_in_prometheus,
        most_series=settings.magnetar_metrics_max_series,
        replication=settings.replication_metrics_enabled,
    )
