"""The record of a delayed entry: a single number, so that many records take little memory and sort by time.

From the highest bits down: the delivery time in ms since 1970, ledger id, entry id, and the hash of the key.
"""

from __future__ import annotations

from magnetar.managed_ledger.position import Position

_HASH_BITS = 32
_ENTRY_BITS = 48
_LEDGER_BITS = 63
_LEDGER_SHIFT = _HASH_BITS + _ENTRY_BITS
_TIME_SHIFT = _LEDGER_SHIFT + _LEDGER_BITS
_HASH = (1 << _HASH_BITS) - 1
_ENTRY = (1 << _ENTRY_BITS) - 1
_LEDGER = (1 << _LEDGER_BITS) - 1

RECORD_BYTES = 56
"""Memory of one record with its place in a list."""


LATEST_MS = (1 << 48) - 1
"""In the year 10889, the latest possible delivery time."""


def pack(deliver_at: int, ledger_id: int, entry_id: int, key_hash: int) -> int:
    """:param deliver_at: ms since 1970, at least 0

    :param key_hash: 31 bits
    """
    return (
        (min(deliver_at, LATEST_MS) << _LEDGER_BITS | ledger_id) << _ENTRY_BITS | entry_id
    ) << _HASH_BITS | key_hash


def time_of(record: int) -> int:
    return record >> _TIME_SHIFT


def position_of(record: int) -> Position:
    return record >> _LEDGER_SHIFT & _LEDGER, record >> _HASH_BITS & _ENTRY


def hash_of(record: int) -> int:
    return record & _HASH


def behind(deliver_at: int) -> int:
    """Returns a number above all records due at ``deliver_at`` or before, and below all later ones."""
    return (deliver_at + 1) << _TIME_SHIFT
