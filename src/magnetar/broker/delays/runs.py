"""Runs: ledgers of sorted records in blocks, which are read into memory only shortly before they are due."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from magnetar.broker.delays.records import time_of

BLOCK_RECORDS = 512
_RECORD_SIZE = 24


class DamagedIndex(Exception):
    """The ledgers of an index do not contain a valid index."""


def encode_block(records: Sequence[int]) -> bytes:
    """Returns the block as one entry of the run's ledger."""
    return zlib.compress(b"".join(record.to_bytes(_RECORD_SIZE, "big") for record in records), 1)


def decode_block(entry: bytes) -> list[int]:
    """:raises DamagedIndex: the entry is not a block"""
    try:
        data = zlib.decompress(entry)
    except zlib.error as error:
        raise DamagedIndex(f"a block of the index is damaged: {error}") from error
    if not data or len(data) % _RECORD_SIZE:
        raise DamagedIndex(f"a block of the index has {len(data)} bytes")
    parts = range(0, len(data), _RECORD_SIZE)
    return [int.from_bytes(data[at : at + _RECORD_SIZE], "big") for at in parts]


def blocks_of(records: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(records), BLOCK_RECORDS):
        yield records[first : first + BLOCK_RECORDS]


class Run:
    """One ledger of records in ascending order.

    :param fences: the time at which the first record of each block is due, ms since 1970
    :param next_block: the first block that is still needed
    """

    __slots__ = ("_read", "fences", "ledger_id", "next_block")

    def __init__(self, ledger_id: int, fences: Sequence[int], next_block: int = 0) -> None:
        self.ledger_id = ledger_id
        self.fences = fences
        self.next_block = next_block
        """The first block that was not read."""
        self._read: deque[int] = deque()
        """The last record of each block that was read and may have records waiting in memory."""

    @property
    def due(self) -> int | None:
        """The time at which the next block begins to be due; None if no block is left."""
        return self.fences[self.next_block] if self.next_block < len(self.fences) else None

    def was_read(self, records: Sequence[int]) -> None:
        """Called when the records of the next block are in memory."""
        self.next_block += 1
        self._read.append(records[-1])

    def settle(self, first: int | None) -> None:
        """:param first: the first record in memory; earlier ones are no longer needed. None: there is none"""
        while self._read and (first is None or self._read[0] < first):
            self._read.popleft()

    @property
    def wanted_from(self) -> int:
        """The first block that may have waiting records."""
        return self.next_block - len(self._read)

    @property
    def is_used_up(self) -> bool:
        return self.wanted_from >= len(self.fences)


def fences_of(blocks: Iterable[Sequence[int]]) -> list[int]:
    return [time_of(block[0]) for block in blocks]
