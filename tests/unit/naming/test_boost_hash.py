"""The hash by which official C++ and Python clients choose a partition."""

from __future__ import annotations

import pytest

from magnetar.naming.hashes import boost_string_hash

PARTITIONS = 64
# Where version 3.13 of the official Python client sent a message with each key.
CHOSEN = {
    "a": 28,
    "ab": 54,
    "abc": 61,
    "abcd": 34,
    "abcde": 5,
    "abcdef": 24,
    "abcdefg": 38,
    "abcdefgh": 14,
    "abcdefghi": 46,
    "k-1": 11,
    "key-12": 2,
    "hello world": 12,
    "0123456789abcdef": 44,
    "0123456789abcdefg": 29,
    "ünï": 31,
    "key-77": 46,
}


@pytest.mark.parametrize("key", CHOSEN)
def test_a_key_has_the_partition_of_the_official_client(key: str) -> None:
    assert boost_string_hash(key.encode()) % PARTITIONS == CHOSEN[key]
