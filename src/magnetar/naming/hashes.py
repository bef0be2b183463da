"""Hash functions that clients and brokers must agree on."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from magnetar.io.crc32c import crc32c

_MASK = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF
_C1 = 0xCC9E2D51
_C2 = 0x1B873593


def murmur3_32(data: bytes, seed: int = 0) -> int:
    """Returns the hash of ``data`` by MurmurHash3 (x86, 32 bits), unsigned."""
    value = seed & _MASK
    whole = len(data) & ~3
    for offset in range(0, whole, 4):
        value ^= _scramble(int.from_bytes(data[offset : offset + 4], "little"))
        value = ((value << 13) | (value >> 19)) & _MASK
        value = (value * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        value ^= _scramble(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _MASK
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _MASK
    return value ^ (value >> 16)


def _scramble(block: int) -> int:
    block = (block * _C1) & _MASK
    block = ((block << 15) | (block >> 17)) & _MASK
    return (block * _C2) & _MASK


def murmur3_positive(data: bytes) -> int:
    """Returns :func:`murmur3_32` without the sign bit, for partition routing and sticky keys."""
    return murmur3_32(data) & 0x7FFFFFFF


def java_string_hash(text: str) -> int:
    """Returns Java's ``String.hashCode`` without the sign bit, for partition routing of clients that choose
    this hash.
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for offset in range(0, len(units), 2):
        value = (value * 31 + (units[offset] << 8 | units[offset + 1])) & _MASK
    return value & 0x7FFFFFFF


def boost_string_hash(data: bytes) -> int:
    """Returns the lowest 31 bits of ``boost::hash<std::string>`` (Boost 1.82 and later, 64 bits), for
    partition routing as in official C++ and Python clients."""
    golden, factor = 0x9E3779B97F4A7C15, 0xDF442D22CE4859B9
    weight = _folded_product(golden, factor)
    value = weight ^ len(data)
    whole = len(data) & ~7
    for offset in range(0, whole, 8):
        weight = (weight + golden) & _MASK_64
        value ^= _folded_product(int.from_bytes(data[offset : offset + 8], "little") + weight, factor)
    rest = data[whole:]
    last = 0
    if len(rest) >= 4:
        high = int.from_bytes(rest[-4:], "little") << (len(rest) - 4) * 8
        last = high | int.from_bytes(rest[:4], "little")
    elif rest:
        far, middle = (len(rest) - 1) & 2, len(rest) >> 1
        last = rest[far] << far * 8 | rest[middle] << middle * 8 | rest[0]
    weight = (weight + golden) & _MASK_64
    value ^= _folded_product(last + weight, factor)
    return _folded_product(value + weight, factor) & 0x7FFFFFFF


def _folded_product(left: int, right: int) -> int:
    """Returns the exclusive or of the upper and the lower 64 bits of a product."""
    product = (left & _MASK_64) * right
    return (product & _MASK_64) ^ (product >> 64)


def bundle_hash(name: str) -> int:
    """Returns the unsigned CRC-32 of a topic's full name, which determines the bundle of the topic."""
    return crc32(name.encode())


def topic_list_hash(names: Iterable[str]) -> str:
    """Returns the hash of a set of full topic names as eight hex digits. A client sends the hash of the set
    that it knows, and the broker returns the names only if its own set has another hash.
    """
    return sorted_topic_list_hash(sorted(names))


def sorted_topic_list_hash(names: Iterable[str]) -> str:
    """Returns :func:`topic_list_hash` of names that are sorted already."""
    return crc32c(",".join(names).encode()).to_bytes(4, "little").hex()
