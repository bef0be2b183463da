"""The addresses that a broker listens on and advertises: ports, bind addresses, advertised listeners.

``bindAddresses``, ``advertisedListeners`` and ``internalListenerName`` are those of PIP-61 and PIP-95.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from magnetar.broker.ownership.contract import Addresses
from magnetar.config.settings import Settings, SettingsContradict
from magnetar.lazy_dataclass import dataclass

BINARY, BINARY_TLS, HTTP, HTTPS = "pulsar", "pulsar+ssl", "http", "https"
SCHEMES = (BINARY, BINARY_TLS, HTTP, HTTPS)
_ADDRESS = re.compile(
    r"(?:(?P<name>[-\w]+):)?(?P<scheme>pulsar\+ssl|pulsar|https|http)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[-.\w]+)?\]|[^:/\[\]\s]+):(?P<port>[0-9]{1,5})/?"
)
_FIELDS = {BINARY: "binary", BINARY_TLS: "binary_tls", HTTP: "http", HTTPS: "http_tls"}
_OPTIONS = {BINARY: "--binary-port", HTTP: "--http-port"}


@dataclass(frozen=True, slots=True)
class BindAddress:
    """One address that the broker listens on."""

    scheme: str
    """One of :data:`SCHEMES`."""
    host: str
    port: int
    """0: any free port."""
    listener: str = ""
    """The advertised listener whose addresses clients of this address get; empty: the main one."""

    @property
    def tls(self) -> bool:
        return self.scheme in (BINARY_TLS, HTTPS)

    @property
    def binary(self) -> bool:
        return self.scheme in (BINARY, BINARY_TLS)

    @property
    def option(self) -> str:
        """The setting or option that changes the port."""
        return _OPTIONS.get(self.scheme, "another port in the settings, or")


def bind_addresses(settings: Settings) -> Sequence[BindAddress]:
    """Returns all bind addresses, those of the port settings first.

    :raises SettingsContradict: an address is malformed or given twice, or a protocol has none
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
    """The addresses that clients get."""

    main: Addresses
    """For clients that name no listener."""
    listeners: Mapping[str, Addresses]


def advertised(settings: Settings, host: str, ports: Mapping[str, int]) -> Advertised:
    """Returns the advertised addresses once the ports are known.

    :param host: for clients that name no listener
    :param ports: by scheme, of the bind addresses without a listener name
    :raises SettingsContradict: the settings of listeners contradict each other
    """
    own = Addresses(None)
    for scheme, port in ports.items():
        own = _with(own, scheme, f"{scheme}://{host}:{port}")
    named: dict[str, Addresses] = {}
    for name, scheme, address, port in _addresses("advertisedListeners", settings.advertised_listeners):
        if not name:
            raise SettingsContradict("advertisedListeners must be name:scheme://host:port")
        known = named.get(name, Addresses(None))
        if getattr(known, _FIELDS[scheme]) is not None:
            raise SettingsContradict(
                f"advertisedListeners has two addresses with the scheme {scheme} for the listener {name}"
            )
        named[name] = _with(known, scheme, f"{scheme}://{address}:{port}")
    if named and settings.advertised_address:
        raise SettingsContradict("advertisedAddress and advertisedListeners cannot be used together")
    internal = settings.internal_listener_name
    if internal and internal not in named:
        raise SettingsContradict(f"internalListenerName {internal!r} is not among advertisedListeners")
    if not named:
        return Advertised(own, {})
    first = named[internal or next(iter(named))]
    return Advertised(_completed(first, own), {name: _completed(at, own) for name, at in named.items()})


def check_listeners(settings: Settings, all_addresses: Sequence[BindAddress]) -> None:
    """:raises SettingsContradict: a bind address names a listener that is not advertised"""
    told = advertised(settings, "localhost", {})
    for bind in all_addresses:
        if bind.listener and bind.listener not in told.listeners:
            raise SettingsContradict(
                f"bindAddresses has the listener {bind.listener!r}, which is not in advertisedListeners"
            )


def _completed(listener: Addresses, own: Addresses) -> Addresses:
    """Adds the broker's HTTP addresses to a listener without its own."""
    return replace(
        listener,
        http=listener.http or own.http,
        http_tls=listener.http_tls or own.http_tls,
    )


def _with(addresses: Addresses, scheme: str, url: str) -> Addresses:
    values: dict[str, str] = {_FIELDS[scheme]: url}
    return replace(addresses, **values)


def _addresses(setting: str, text: str) -> Sequence[tuple[str, str, str, int]]:
    """Returns name (may be empty), scheme, host and port of each address.

    :raises SettingsContradict: the text is malformed
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
