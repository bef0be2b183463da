"""The addresses of a server process: listening and advertised addresses, accepted host names in requests, and
warnings about insecure listeners.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from magnetar.broker.ownership.contract import Addresses
from magnetar.config.settings import Settings, SettingsContradict
from magnetar.http.engine.origins import ANY, Hosts
from magnetar.lazy_dataclass import dataclass

BINARY, BINARY_TLS, HTTP, HTTPS = "pulsar", "pulsar+ssl", "http", "https"
SCHEMES = (BINARY, BINARY_TLS, HTTP, HTTPS)
_ADDRESS = re.compile(
    r"(?:(?P<name>[-\w]+):)?(?P<scheme>pulsar\+ssl|pulsar|https|http)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[-.\w]+)?\]|[^:/\[\]\s]+):(?P<port>[0-9]{1,5})/?"
)
_FIELDS = {BINARY: "binary", BINARY_TLS: "binary_tls", HTTP: "http", HTTPS: "http_tls"}
_OPTIONS = {BINARY: "--binary-port", HTTP: "--http-port"}
_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # nosec B104 - compared, not bound to


@dataclass(frozen=True, slots=True)
class BindAddress:
    """One address that the broker listens on.

    PIP-61 and PIP-95 define ``bindAddresses``, ``advertisedListeners`` and ``internalListenerName``.
    """

    scheme: str
    """The protocol: one of :data:`SCHEMES`."""
    host: str
    port: int
    """The port; 0: any free port."""
    listener: str = ""
    """The advertised listener whose addresses the broker returns to clients that connect to this bind
    address; empty: the default listener.
    """

    @property
    def tls(self) -> bool:
        return self.scheme in (BINARY_TLS, HTTPS)

    @property
    def binary(self) -> bool:
        return self.scheme in (BINARY, BINARY_TLS)

    @property
    def option(self) -> str:
        """The name of the setting or command-line option that changes the port."""
        return _OPTIONS.get(self.scheme, "another port in the settings, or")


def bind_addresses(settings: Settings) -> Sequence[BindAddress]:
    """Returns all bind addresses, starting with the addresses of the port settings.

    :raises SettingsContradict: an address is malformed or given twice, or a protocol has no address
    """
    host = settings.bind_address
    ports = (
        (BINARY, settings.broker_service_port),
        (BINARY_TLS, settings.broker_service_port_tls),
        (HTTP, settings.web_service_port),
        (HTTPS, settings.web_service_port_tls),
    )
    found = [BindAddress(scheme, host, port) for scheme, port in ports if port is not None]
    for name, scheme, address, port in _addresses("bindAddresses", settings.bind_addresses):
        found.append(BindAddress(scheme, address.strip("[]"), port, name))
    taken = [(bind.host, bind.port) for bind in found if bind.port]
    for place in taken:
        if taken.count(place) > 1:
            raise SettingsContradict(f"{place[0]}:{place[1]} is configured for two ports")
    if settings.tls_enabled and not any(bind.tls for bind in found):
        raise SettingsContradict(
            "tlsEnabled requires brokerServicePortTls or webServicePortTls: otherwise no port uses TLS"
        )
    for kind, least in (("binary protocol", (BINARY, BINARY_TLS)), ("HTTP", (HTTP, HTTPS))):
        if not any(bind.scheme in least for bind in found):
            raise SettingsContradict(f"no port is configured for the {kind}")
    return found


@dataclass(frozen=True, slots=True)
class Advertised:
    """The addresses that clients get from the broker."""

    main: Addresses
    """The addresses for clients that request no listener by name."""
    listeners: Mapping[str, Addresses]


def advertised(settings: Settings, host: str, ports: Mapping[str, int]) -> Advertised:
    """Returns the advertised addresses once the ports are known.

    :param host: the host for clients that request no listener by name
    :param ports: the ports of the bind addresses without a listener name, by scheme
    :raises SettingsContradict: the settings of listeners contradict each other
    """
    own = Addresses(None)
    for scheme, port in ports.items():
        own = _with(own, scheme, f"{scheme}://{host}:{port}")
    named: dict[str, Addresses] = {}
    for name, scheme, address, port in _addresses("advertisedListeners", settings.advertised_listeners):
        if not name:
            raise SettingsContradict(
                "advertisedListeners must be name:scheme://host:port, but "
                f"{scheme}://{address}:{port} has no name"
            )
        known = named.get(name, Addresses(None))
        if getattr(known, _FIELDS[scheme]) is not None:
            raise SettingsContradict(
                f"advertisedListeners has two addresses with the scheme {scheme} for the listener {name}"
            )
        named[name] = _with(known, scheme, f"{scheme}://{address}:{port}")
    if named and settings.advertised_address:
        raise SettingsContradict(
            "advertisedAddress and advertisedListeners cannot be used together; remove one of the two"
        )
    internal = settings.internal_listener_name
    if internal and internal not in named:
        raise SettingsContradict(
            f"internalListenerName {internal!r} is not in advertisedListeners; add it there"
        )
    if not named:
        return Advertised(own, {})
    first = named[internal or next(iter(named))]
    return Advertised(_completed(first, own), {name: _completed(at, own) for name, at in named.items()})


def check_listeners(settings: Settings, all_addresses: Sequence[BindAddress]) -> None:
    """Checks the listeners that bind addresses name.

    :raises SettingsContradict: a bind address names a listener that is not advertised
    """
    told = advertised(settings, "localhost", {})
    for bind in all_addresses:
        if bind.listener and bind.listener not in told.listeners:
            raise SettingsContradict(
                f"bindAddresses has the listener {bind.listener!r}, which is not in "
                "advertisedListeners; add it there"
            )


def _completed(listener: Addresses, own: Addresses) -> Addresses:
    """Adds the broker's HTTP address and HTTPS address to a listener, unless the listener has its own."""
    return replace(
        listener,
        http=listener.http or own.http,
        http_tls=listener.http_tls or own.http_tls,
    )


def _with(addresses: Addresses, scheme: str, url: str) -> Addresses:
    values: dict[str, str] = {_FIELDS[scheme]: url}
    return replace(addresses, **values)


def _addresses(setting: str, text: str) -> Sequence[tuple[str, str, str, int]]:
    """Returns the listener name (possibly empty), scheme, host and port of each address.

    :raises SettingsContradict: the value is malformed
    """
    found = []
    for piece in filter(None, map(str.strip, text.split(","))):
        match = _ADDRESS.fullmatch(piece)
        if match is None or int(match["port"]) > 65535:
            raise SettingsContradict(
                f"{setting}: {piece!r} must be name:scheme://host:port with one of the schemes "
                f"{', '.join(SCHEMES)}"
            )
        found.append((match["name"] or "", match["scheme"], match["host"], int(match["port"])))
    return found


class Exposure(NamedTuple):
    """A warning about insecure listeners: what was found, and what to do about it."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}. {self.advice}"


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach a listener on ``host``.

    :param host: an address or a name, as in ``bindAddress``. The only name that counts as loopback is
        ``localhost``
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def exposures(settings: Settings, listening: Sequence[BindAddress]) -> Sequence[Exposure]:
    """Returns warnings about insecure listeners that other machines can reach.

    :param listening: see :func:`magnetar.server.addresses.bind_addresses`
    """
    reached = [bind for bind in listening if not is_loopback(bind.host)]
    return [*_unauthenticated(settings, reached), *_misled(settings, reached)]


def _unauthenticated(settings: Settings, reached: Sequence[BindAddress]) -> Sequence[Exposure]:
    if settings.authentication_enabled or not reached:
        return []
    where = ", ".join(f"{bind.scheme} on {_shown(bind)}" for bind in reached)
    found = (
        f"Other machines reach {where} without authentication: anyone there may publish, consume and "
        "administer"
    )
    return [Exposure(found, "Set authenticationEnabled=true, or bindAddress=127.0.0.1")]


def _misled(settings: Settings, reached: Sequence[BindAddress]) -> Sequence[Exposure]:
    """Returns a warning if the broker advertises a loopback address to other machines, because lookups would
    direct a client on another machine to the client's own machine."""
    if settings.advertised_address or settings.advertised_listeners:
        return []
    if not any(bind.host in _ALL_ADDRESSES for bind in reached):
        return []
    found = (
        "The broker listens on all addresses but advertises localhost, so clients on other machines "
        "connect to themselves"
    )
    return [
        Exposure(found, "Set advertisedAddress to a name or address at which other machines reach this one")
    ]


def _shown(bind: BindAddress) -> str:
    host = f"[{bind.host}]" if ":" in bind.host else bind.host or "all addresses"
    return f"{host}:{bind.port}"


class NameSettings(Protocol):
    """Settings of the host names under which plain HTTP requests can address a process."""

    @property
    def bind_address(self) -> str: ...
    @property
    def magnetar_http_allowed_hosts(self) -> tuple[str, ...]: ...
    @property
    def magnetar_http_allowed_origins(self) -> tuple[str, ...]: ...


def hosts_of(settings: NameSettings, own: Iterable[str] = ()) -> Hosts:
    """Returns the accepted host names: ``own``, the machine's names, and the allowed names in the settings.
    The hosts of the permitted web origins are accepted, too, because a page that may write may also read.

    :raises SettingsContradict: an allowed name is malformed
    """
    allowed = settings.magnetar_http_allowed_hosts
    origins = settings.magnetar_http_allowed_origins
    if ANY in origins:
        allowed = (*allowed, ANY)
    named = (urlsplit(origin).hostname or "" for origin in origins if origin != ANY)
    try:
        return Hosts((settings.bind_address, socket.gethostname(), *own, *named), allowed)
    except ValueError as error:
        raise SettingsContradict(str(error)) from error


def hosts_of_broker(settings: Settings, host: str) -> Hosts:
    """Returns the host names under which HTTP requests may address this broker.

    :param host: the host that the broker advertises
    :raises SettingsContradict: an allowed name is malformed, or listeners contradict each other
    """
    told = advertised(settings, host, {})
    urls = [
        url
        for at in (told.main, *told.listeners.values())
        for url in (at.binary, at.binary_tls, at.http, at.http_tls)
        if url
    ]
    named = [urlsplit(url).hostname or "" for url in urls]
    return hosts_of(settings, (host, *named, *(bind.host for bind in bind_addresses(settings))))
