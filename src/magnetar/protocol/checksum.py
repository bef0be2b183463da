"""CRC32-C over the bytes behind the checksum of an entry: metadata size, metadata, payload."""

from __future__ import annotations

from magnetar.io.crc32c import crc32c
from magnetar.protocol.errors import ChecksumMismatch

__all__ = ["checksum", "verify"]


def checksum(data: bytes | bytearray | memoryview) -> int:
    """CRC32-C (Castagnoli), unsigned 32 bit."""
    return crc32c(data)


def verify(data: bytes | bytearray | memoryview, expected: int) -> None:
    """:raises ChecksumMismatch: ``data`` has another checksum"""
    found = crc32c(data)
    if found != expected:
        raise ChecksumMismatch(expected, found)
