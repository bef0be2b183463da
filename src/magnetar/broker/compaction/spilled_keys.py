"""Keys that do not fit in memory: spilled to disk in parts by their hash, and read back part by part.

The keys themselves are compared; hashes only determine the part of a key.
"""

from __future__ import annotations

from magnetar.io.interfaces import Disk, File
from magnetar.protocol.hot_compaction import PARTS, SHELVES, LatestKeys

DIRECTORY = "compaction"
"""Below the data directory; the next compaction removes the files that a crash leaves there."""

KEY_COST = 200
"""Bytes of memory per key, in addition to the key."""

_NOTED_BYTES = 8 * 1024 * 1024
"""Bytes that are gathered before they are written."""

_BLOCK = 32 * 1024

_MOST_SHARES = 1 << 20
"""A part is not divided further than this."""


class SpilledKeys:
    """The parts of one compaction. All methods block: they are for a worker.

    :param budget: bytes of memory for keys
    """

    def __init__(self, disk: Disk, latest: LatestKeys, budget: int) -> None:
        self._disk = disk
        self._latest = latest
        self._budget = budget
        self._files: list[File] = []
        self._sizes = [0] * PARTS

    def full(self) -> bool:
        """Whether the keys in memory exceed the budget."""
        latest = self._latest
        return latest.key_bytes + KEY_COST * latest.key_count > self._budget

    def keep_within(self) -> None:
        """Spills keys if memory is full; called regularly while messages are numbered.

        :raises OSError: the keys cannot be written to disk
        """
        if self._latest.parts is None:
            if not self.full():
                return
            self._disk.make_directory(DIRECTORY)
            for part in range(PARTS):
                file = self._disk.open(_path(part), create=True)
                file.truncate(0)
                self._files.append(file)
            self._latest.parts = [bytearray() for _ in range(PARTS)]
            for shelf in range(SHELVES):
                self._latest.spill(shelf)
        if self._latest.part_bytes > _NOTED_BYTES:
            self._write()

    def _write(self) -> None:
        parts = self._latest.parts or []
        for part, noted in enumerate(parts):
            if noted:
                self._files[part].write(noted, self._sizes[part])
                self._sizes[part] += len(noted)
                noted.clear()
        self._latest.part_bytes = 0

    @property
    def spilled(self) -> bool:
        return bool(self._files)

    def begin_taking(self) -> None:
        """Called when all messages are numbered; each part is read back with :meth:`take` afterwards."""
        self._write()
        self._latest.parts = None

    def take(self, part: int) -> None:
        """Finds the newest message of each key in a part; the others go.

        :raises OSError: the keys cannot be read back
        """
        left = [(0, 1)]
        while left:
            share, shares = left.pop()
            if not self._take_share(part, share, shares):
                # The part's keys do not fit in memory: they are taken in two halves.
                left += (share, 2 * shares), (share + shares, 2 * shares)

    def _take_share(self, part: int, share: int, shares: int) -> bool:
        latest = self._latest
        position, rest = 0, b""
        while position < self._sizes[part]:
            block = rest + self._files[part].read(min(_BLOCK, self._sizes[part] - position), position)
            position += len(block) - len(rest)
            rest = block[latest.take_noted(block, share, shares) :]
            if self.full() and shares < _MOST_SHARES:
                for shelf in range(SHELVES):
                    latest.drop_keys(shelf)
                return False
        for shelf in range(SHELVES):
            latest.forget(shelf)
        return True

    def remove(self) -> None:
        """Removes the files, also those of a compaction that a crash ended."""
        for file in self._files:
            file.close()
        self._files = []
        if self._disk.exists(DIRECTORY):
            for name in self._disk.names(DIRECTORY):
                self._disk.unlink(f"{DIRECTORY}/{name}")


def _path(part: int) -> str:
    return f"{DIRECTORY}/keys-{part}"
