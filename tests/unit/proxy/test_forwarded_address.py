"""Headers of load balancers, whole, in pieces and broken."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.proxy.forwarded_address import HeaderRefused, ProxyHeader, read_header

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LINE = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 6650\r\n"


def version_2(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(body).to_bytes(2, "big") + body


V4 = version_2(
    0x21,
    0x11,
    ip_address("192.0.2.1").packed + ip_address("198.51.100.1").packed + b"\xdc\x04\x19\xfa" + b"tlv",
)
V6 = version_2(
    0x21, 0x21, ip_address("2001:db8::1").packed + ip_address("2001:db8::2").packed + b"\xdc\x04\x19\xfa"
)


@pytest.mark.parametrize(
    ("data", "host", "port"),
    [
        (LINE, "192.0.2.1", 56324),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n", "2001:db8::1", 1),
        (b"PROXY UNKNOWN\r\n", "", 0),
        (V4, "192.0.2.1", 56324),
        (V6, "2001:db8::1", 56324),
        (version_2(0x20, 0, b""), "", 0),
        (version_2(0x21, 0x31, b"\0" * 216), "", 0),
    ],
)
def test_a_header_is_read_however_it_comes(data: bytes, host: str, port: int) -> None:
    assert read_header(data + b"rest") == ProxyHeader(host, port, len(data))
    for length in range(len(data)):
        assert read_header(data[:length]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
        b"PROXY TCP4 host 198.51.100.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 65536 2\r\n",
        b"PROXY " + b"x" * 110,
        version_2(0x11, 0x11, b"\0" * 12),
        version_2(0x22, 0x11, b"\0" * 12),
        version_2(0x21, 0x11, b"\0" * 11),
        version_2(0x21, 0x11, b"\0" * 4096),
    ],
)
def test_a_broken_header_is_refused(data: bytes) -> None:
    with pytest.raises(HeaderRefused):
        read_header(data)


def test_a_connection_without_a_header_has_none() -> None:
    assert read_header(b"\x00\x00\x00\x10") == ProxyHeader("", 0, 0)


@given(st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"]), st.binary())
def test_anything_is_read_or_refused(beginning: bytes, rest: bytes) -> None:
    try:
        found = read_header(beginning + rest)
    except HeaderRefused:
        return
    assert found is None or 0 <= found.size <= len(beginning + rest)
