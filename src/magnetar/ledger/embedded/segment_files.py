"""Creates, pre-fills, recycles and removes segment files. Calls block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

from magnetar.io.files import SpaceExhausted, SpaceReserve, is_shortage, is_without_room
from magnetar.io.interfaces import Disk, File
from magnetar.ledger.embedded.segment_header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    index_name,
    segment_id_of,
    segment_name,
)
from magnetar.ledger.embedded.settings import EmbeddedSettings

T = TypeVar("T")

_FREE_PREFIX = "free-"
_ZEROS = bytes(1 << 20)


_RESERVED_SEGMENTS = 2
"""The size of the reserve, as a number of segments; the size of a segment grows with the publish rate."""
_RESUME_PARTS = 4
"""A shortage ends only when the free bytes exceed the limit by a margin: the limit divided by this number, or
the size of a segment if that is more."""
_LAST_PARTS = 4
"""The reserve divided by this number is the part of it that cursors may not use."""
_MARGIN_SHARE = 16
"""The reserve divided by this number is the part of it that stays free for the file system's own needs."""


class SegmentRoom(Enum):
    """The kinds of free space from which a segment can be made."""

    PLENTY = "plenty"
    """So much room that new entries may be accepted."""
    FREE = "free"
    """For entries that were accepted and must be stored: all free bytes."""
    RESERVED = "reserved"
    """The reserve for a full device without its last quarter; only writes of cursors use this room."""
    LAST = "last"
    """For changes of ledgers only: the whole reserve, so that deletions are always possible."""


class SegmentFiles:
    """The segment files of one store, used by one worker at a time."""

    def __init__(self, disk: Disk, directory: str, settings: EmbeddedSettings, store_id: bytes) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._store_id = store_id
        self._renamed = True
        """Whether a file may have a new name that is not durable yet."""
        self.reserve = SpaceReserve(disk, directory, settings.reserve_bytes, settings.first_segment_bytes)
        self._short = False
        self._free = [name for name in disk.names(directory) if name.startswith(_FREE_PREFIX)]

    @property
    def _margin(self) -> int:
        return self.reserve.wanted // _MARGIN_SHARE

    @property
    def free_bytes(self) -> int:
        """Returns the bytes of the files kept for reuse, each counted with the size of a segment; a file may
        be larger."""
        return len(self._free) * self._settings.segment_bytes

    def segment_path(self, segment_id: int) -> str:
        return f"{self._directory}/{segment_name(segment_id)}"

    def index_path(self, segment_id: int) -> str:
        return f"{self._directory}/{index_name(segment_id)}"

    def segment_ids(self) -> list[int]:
        """Returns all segments that have files, ascending."""
        ids = (segment_id_of(name) for name in self._disk.names(self._directory))
        return sorted(segment_id for segment_id in ids if segment_id is not None)

    def prepare(self, segment_id: int, kind: int, size: int, room: SegmentRoom) -> File:
        """Returns a segment ready for its first group: filled, with header and directory durable.

        :raises SpaceExhausted: there is not enough room; no part of the file is left
        """
        try:
            return self._prepared(SegmentHeader(segment_id, self._store_id, kind, size), room)
        except SpaceExhausted:
            raise
        except OSError as error:
            if not is_shortage(error):
                raise
            self.discard([segment_id])
            self._free = [name for name in self._free if self._disk.exists(f"{self._directory}/{name}")]
            raise SpaceExhausted(f"no space for a segment of {size} bytes: {error}") from error

    def _prepared(self, header: SegmentHeader, room: SegmentRoom) -> File:
        """Returns a new or reused segment file that is filled.

        :raises OSError: a part of the file may be left
        """
        size = header.size
        if room is SegmentRoom.PLENTY:
            self._check_plenty(size)
        while self._free:
            file = self._reuse(self._free[-1], header)
            self._free.pop()
            if file is not None:
                return file
        may_give = room is SegmentRoom.LAST or (room is SegmentRoom.RESERVED and self._reserve_may_give(size))
        if may_give:
            self.reserve.make_room(size + self._margin)
        if self._disk.free_bytes() < size + self._margin * (room is not SegmentRoom.LAST):
            raise SpaceExhausted(
                f"no space for a segment of {size} bytes: {self._disk.free_bytes()} bytes are free"
            )
        try:
            return self._make(header)
        except OSError as error:
            if not may_give or not is_without_room(error) or not self._reserve_has(size, room):
                raise
        # A quota is used up that the device's free bytes do not show.
        self.discard([header.segment_id])
        self.reserve.give_up(size + self._margin)
        return self._make(header)

    def _reserve_has(self, size: int, room: SegmentRoom) -> bool:
        """Whether the reserve can provide a segment of ``size`` bytes without the part that ``room`` must
        leave untouched."""
        left = self.reserve.held - size - self._margin
        return left >= (0 if room is SegmentRoom.LAST else self.reserve.wanted // _LAST_PARTS)

    def _make(self, header: SegmentHeader) -> File:
        size = header.size
        file = self._disk.open(self.segment_path(header.segment_id), create=True, exclusive=True)
        step = min(self._settings.zero_fill_bytes, len(_ZEROS))
        try:
            for offset in range(0, size, step):
                file.write_durably(memoryview(_ZEROS)[: min(step, size - offset)], offset)
            file.write(header.encode(), 0)
            file.sync()
            self.sync_directory()
        except OSError:
            file.close()
            raise
        return file

    def _reserve_may_give(self, size: int) -> bool:
        """Whether enough of the reserve would be left after a segment of ``size`` bytes."""
        missing = max(0, size + self._margin - self._disk.free_bytes())
        return self.reserve.held - missing >= self.reserve.wanted // _LAST_PARTS

    def write_within(self, wanted: int, write: Callable[[], T]) -> T:
        """Calls ``write``, which needs ``wanted`` bytes, after releasing as much of the reserve as necessary.

        :raises OSError: as raised by ``write``; even the whole reserve may not be enough
        """
        return self.reserve.write_within(wanted + self._margin, write)

    def _reuse(self, name: str, header: SegmentHeader) -> File | None:
        """Returns a free file with a new header; None if the file cannot be reused, and is deleted instead.

        A file is not reused if it is too small, or if a reader in another process has it open (with a shared
        lock): this reader must not see other bytes.
        """
        path = f"{self._directory}/{name}"
        file = self._disk.open(path)
        if file.size() < header.size or not file.lock(exclusive=True):
            file.close()
            self._disk.unlink(path)
            return None
        try:
            if self._renamed:
                # Otherwise a crash could leave one file under two names, and both would be reused.
                self.sync_directory()
                self._renamed = False
            header = SegmentHeader(header.segment_id, header.store_id, header.kind, file.size())
            file.write(header.encode(), 0)
            file.sync()
            self._disk.rename(path, self.segment_path(header.segment_id))
            self.sync_directory()
        except OSError:
            file.close()
            raise
        file.unlock()
        return file

    def _check_plenty(self, size: int) -> None:
        """Checks that a segment for new entries leaves enough room.

        :raises SpaceExhausted: too little would be left after a segment of ``size`` bytes
        """
        was_short, self._short = self._short, True
        settings, total = self._settings, self._disk.total_bytes()
        self.reserve.grow(_RESERVED_SEGMENTS * size)
        kept = max(settings.entry_free_bytes, int(total * (1 - settings.full_share))) + self._margin
        if was_short:
            # Otherwise publishing would stop with the next segment again.
            kept += max(kept // _RESUME_PARTS, size)
        if self._free and self._disk.free_bytes() < kept:
            self._remove_free()
        if not self.reserve.fill():
            raise SpaceExhausted(
                f"cannot reserve {self.reserve.wanted >> 20} MiB for the time when the disk is full: only "
                f"{self._disk.free_bytes() >> 20} MiB are free on the disk of the ledgers"
            )
        free = self._disk.free_bytes()
        if free < kept + (0 if self._free else size):
            raise SpaceExhausted(
                f"only {free >> 20} MiB are free on the disk of the ledgers: a segment of {size} bytes "
                f"would leave less than {kept >> 20} MiB (diskUsageThreshold, magnetarDiskReserveBytes)"
            )
        self._short = False

    def _remove_free(self) -> None:
        for name in self._free:
            self._disk.unlink(f"{self._directory}/{name}")
        self._free.clear()

    def create_rewritten(self, segment_id: int) -> File:
        """Returns an empty file for a rewritten segment; the caller writes header and content, and syncs."""
        return self._disk.open(self.segment_path(segment_id), create=True, exclusive=True)

    def open(self, segment_id: int, *, ahead: bool = True) -> File:
        """Opens a segment for reading.

        :param ahead: whether the operating system may read ahead
        :raises FileNotFoundError: the file does not exist
        """
        return self._disk.open(self.segment_path(segment_id), write=False, ahead=ahead)

    def open_to_seal(self, segment_id: int) -> File:
        """Opens a segment that an earlier process left unfinished."""
        return self._disk.open(self.segment_path(segment_id))

    def open_index(self, segment_id: int) -> File:
        """Opens the index file of a segment.

        :raises FileNotFoundError: the file does not exist
        """
        return self._disk.open(self.index_path(segment_id), write=False)

    def write_index(self, segment_id: int, data: bytes) -> None:
        """Writes an index file; durable with the next directory sync."""
        path = self.index_path(segment_id)
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write(data, 0)
            file.sync()
        finally:
            file.close()

    def sync_directory(self) -> None:
        self._disk.sync_directory(self._directory)

    def trim(self, file: File, end: int) -> int:
        """Truncates a sealed segment if that frees more than a quarter of the file; returns the file's size
        in bytes."""
        size = file.size()
        used = max(end, SEGMENT_HEADER_BYTES)
        if used * 4 < size * 3:
            file.truncate(used)
            return used
        return size

    def discard(self, segment_ids: Iterable[int]) -> None:
        """Removes the files of segments that were never referenced."""
        for segment_id in segment_ids:
            for path in (self.index_path(segment_id), self.segment_path(segment_id)):
                if self._disk.exists(path):
                    self._disk.unlink(path)

    def retire(self, segment_id: int) -> None:
        """Retires an unreferenced segment, durably: keeps the file for reuse, or removes it."""
        # The index first: a crash may leave a segment without an index, never the reverse.
        index_path = self.index_path(segment_id)
        if self._disk.exists(index_path):
            self._disk.unlink(index_path)
        path = self.segment_path(segment_id)
        file = self._disk.open(path)
        size = file.size()
        file.close()
        fits = size >= self._settings.segment_bytes
        if fits and not self._short and len(self._free) < self._settings.free_segments:
            name = f"{_FREE_PREFIX}{segment_id:016x}"
            self._disk.rename(path, f"{self._directory}/{name}")
            self._free.append(name)
            self._renamed = True
        else:
            self._disk.unlink(path)
