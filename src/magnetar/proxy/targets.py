"""The targets that clients may be connected with: ``brokerProxyAllowed…`` of a proxy's settings."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from magnetar.lazy_dataclass import dataclass

_ANY = "*"
_HOST = re.compile(r"[-_.\w]{1,253}|[0-9A-Fa-f:.]{2,45}(%[-.\w]{1,32})?", re.ASCII)
Networks = tuple[IPv4Network | IPv6Network, ...]


class TargetDenied(Exception):
    """The target is not allowed; the text is for the log, not for the client."""


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """The address of a broker in requests and answers."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def target_of(text: str) -> BrokerTarget:
    """:param text: ``host:port``; an IPv6 address in brackets

    :raises TargetDenied: the text has another form
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit() and len(port) < 6):
        raise TargetDenied(f"{text[:300]!r} must be host:port")
    number = int(port)
    if not 0 < number < 1 << 16:
        raise TargetDenied(f"{number} is not a port")
    return BrokerTarget(host, number)


class AllowedTargets:
    """The allowed targets of the settings."""

    def __init__(self, hosts: str = _ANY, addresses: str = _ANY, ports: str = _ANY) -> None:
        """Each argument is a list separated by commas; ``*`` allows all.

        :param hosts: names, with ``*`` for any number of characters
        :param addresses: addresses and networks
        :raises ValueError: an address or a port is malformed
        """
        self._hosts = _patterns(_parts(hosts))
        self._networks = None if _ANY in _parts(addresses) else networks_of(addresses)
        self._ports = None if _ANY in _parts(ports) else frozenset(map(_port, _parts(ports)))

    def check(self, target: BrokerTarget) -> None:
        """:raises TargetDenied: the port or the name is not allowed"""
        if self._ports is not None and target.port not in self._ports:
            raise TargetDenied(f"the port of {target} is not allowed (brokerProxyAllowedTargetPorts)")
        self.check_host(target.host)

    def check_host(self, host: str) -> None:
        """:raises TargetDenied: the name is not allowed"""
        if self._hosts is not None and not any(each.fullmatch(host) for each in self._hosts):
            raise TargetDenied(f"the host {host} is not allowed (brokerProxyAllowedHostNames)")

    def allows_address(self, address: str) -> bool:
        """Whether connections to a resolved address are allowed."""
        return self._networks is None or is_in(address, self._networks)


def networks_of(text: str) -> Networks:
    """:param text: addresses and networks, separated by commas

    :raises ValueError: an item is malformed
    """
    return tuple(ip_network(part, strict=False) for part in _parts(text))


def is_in(address: str, networks: Networks) -> bool:
    """Whether an address is in one of the networks; IPv4 addresses mapped to IPv6 count as IPv4."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found.version == each.version and found in each for each in networks)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _patterns(names: list[str]) -> list[re.Pattern[str]] | None:
    if _ANY in names:
        return None
    return [re.compile(".*".join(map(re.escape, name.split(_ANY))), re.IGNORECASE) for name in names]


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16):
        raise ValueError(f"{text!r} is not a port")
    return int(text)
