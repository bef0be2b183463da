"""The brokers behind a proxy, from the cluster's metadata or from settings."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import zip_longest
from typing import Protocol
from urllib.parse import urlsplit

from magnetar.io.interfaces import Loop, Task
from magnetar.io.tasks import TaskScope
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import Change, MetadataError, MetadataStore, SessionEvent

log = logging.getLogger(__name__)
BROKERS = "/loadbalance/brokers"
_VERSION_PREFIX = "magnetar-"
"""Prefix of the version that a Magnetar broker registers in the metadata."""
_AGAIN_SECONDS = 1.0
_ANY = "*"
_HOST = re.compile(r"[-_.\w]{1,253}|[0-9A-Fa-f:.]{2,45}(%[-.\w]{1,32})?", re.ASCII)
Networks = tuple[IPv4Network | IPv6Network, ...]


@dataclass(frozen=True, slots=True)
class Broker:
    """The addresses of a broker; an empty address means that there is no such listener."""

    binary: str = ""
    binary_tls: str = ""
    http: str = ""
    http_tls: str = ""
    magnetar: bool = False
    """Whether the broker is registered as a Magnetar broker, which serves web pages such as the dashboard."""

    def target(self, *, tls: bool) -> BrokerTarget | None:
        """Returns the address for the binary protocol, with or without TLS; None: no such listener."""
        return target_of_url(self.binary_tls if tls else self.binary)

    def web(self, *, tls: bool) -> str:
        return (self.http_tls if tls else self.http).rstrip("/")

    def is_named(self, name: str) -> bool:
        """Whether ``name`` is the ``host:port`` of the broker's HTTP address."""
        return any(url and urlsplit(url).netloc.lower() == name for url in (self.http, self.http_tls))


class Brokers(Protocol):
    """The active brokers."""

    @property
    def complete(self) -> bool:
        """Whether :attr:`all` contains all brokers of the cluster."""
        ...

    @property
    def all(self) -> Sequence[Broker]: ...

    def in_turn(self) -> Sequence[Broker]:
        """Returns all brokers, starting with a different broker at each call; callers use the first that
        answers.
        """
        ...

    async def close(self) -> None: ...


def brokers_of_page(brokers: Brokers, name: str) -> Sequence[Broker]:
    """Returns the brokers that can serve a page, always in the same order, so that an open page keeps showing
    the same broker.

    :param name: ``host:port`` of a broker, to return only this broker; empty: all brokers, Magnetar brokers
        first
    """
    if name:
        return [each for each in brokers.all if each.is_named(name.lower())]
    return sorted(brokers.all, key=lambda each: (not each.magnetar, each.http, each.http_tls))


def target_of_url(url: str) -> BrokerTarget | None:
    """Returns ``host:port`` of a broker's URL; None: the URL is malformed."""
    _scheme, separator, rest = url.partition("://")
    try:
        return target_of(rest.rstrip("/")) if separator else None
    except TargetDenied:
        return None


class _InTurn:
    def __init__(self) -> None:
        self._turn = 0

    def of(self, brokers: Sequence[Broker]) -> Sequence[Broker]:
        if not brokers:
            return ()
        first = self._turn % len(brokers)
        self._turn += 1
        return [*brokers[first:], *brokers[:first]]


class NamedBrokers:
    """The brokers in the settings."""

    complete = False
    """Always False: a lookup can return a broker that is not in the settings."""

    def __init__(self, binary: str, binary_tls: str, http: str, http_tls: str) -> None:
        """Creates the brokers from URLs, each of which can contain several addresses or be empty."""
        urls = _each(binary), _each(binary_tls), _each(http), _each(http_tls)
        self.all = [Broker(*each) for each in zip_longest(*urls, fillvalue="")]
        self._turns = _InTurn()

    def in_turn(self) -> Sequence[Broker]:
        return self._turns.of(self.all)

    async def close(self) -> None:
        """Does nothing."""


def _each(text: str) -> list[str]:
    """Splits a URL with several addresses: returns ``scheme://a`` and ``scheme://b`` for ``scheme://a,b``."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        return []
    return [f"{scheme}://{part.strip()}" for part in rest.rstrip("/").split(",") if part.strip()]


class RegisteredBrokers:
    """The brokers registered in ``/loadbalance/brokers``, which is read after changes, not for each lookup.
    If the metadata store does not answer, the last known brokers are used.
    """

    complete = True

    def __init__(self, loop: Loop, metadata: MetadataStore) -> None:
        self._loop = loop
        self._metadata = metadata
        self._known: dict[str, Broker] = {}
        self._unread: set[str] = set()
        """Names of brokers whose unreadable records have been logged, so that each is logged only once."""
        self._turns = _InTurn()
        self._tasks = TaskScope(loop, "the list of brokers", self._internal_error)
        self._reading: Task[None] | None = None
        self._stale = False
        self._open = False
        self._closed = False

    @property
    def all(self) -> Sequence[Broker]:
        return list(self._known.values())

    def in_turn(self) -> Sequence[Broker]:
        return self._turns.of(self.all)

    async def open(self) -> None:
        """Reads the registered brokers, and starts watching for changes.

        :raises MetadataError: the brokers cannot be read
        """
        self._metadata.listen(BROKERS, self._changed)
        self._metadata.listen_session(self._session_changed)
        await self._read()
        # Not before: with two concurrent reads, the one that ends last may have older data.
        self._open = True
        if self._stale:
            self._read_again()

    async def close(self) -> None:
        self._closed = True
        self._tasks.cancel()
        await self._metadata.close()

    def _changed(self, _change: Change) -> None:
        self._read_again()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._read_again()

    def _read_again(self) -> None:
        self._stale = True
        if self._reading is None and self._open and not self._closed:
            self._reading = self._tasks.start(self._read_until_fresh(), "reading it")

    async def _read_until_fresh(self) -> None:
        try:
            while self._stale:
                self._stale = False
                await self._read()
        except MetadataError as error:
            log.warning(
                "cannot read the list of brokers; keeping the known ones", extra={"reason": str(error)}
            )
            self._loop.call_later(_AGAIN_SECONDS, self._read_again)
        finally:
            self._reading = None

    def _internal_error(self, _work: str, _error: BaseException) -> None:
        self._loop.call_later(_AGAIN_SECONDS, self._read_again)

    async def _read(self) -> None:
        found: dict[str, Broker] = {}
        for name in await self._metadata.children(BROKERS):
            node = await self._metadata.get(f"{BROKERS}/{name}")
            broker = _broker_of(node.value) if node is not None else None
            if broker is not None:
                found[name] = broker
            elif node is not None and name not in self._unread:
                self._unread.add(name)
                log.warning("cannot read the record of a broker", extra={"broker": name})
        if found.keys() != self._known.keys():
            log.info("brokers", extra={"brokers": ", ".join(found)})
        self._known = found


def _broker_of(value: bytes) -> Broker | None:
    try:
        record = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    keys = ("pulsarServiceUrl", "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls")
    urls = [record.get(key) or "" for key in keys]
    if not all(isinstance(url, str) for url in urls) or not any(urls):
        return None
    magnetar = str(record.get("brokerVersionString") or "").startswith(_VERSION_PREFIX)
    if not all(map(_is_address, urls)):
        return None
    binary, binary_tls, http, http_tls = urls
    return Broker(binary, binary_tls, http, http_tls, magnetar)


def _is_address(url: str) -> bool:
    """Whether the URL contains a valid address, or is empty."""
    try:
        parts = urlsplit(url)
        return not url or (bool(parts.hostname) and parts.port != 0)
    except ValueError:
        return False


def is_web_of(brokers: Brokers, url: str) -> bool:
    """Whether a URL is the HTTP address of a broker."""
    asked = urlsplit(url)
    for broker in brokers.all:
        for own in (broker.http, broker.http_tls):
            parts = urlsplit(own)
            if own and (parts.scheme, parts.netloc.lower()) == (asked.scheme, asked.netloc.lower()):
                return True
    return False


class TargetDenied(Exception):
    """A target is not allowed; the message is for the log, not for the client."""


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """The address of a broker, in requests and answers."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def target_of(text: str) -> BrokerTarget:
    """Returns the broker address in a client's request.

    :param text: ``host:port``; an IPv6 address in brackets
    :raises TargetDenied: the string is not ``host:port``
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit() and len(port) < 6):
        raise TargetDenied(f"{text[:300]!r} is not an address; use host:port")
    number = int(port)
    if not 0 < number < 1 << 16:
        raise TargetDenied(f"{number} is not a port")
    return BrokerTarget(host, number)


class AllowedTargets:
    """The targets that the settings allow."""

    def __init__(self, hosts: str = _ANY, addresses: str = _ANY, ports: str = _ANY) -> None:
        """Each argument is a comma-separated list; ``*`` allows all.

        :param hosts: host names, with ``*`` for any characters
        :param addresses: IP addresses and networks
        :param ports: port numbers
        :raises ValueError: an address or a port is malformed
        """
        self._hosts = _patterns(_parts(hosts))
        self._networks = None if _ANY in _parts(addresses) else networks_of(addresses)
        self._ports = None if _ANY in _parts(ports) else frozenset(map(_port, _parts(ports)))

    def check(self, target: BrokerTarget) -> None:
        """Checks that the proxy may connect to a target.

        :raises TargetDenied: the port or the name is not allowed
        """
        if self._ports is not None and target.port not in self._ports:
            raise TargetDenied(f"the port of {target} is not allowed (brokerProxyAllowedTargetPorts)")
        self.check_host(target.host)

    def check_host(self, host: str) -> None:
        """Checks that the proxy may connect to a host.

        :raises TargetDenied: the name is not allowed
        """
        if self._hosts is not None and not any(each.fullmatch(host) for each in self._hosts):
            raise TargetDenied(f"the host {host} is not allowed (brokerProxyAllowedHostNames)")

    def allows_address(self, address: str) -> bool:
        """Whether connections to a resolved address are allowed."""
        return self._networks is None or is_in(address, self._networks)


def networks_of(text: str) -> Networks:
    """Returns the IP networks in a setting.

    :param text: addresses and networks, separated by commas
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
