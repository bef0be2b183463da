"""The common state of all connections of a proxy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import fields

from magnetar.client.exceptions import Timeout
from magnetar.client.timing import within
from magnetar.errors import ServerErrorCode
from magnetar.io.interfaces import Cancellable, ConnectingNetwork, Future, Io
from magnetar.io.tls import TlsRefused
from magnetar.io.waiting import finished, settle
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.frames import max_frame_size
from magnetar.protocol.pulsar_api_pb2 import CommandConnect
from magnetar.proxy.broker_connection import BrokerConnection, BrokerLost, BrokerRefused, GetAuthData
from magnetar.proxy.brokers import AllowedTargets, Brokers, BrokerTarget, Networks, TargetDenied
from magnetar.proxy.tunnel import Tunnel
from magnetar.security.authentication import Authenticator

log = logging.getLogger(__name__)
_RATES_SECONDS = 60.0
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Options of the binary listener."""

    tls_with_broker: bool = False
    max_message_size: int = 5 << 20
    connect_seconds: float = 10.0
    """Timeout of a broker's answer to CONNECT, in seconds; 0 means a day."""
    answer_seconds: float = 15.0
    """Timeout of a broker's answer to a lookup, in seconds: half of the clients' default timeout."""
    read_seconds: float = 75.0
    """Time without data from a broker after which its tunnel is closed, in seconds; 0: never."""
    keep_alive_seconds: float = 30.0
    """Interval of keep-alive PINGs, in seconds; 0: no keep-alive."""
    active_only: bool = False
    """Whether targets must be registered brokers."""
    forward_credentials: bool = False
    """Whether to forward the clients' credentials to brokers."""
    refresh_seconds: float = 60.0
    """Time before the expiry of a client's credentials at which new credentials are requested, in seconds."""
    connections: int = 10_000
    """Maximum number of connections; 0: no limit."""
    connections_of_address: int = 0
    lookups: int = 50_000
    redirects: bool = False
    """Whether clients are redirected to a broker (service discovery)."""
    balancers: Networks = ()
    """Networks of trusted load balancers, whose PROXY headers are read; empty: no headers are expected."""


@dataclass(slots=True)
class OpenTunnel:
    """The statistics of a tunnel, for ``proxy-stats``."""

    client: str
    broker: str
    pieces_before: int = 0
    bytes_before: int = 0
    piece_rate: float = 0.0
    """Pieces of data forwarded per second in the last measured minute."""
    byte_rate: float = 0.0
    heard_before: int = 0


class ProxyService:
    """The connections, lookups and tunnels of one proxy."""

    def __init__(
        self,
        io: Io,
        options: ProxyOptions,
        brokers: Brokers,
        targets: AllowedTargets,
        network: ConnectingNetwork,
        authenticator: Authenticator,
        get_auth_data: GetAuthData | None,
    ) -> None:
        """:param network: the network for brokers, which connects only to allowed addresses
        :param get_auth_data: returns the proxy's credentials for brokers; None: no credentials
        """
        self.io = io
        self.options = options
        self.brokers = brokers
        self.figures = Figures()
        self.authenticator = authenticator
        self.max_frame = max_frame_size(options.max_message_size)
        self.tunnels: dict[Tunnel, OpenTunnel] = {}
        self.lookups = 0
        """The number of lookups in progress."""
        self.stopping = False
        self._targets = targets
        self._network = network
        self._get_auth_data = get_auth_data
        self._closing: dict[object, Callable[[], object]] = {}
        self._of_host: dict[str, int] = {}
        self._empty: Future[None] | None = None
        self._rates = io.loop.call_later(_RATES_SECONDS, self._measure)
        self._silence: Cancellable | None = None
        if options.read_seconds:
            self._silence = io.loop.call_later(options.read_seconds, self._leave_silent)

    # connections

    def opened(self, connection: object, close: Callable[[], object]) -> bool:
        """Registers a connection; returns False if there are too many connections or the proxy is stopping.

        :param close: called when the proxy stops
        """
        self.figures.new_connections += 1
        most = self.options.connections
        if self.stopping or 0 < most <= len(self._closing):
            self.figures.rejected_connections += 1
            return False
        self._closing[connection] = close
        self.figures.active_connections = len(self._closing)
        return True

    def counted(self, host: str) -> bool:
        """Counts a connection of the client address ``host``; returns False, without counting the connection,
        if the address has too many connections.
        """
        most, there = self.options.connections_of_address, self._of_host.get(host, 0)
        if 0 < most <= there:
            self.figures.rejected_connections += 1
            return False
        self._of_host[host] = there + 1
        return True

    def closed(self, connection: object, host: str) -> None:
        """Called when a connection is closed.

        :param host: the address for which the connection was counted; empty: the connection was not counted
        """
        self._closing.pop(connection, None)
        self.figures.active_connections = len(self._closing)
        if host:
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]

    async def stop(self) -> None:
        """Closes all connections after pending data is sent; returns when all tunnels have ended."""
        self.stopping = True
        self._rates.cancel()
        if self._silence is not None:
            self._silence.cancel()
        for close in list(self._closing.values()):
            close()
        if self.tunnels:
            self._empty = self.io.loop.create_future()
            await finished(self.io.loop, self._empty)

    # brokers

    def check(self, target: BrokerTarget) -> None:
        """Checks that the proxy may connect clients to a target.

        :raises TargetDenied: the target is not allowed
        """
        self._targets.check(target)
        if self.options.active_only and not self.is_known(target):
            raise TargetDenied(f"{target} is not a registered broker (checkActiveBrokers)")

    def check_redirect(self, target: BrokerTarget) -> None:
        """Checks whether a lookup can be redirected to a target.

        :raises TargetDenied: the target is not allowed
        """
        if not self.is_known(target):
            self._targets.check(target)

    def is_known(self, target: BrokerTarget) -> bool:
        return any(target in (one.target(tls=False), one.target(tls=True)) for one in self.brokers.all)

    async def connected(
        self, target: BrokerTarget, connect: CommandConnect, *, hand_over: bool
    ) -> BrokerConnection:
        """Returns a connection to a broker after its answer to CONNECT.

        :param connect: the CONNECT command for the broker, without the proxy's own credentials
        :raises BrokerRefused: the broker refused the proxy, or its client
        :raises BrokerLost: the broker does not answer
        """
        made: list[BrokerConnection] = []
        asked = CommandConnect()
        asked.CopyFrom(connect)

        def factory() -> BrokerConnection:
            get_auth_data = None if hand_over else self._get_auth_data
            made.append(
                BrokerConnection(self.io.loop, asked, self.max_frame, get_auth_data, hand_over=hand_over)
            )
            return made[-1]

        async def establish() -> BrokerConnection:
            if self._get_auth_data is not None:
                asked.auth_method_name, asked.auth_data = await self._get_auth_data()
            await self._network.connect(target.host, target.port, factory)
            await made[-1].ready
            return made[-1]

        seconds = self.options.connect_seconds or _DAY_SECONDS
        found: BrokerConnection | None = None
        try:
            found = await within(self.io.loop, seconds, establish(), f"connecting to {target}")
            return found
        except (OSError, Timeout) as error:
            raise BrokerLost(f"{target} cannot be reached: {error}") from error
        except TlsRefused as error:
            raise BrokerLost(f"TLS: {error}") from error
        except ValueError as error:
            reason = "The credentials of the proxy cannot be used"
            log.error("cannot use the credentials of the proxy", extra={"reason": str(error)})
            raise BrokerRefused(ServerErrorCode.AUTHENTICATION, reason) from error
        finally:
            for each in made:
                if each is not found:
                    each.abort()

    # tunnels

    def tunnel_opened(self, tunnel: Tunnel, client: str, broker: str) -> None:
        self.tunnels[tunnel] = OpenTunnel(client, broker)

    def tunnel_gone(self, tunnel: Tunnel) -> None:
        if self.tunnels.pop(tunnel, None) is not None:
            self.figures.binary_ops += tunnel.pieces
            self.figures.binary_bytes += tunnel.moved
        if not self.tunnels and self._empty is not None:
            settle(self._empty)

    def _measure(self) -> None:
        self._rates = self.io.loop.call_later(_RATES_SECONDS, self._measure)
        for tunnel, told in self.tunnels.items():
            side = tunnel.from_client
            told.piece_rate = (side.pieces - told.pieces_before) / _RATES_SECONDS
            told.byte_rate = (side.moved - told.bytes_before) / _RATES_SECONDS
            told.pieces_before, told.bytes_before = side.pieces, side.moved

    def _leave_silent(self) -> None:
        """Closes tunnels without data from the broker, because a live broker sends at least keep-alive
        PINGs.
        """
        self._silence = self.io.loop.call_later(self.options.read_seconds, self._leave_silent)
        for tunnel, told in list(self.tunnels.items()):
            pieces = tunnel.from_broker.pieces
            if pieces == told.heard_before:
                log.warning(
                    "closing the connection: the broker is silent",
                    extra={"broker": told.broker, "peer": told.client},
                )
                tunnel.close()
            told.heard_before = pieces


@dataclass(slots=True)
class Figures:
    """Counts since the start, and the number of open connections."""

    active_connections: int = 0
    new_connections: int = 0
    rejected_connections: int = 0
    binary_ops: int = 0
    """Number of pieces of data forwarded by tunnels that have ended."""
    binary_bytes: int = 0
    lookup_requests: int = 0
    partitions_metadata_requests: int = 0
    get_topics_of_namespace_requests: int = 0
    get_schema_requests: int = 0
    rejected_lookup_requests: int = 0
    rejected_partitions_metadata_requests: int = 0
    rejected_get_topics_of_namespace_requests: int = 0
    denied_targets: int = 0
    """Number of client requests for targets that are not allowed."""
    http_requests: int = 0
    """Number of forwarded requests."""


_OWN = frozenset({"denied_targets", "http_requests"})


def exposition(figures: Figures, live_ops: int, live_bytes: int, cluster: str) -> str:
    """Returns the content of ``/metrics``.

    :param live_ops: number of pieces of data forwarded by tunnels that are open
    :param live_bytes: number of bytes forwarded by tunnels that are open
    """
    return "\n".join(_lines(figures, live_ops, live_bytes, cluster)) + "\n"


def _lines(figures: Figures, live_ops: int, live_bytes: int, cluster: str) -> Iterator[str]:
    labels = f'{{cluster="{cluster}"}}' if cluster else ""
    more = {"binary_ops": live_ops, "binary_bytes": live_bytes}
    for each in fields(Figures):
        value = getattr(figures, each.name) + more.get(each.name, 0)
        name = f"{'magnetar' if each.name in _OWN else 'pulsar'}_proxy_{each.name}"
        if each.name == "active_connections":
            yield f"# TYPE {name} gauge"
        else:
            yield f"# TYPE {name} counter"
            name += "_total"
        yield f"{name}{labels} {value}"
