"""Service URLs: ``pulsar://host[:port][,host[:port]...]``."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.client.exceptions import InvalidUrl, OperationNotSupported

DEFAULT_PORT = 6650


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_service_url(url: str) -> tuple[Address, ...]:
    """The brokers that a service URL names; at least one.

    :raises InvalidUrl: it is no ``pulsar://`` URL
    :raises OperationNotSupported: it asks for TLS
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "pulsar+ssl":
        raise OperationNotSupported(f"{url}: TLS is not supported yet")
    if scheme != "pulsar" or not separator:
        raise InvalidUrl(f"{url!r} is not an address like pulsar://localhost:6650")
    return tuple(_address(part, url) for part in rest.rstrip("/").split(","))


def _address(text: str, url: str) -> Address:
    host, port = text, ""
    if text.startswith("["):
        host, bracket, after = text[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise InvalidUrl(f"{url!r}: {text!r} is not host:port")
        port = after[1:]
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if not host or "/" in text or not (port == "" or (port.isascii() and port.isdigit())):
        raise InvalidUrl(f"{url!r}: {text!r} is not host:port")
    number = int(port) if port else DEFAULT_PORT
    if not 0 < number < 65536:
        raise InvalidUrl(f"{url!r}: {number} is not a port")
    return Address(host, number)
