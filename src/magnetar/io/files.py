"""Copies files, and reserves disk space for writes that must succeed on a full disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from magnetar.io.interfaces import Disk

T = TypeVar("T")
RESERVE_NAME = "reserve"
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_NO_FILES = frozenset((errno.EMFILE, errno.ENFILE))
_LARGEST_SHARE = 16
"""The maximum size of a reserve is the size of its device divided by this number."""
_STEP_BYTES = 1 << 20


class SpaceExhausted(OSError):
    """The device has too little room for a write, and the caller may refuse the write."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ENOSPC, reason)


def is_without_room(error: BaseException | None) -> bool:
    """Whether a write failed because the device is full, and for no other reason."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def is_shortage(error: BaseException | None) -> bool:
    """Whether an operation failed because the device is full or the process has no file descriptor left.

    Another attempt may succeed, for example because client connections had taken all descriptors.
    """
    return is_without_room(error) or (isinstance(error, OSError) and error.errno in _NO_FILES)


class SpaceReserve:
    """A file whose blocks are returned to the file system, piece by piece, when no other blocks are free.

    All methods block. Only one thread at a time may use a reserve.
    """

    def __init__(self, disk: Disk, directory: str, size: int, first: int | None = None) -> None:
        """Takes over the file that an earlier process left, without reserving further space.

        :param size: bytes to reserve, fewer on a small device; 0: no reserve
        :param first: bytes to reserve until :meth:`grow` is called; None: ``size`` bytes
        """
        self._disk = disk
        self._path = f"{directory}/{RESERVE_NAME}"
        self.size = min(size, disk.total_bytes() // _LARGEST_SHARE)
        """The maximum size of the reserve in bytes."""
        self.wanted = self.size if first is None else min(first, self.size)
        """The size to which :meth:`fill` extends the file, in bytes."""
        self.held = self._found()
        """The current size of the file in bytes."""

    def _found(self) -> int:
        if not self._disk.exists(self._path):
            return 0
        file = self._disk.open(self._path, write=False)
        try:
            return file.size()
        finally:
            file.close()

    @property
    def whole(self) -> bool:
        return self.held >= self.wanted

    def grow(self, wanted: int) -> None:
        """Raises the wanted size to ``wanted`` bytes, at most the maximum size; :meth:`fill` then takes the
        space.
        """
        self.wanted = max(self.wanted, min(wanted, self.size))

    def fill(self) -> bool:
        """Extends the file to the wanted size if twice the missing space is free; returns whether the file
        has the wanted size.
        """
        missing = self.wanted - self.held
        if missing > 0 and self._disk.free_bytes() >= 2 * missing:
            file = self._disk.open(self._path, create=True)
            try:
                file.allocate(self.wanted)
            except OSError as error:
                if not is_without_room(error):
                    raise
                # Another writer took the room first: the file is cut back, as its new part may have holes.
                file.truncate(self.held)
            finally:
                self.held = file.size()
                file.close()
        return self.whole

    def make_room(self, wanted: int) -> bool:
        """Releases as much of the reserve as needed for ``wanted`` free bytes; returns whether this many
        bytes are free.
        """
        missing = wanted - self._disk.free_bytes()
        if missing <= 0:
            return True
        self.give_up(missing)
        return self._disk.free_bytes() >= wanted

    def write_within(self, wanted: int, write: Callable[[], T]) -> T:
        """Calls ``write``, which needs ``wanted`` bytes, after making room for them; returns its result.

        The free bytes of a device do not show a quota, or what a file system needs for itself. If the write
        finds no room although enough bytes were free, the reserve releases ``wanted`` bytes, and ``write`` is
        called once more.

        :raises OSError: any error of ``write`` other than a lack of room; a lack of room if the reserve is
            empty or the second call fails, too
        """
        self.make_room(wanted)
        try:
            return write()
        except OSError as error:
            if not is_without_room(error) or not self.held:
                raise
        self.give_up(wanted)
        return write()

    def give_up(self, size: int) -> None:
        """Releases ``size`` bytes to the file system, or the whole reserve if the reserve is smaller."""
        if not self.held:
            return
        left = max(0, self.held - size)
        file = self._disk.open(self._path)
        try:
            file.truncate(left)
            # On some file systems the blocks are free only once the truncation is durable.
            file.sync()
        finally:
            self.held = file.size()
            file.close()


def copy_file(disk: Disk, source: str, target: str) -> None:
    """Copies a file over another one, or to a new name; blocks. The copy is durable when this returns."""
    read = disk.open(source, write=False)
    try:
        written = disk.open(target, create=True)
        try:
            written.truncate(0)
            at = 0
            while data := read.read(_STEP_BYTES, at):
                written.write(data, at)
                at += len(data)
            written.sync()
        finally:
            written.close()
    finally:
        read.close()
