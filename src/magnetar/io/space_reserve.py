"""Room on the device that is kept for what must be written when there is none left."""

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
"""A reserve never takes more than this part of its device."""


class SpaceExhausted(OSError):
    """The device has less room than something needs that nobody depends on yet."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ENOSPC, reason)


def is_without_room(error: BaseException | None) -> bool:
    """Whether something was not written because the device is full, and for no other reason."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def is_shortage(error: BaseException | None) -> bool:
    """Whether the device has no room, or the system no more files to open: it may go well another time.

    Connections of clients may take all descriptors there are.
    """
    return is_without_room(error) or (isinstance(error, OSError) and error.errno in _NO_FILES)


class SpaceReserve:
    """A file whose blocks go back to the file system, piece by piece, when there are no others.

    Calls block; one thread at a time uses it.
    """

    def __init__(self, disk: Disk, directory: str, size: int, first: int | None = None) -> None:
        """Takes what an earlier process left of it; takes no room yet.

        :param size: bytes to keep, less on a small device; 0 keeps none
        :param first: bytes to keep until it grows; None: all
        """
        self._disk = disk
        self._path = f"{directory}/{RESERVE_NAME}"
        self.size = min(size, disk.total_bytes() // _LARGEST_SHARE)
        """Bytes it keeps at most."""
        self.wanted = self.size if first is None else min(first, self.size)
        """Bytes it keeps now."""
        self.held = self._found()
        """Bytes of the file."""

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
        """Keeps ``wanted`` bytes from now on, if that is more, within its size; :meth:`fill` takes them."""
        self.wanted = max(self.wanted, min(wanted, self.size))

    def fill(self) -> bool:
        """Takes the room that is missing, if it is there and as much again; whether the reserve is whole."""
        missing = self.wanted - self.held
        if missing > 0 and self._disk.free_bytes() >= 2 * missing:
            file = self._disk.open(self._path, create=True)
            try:
                file.allocate(self.wanted)
            except OSError as error:
                if not is_without_room(error):
                    raise
                # Somebody else was faster: better nothing than what may be full of holes.
                file.truncate(self.held)
            finally:
                self.held = file.size()
                file.close()
        return self.whole

    def make_room(self, wanted: int) -> bool:
        """Gives up as much as it takes for ``wanted`` bytes to be free; whether they are."""
        missing = wanted - self._disk.free_bytes()
        if missing <= 0:
            return True
        self.give_up(missing)
        return self._disk.free_bytes() >= wanted

    def write_within(self, wanted: int, write: Callable[[], T]) -> T:
        """Calls ``write``, which needs ``wanted`` bytes, with room made for them; what it returns.

        The free bytes of a device say nothing of a quota, or of what a file system needs for itself. If the
        write has no room although they sufficed, the reserve gives up ``wanted`` bytes, and ``write`` is
        called once more.

        :raises OSError: what ``write`` raises, the second time or for another reason
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
        """Gives ``size`` bytes back to the file system, or what there is."""
        if not self.held:
            return
        left = max(0, self.held - size)
        file = self._disk.open(self._path)
        try:
            file.truncate(left)
            # On some file systems the blocks are free only once that is durable.
            file.sync()
        finally:
            self.held = file.size()
            file.close()
