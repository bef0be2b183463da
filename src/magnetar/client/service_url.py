"""Service URLs: ``pulsar://host[:port][,host[:port]...]``; with TLS ``pulsar+ssl://``."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.client.exceptions import InvalidUrl

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_service_url(url: str) -> tuple[Address, ...]:
    """Returns the brokers of a service URL; at least one.

    :raises InvalidUrl: the text is neither a ``pulsar://`` nor a ``pulsar+ssl://`` URL
    """
    scheme, separator, rest = url.partition("://")
    port = _PORTS.get(scheme)
    if port is None or not separator:
        raise InvalidUrl(f"{url!r} is not an address like pulsar://localhost:6650")
    return tuple(_address(part, url, port) for part in rest.rstrip("/").split(","))


def is_secured(url: str) -> bool:
    """Whether a service URL is for TLS."""
    return url.startswith("pulsar+ssl://")


def _address(text: str, url: str, default_port: int) -> Address:
    host, port = text, ""
    if text.startswith("["):
        host, bracket, after = text[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise InvalidUrl(f"{url!r}: {text!r} must be host:port")
        port = after[1:]
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if not host or "/" in text or not (port == "" or (port.isascii() and port.isdigit())):
        raise InvalidUrl(f"{url!r}: {text!r} must be host:port")
    number = int(port) if port else default_port
    if not 0 < number < 65536:
        raise InvalidUrl(f"{url!r}: {number} is not a port")
    return Address(host, number)
