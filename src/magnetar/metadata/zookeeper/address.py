"""The address of a ZooKeeper ensemble: ``zk:host:port,host:port/chroot``, as in Pulsar's settings."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import check_path

DEFAULT_PORT = 2181
_SCHEMES = ("zk:", "zookeeper:")


class AddressRefused(ValueError):
    """The string is not the address of a ZooKeeper ensemble."""


@dataclass(frozen=True, slots=True)
class EnsembleAddress:
    hosts: tuple[tuple[str, int], ...]
    chroot: str = ""
    """The root of all paths, without a trailing slash; empty: no chroot."""

    def __str__(self) -> str:
        return ",".join(f"{_written(host)}:{port}" for host, port in self.hosts) + self.chroot


def ensemble_address(text: str) -> EnsembleAddress:
    """Returns the address of an ensemble.

    :param text: the address, with or without a scheme
        (https://pulsar.apache.org/docs/4.0.x/administration-metadata-store/)
    :raises AddressRefused: the string is not a valid address
    """
    rest = text.strip()
    for scheme in _SCHEMES:
        if rest.startswith(scheme):
            rest = rest[len(scheme) :].removeprefix("//")
            break
    hosts, slash, chroot = rest.partition("/")
    path = (slash + chroot).rstrip("/")
    try:
        if path:
            check_path(path)
    except ValueError as error:
        raise AddressRefused(f"{text!r}: {error}") from error
    found = tuple(_host_and_port(text, each.strip()) for each in hosts.split(","))
    return EnsembleAddress(found, path)


def _host_and_port(text: str, given: str) -> tuple[str, int]:
    host, colon, port = given.rpartition(":")
    if not colon or given.endswith("]"):
        host, port = given, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise AddressRefused(f"{text!r} has no host")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise AddressRefused(f"{text!r}: {port!r} is not a port")
    return host, int(port)


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
