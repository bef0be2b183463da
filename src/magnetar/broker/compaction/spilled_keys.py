"""Keys that do not fit in memory: noted on the disk, divided by their hash, and taken back part by part.

What is compared are the keys themselves; their hashes only say to which part they belong.
"""

from __future__ import annotations

from magnetar.io.interfaces import Disk, File
from magnetar.protocol.hot_compaction import PARTS, SHELVES, LatestKeys

DIRECTORY = "compaction"
"""Below the data directory; what a crash leaves there is removed by the next compaction."""

KEY_COST = 200
"""Bytes of memory for a key, besides its own."""

_NOTED_BYTES = 8 * 1024 * 1024
"""Gathered before they are written."""

_BLOCK = 32 * 1024

_MOST_SHARES = 1 << 20
"""Beyond which a part is not divided any further."""


class SpilledKeys:
    """The parts of one compaction. Everything here blocks: it is for a worker.

    :param budget: bytes of memory for keys
    """

    def __init__(self, disk: Disk, latest: LatestKeys, budget: int) -> None:
        self._disk = disk
        self._latest = latest
        self._budget = budget
        self._files: list[File] = []
        self._sizes = [0] * PARTS

    def full(self) -> bool:
        """Whether keys in memory take more than they may."""
        latest = self._latest
        return latest.key_bytes + KEY_COST * latest.key_count > self._budget

    def keep_within(self) -> None:
        """Called now and then while messages are numbered: memory stays bounded.

        :raises OSError: the disk does not take what is to be written
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
        """All messages are numbered; the parts are to be taken back, each with :meth:`take`."""
        self._write()
        self._latest.parts = None

    def take(self, part: int) -> None:
        """Finds the newest messages of the keys in a part; the others go.

        :raises OSError: the disk does not give back what was written
        """
        left = [(0, 1)]
        while left:
            share, shares = left.pop()
            if not self._take_share(part, share, shares):
                # More keys than memory is for: half of them at a time.
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
