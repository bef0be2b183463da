"""A cache of pieces of offloaded ledgers that were read recently, shared by all readers of the process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import NamedTuple

from magnetar.ledger.interface import EntryRun


class Piece(NamedTuple):
    """Consecutive entries of one ledger in one buffer."""

    run: EntryRun
    next_position: int
    """The offset at which the next piece starts, in the object or file of the reader."""
    next_length: int
    """The size of the first entry of the next piece in bytes; 0: unknown."""


class PieceCache:
    """Keeps the most recently used pieces, up to a number of bytes. Any thread may use the cache."""

    def __init__(self, max_bytes: int) -> None:
        """:param max_bytes: the maximum size of all pieces together, at least 0; a larger piece is not
        kept"""
        if max_bytes < 0:
            raise ValueError(f"the size of a cache must be 0 or more bytes, not {max_bytes}")
        self._max_bytes = max_bytes
        self._pieces: OrderedDict[Hashable, Piece] = OrderedDict()
        self._lock = Lock()
        self._bytes = 0
        self._hits = self._misses = 0

    @property
    def size(self) -> int:
        """Returns the size of all pieces in bytes."""
        return self._bytes

    @property
    def hits(self) -> int:
        return self._hits

    @property
    def misses(self) -> int:
        return self._misses

    def get(self, key: Hashable) -> Piece | None:
        with self._lock:
            piece = self._pieces.get(key)
            if piece is None:
                self._misses += 1
                return None
            self._hits += 1
            self._pieces.move_to_end(key)
            return piece

    def put(self, key: Hashable, piece: Piece) -> None:
        with self._lock:
            self._remove(key)
            self._pieces[key] = piece
            self._bytes += len(piece.run.buffer)
            while self._bytes > self._max_bytes:
                self._remove(next(iter(self._pieces)))

    def _remove(self, key: Hashable) -> None:
        piece = self._pieces.pop(key, None)
        if piece is not None:
            self._bytes -= len(piece.run.buffer)
