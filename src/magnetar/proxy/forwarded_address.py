"""The header in which a load balancer sends a client's address: HAProxy's PROXY protocol, versions 1 and
2.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import NamedTuple

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_VERSION_1 = b"PROXY "
_MAX_LINE = 107
"""Maximum size of a version 1 header, in bytes."""
_HEAD = Struct(">12sBBH")
_PORTS = Struct(">HH")
_VERSION_2, _LOCAL, _PROXY = 0x20, 0, 1
_FAMILIES: dict[int, tuple[type[IPv4Address | IPv6Address], int]] = {
    0x11: (IPv4Address, 4),
    0x21: (IPv6Address, 16),
}
MAX_HEADER_BYTES = 2048
"""Maximum size of a version 2 header, in bytes, which can contain more than addresses."""


class HeaderRefused(ValueError):
    """The data starts like a PROXY header, but is not valid."""


class ProxyHeader(NamedTuple):
    """The contents of a PROXY header."""

    host: str
    """The client's address; empty: the load balancer itself connects, or does not send the address."""
    port: int
    size: int
    """Size of the header in bytes."""


def read_header(data: bytes) -> ProxyHeader | None:
    """Returns the header at the start of a connection (size 0: there is no header); None: the header is
    incomplete.

    :raises HeaderRefused: the header is not valid
    """
    if not data:
        return None
    for beginning, read in ((_VERSION_1, _version_1), (_SIGNATURE, _version_2)):
        if data.startswith(beginning):
            return read(data)
        if beginning.startswith(data):
            return None
    return ProxyHeader("", 0, 0)


def _version_1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _MAX_LINE)
    if end < 0:
        if len(data) >= _MAX_LINE:
            raise HeaderRefused(f"the PROXY line does not end within {_MAX_LINE} bytes")
        return None
    words = data[:end].split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return ProxyHeader("", 0, end + 2)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise HeaderRefused(f"the PROXY line must be PROXY TCP4|TCP6 and four fields, not {data[:end]!r}")
    try:
        host, port = str(ip_address(words[2].decode("ascii"))), int(words[4])
    except ValueError as error:
        raise HeaderRefused(f"the PROXY line {data[:end]!r} has an invalid address or port") from error
    if not 0 <= port < 1 << 16:
        raise HeaderRefused(f"the PROXY line has the invalid port {port}")
    return ProxyHeader(host, port, end + 2)


def _version_2(data: bytes) -> ProxyHeader | None:
    if len(data) < _HEAD.size:
        return None
    _signature, command, family, length = _HEAD.unpack_from(data)
    size = _HEAD.size + length
    if command & 0xF0 != _VERSION_2 or command & 0x0F not in (_LOCAL, _PROXY):
        raise HeaderRefused(f"the PROXY header has the unknown command {command:#x}")
    if size > MAX_HEADER_BYTES:
        raise HeaderRefused(f"the PROXY header has {size} bytes; at most {MAX_HEADER_BYTES} are accepted")
    if len(data) < size:
        return None
    if command & 0x0F == _LOCAL or family not in _FAMILIES:
        return ProxyHeader("", 0, size)
    kind, width = _FAMILIES[family]
    if length < 2 * width + _PORTS.size:
        raise HeaderRefused("the PROXY header is too short for its addresses")
    source = data[_HEAD.size : _HEAD.size + width]
    port = _PORTS.unpack_from(data, _HEAD.size + 2 * width)[0]
    return ProxyHeader(str(kind(source)), port, size)
