"""Jute, ZooKeeper's serialization: big-endian numbers, texts and byte strings with their length in front.

https://zookeeper.apache.org/doc/r3.9.4/zookeeperInternals.html; a length of -1 means null.
"""

from __future__ import annotations

import struct

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


class JuteError(Exception):
    """The bytes are not the expected record."""


def put_int(into: bytearray, value: int) -> None:
    into += _INT.pack(value)


def put_long(into: bytearray, value: int) -> None:
    into += _LONG.pack(value)


def put_bool(into: bytearray, value: bool) -> None:
    into.append(value)


def put_bytes(into: bytearray, value: bytes) -> None:
    into += _INT.pack(len(value))
    into += value


def put_text(into: bytearray, value: str) -> None:
    put_bytes(into, value.encode())


class JuteReader:
    """Reads one value after another.

    :raises JuteError: in every method: there are too few bytes, or they are not a value of that type
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take_int(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def take_long(self) -> int:
        return int(_LONG.unpack(self._take(8))[0])

    def take_bool(self) -> bool:
        return self._take(1) != b"\0"

    def take_bytes(self) -> bytes:
        """Null is read as empty."""
        length = self.take_int()
        if length == -1:
            return b""
        return self._take(length)

    def take_text(self) -> str:
        try:
            return self.take_bytes().decode()
        except UnicodeDecodeError as error:
            raise JuteError(f"a text that is not UTF-8: {error}") from error

    def take_texts(self) -> list[str]:
        count = self.take_int()
        # Each element takes at least four bytes: a larger count is invalid, and must not allocate a list.
        if count > (len(self._data) - self._at) // 4:
            raise JuteError(f"{count} texts in {len(self._data)} bytes")
        return [self.take_text() for _ in range(count)]

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise JuteError(f"{length} bytes are wanted at {self._at} of {len(self._data)}")
        taken = self._data[self._at : end]
        self._at = end
        return taken
