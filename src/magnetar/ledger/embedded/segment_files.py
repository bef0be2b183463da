"""Making, filling ahead, recycling and removing segment files. Calls block."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.io.interfaces import Disk, File
from magnetar.ledger.embedded.segment_header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    index_name,
    segment_id_of,
    segment_name,
)
from magnetar.ledger.embedded.settings import EmbeddedSettings

_FREE_PREFIX = "free-"
_ZEROS = bytes(1 << 20)


class SpaceExhausted(OSError):
    """The device has less free space than the store keeps in reserve."""


class SegmentFiles:
    """The segment files of one store. One worker at a time uses it."""

    def __init__(self, disk: Disk, directory: str, settings: EmbeddedSettings, store_id: bytes) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._store_id = store_id
        self._renamed = True
        """Whether a file may carry a new name that is not durable yet."""
        self._free = [name for name in disk.names(directory) if name.startswith(_FREE_PREFIX)]

    @property
    def free_bytes(self) -> int:
        """Of files kept to be used again; each has the size of a segment, at least."""
        return len(self._free) * self._settings.segment_bytes

    def segment_path(self, segment_id: int) -> str:
        return f"{self._directory}/{segment_name(segment_id)}"

    def index_path(self, segment_id: int) -> str:
        return f"{self._directory}/{index_name(segment_id)}"

    def segment_ids(self) -> list[int]:
        """All segments there are files for, ascending."""
        ids = (segment_id_of(name) for name in self._disk.names(self._directory))
        return sorted(segment_id for segment_id in ids if segment_id is not None)

    def prepare(self, segment_id: int, kind: int, size: int) -> File:
        """A segment ready for its first group: filled, header and directory durable.

        :raises SpaceExhausted: there is not enough room for it
        """
        header = SegmentHeader(segment_id, self._store_id, kind, size)
        while self._free:
            file = self._reuse(self._free.pop(), header)
            if file is not None:
                return file
        self._check_room(size)
        file = self._disk.open(self.segment_path(segment_id), create=True, exclusive=True)
        step = min(self._settings.zero_fill_bytes, len(_ZEROS))
        for offset in range(0, size, step):
            file.write_durably(memoryview(_ZEROS)[: min(step, size - offset)], offset)
        file.write(header.encode(), 0)
        file.sync()
        self.sync_directory()
        return file

    def _reuse(self, name: str, header: SegmentHeader) -> File | None:
        """A free file under a new header, or None (and the file is gone) when it does not fit.

        A reader outside this process that still has the file open holds a shared lock and is left alone.
        """
        path = f"{self._directory}/{name}"
        file = self._disk.open(path)
        if file.size() < header.size or not file.lock(exclusive=True):
            file.close()
            self._disk.unlink(path)
            return None
        if self._renamed:
            # Else a crash could leave one file under two names, and both would be used again.
            self._renamed = False
            self.sync_directory()
        header = SegmentHeader(header.segment_id, header.store_id, header.kind, file.size())
        file.write(header.encode(), 0)
        file.sync()
        self._disk.rename(path, self.segment_path(header.segment_id))
        self.sync_directory()
        file.unlock()
        return file

    def _check_room(self, size: int) -> None:
        free = self._disk.free_bytes()
        if free < size + self._settings.reserve_bytes:
            raise SpaceExhausted(
                f"a new segment of {size} bytes would leave less than the reserve of "
                f"{self._settings.reserve_bytes} bytes: {free} bytes are free"
            )

    def create_rewritten(self, segment_id: int) -> File:
        """An empty file for a segment written in one go; the caller writes header and all, and syncs."""
        return self._disk.open(self.segment_path(segment_id), create=True, exclusive=True)

    def open(self, segment_id: int) -> File:
        """Opens a segment for reading.

        :raises FileNotFoundError: it is gone
        """
        return self._disk.open(self.segment_path(segment_id), write=False)

    def open_index(self, segment_id: int) -> File:
        """Opens the index beside a segment.

        :raises FileNotFoundError: there is none
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
        """Gives back what a sealed segment did not use when that is a lot; returns the size of the file."""
        size = file.size()
        used = max(end, SEGMENT_HEADER_BYTES)
        if used * 4 < size * 3:
            file.truncate(used)
            return used
        return size

    def discard(self, segment_ids: Iterable[int]) -> None:
        """Removes what there is of segments that nothing ever pointed to."""
        for segment_id in segment_ids:
            for path in (self.index_path(segment_id), self.segment_path(segment_id)):
                if self._disk.exists(path):
                    self._disk.unlink(path)

    def retire(self, segment_id: int) -> None:
        """Lets go of a segment nothing points to, durably: keeps the file for later use, or removes it."""
        # The index first: what a crash leaves behind is a segment without an index, never the reverse.
        index_path = self.index_path(segment_id)
        if self._disk.exists(index_path):
            self._disk.unlink(index_path)
        path = self.segment_path(segment_id)
        file = self._disk.open(path)
        size = file.size()
        file.close()
        fits = size >= self._settings.segment_bytes
        if fits and len(self._free) < self._settings.free_segments:
            name = f"{_FREE_PREFIX}{segment_id:016x}"
            self._disk.rename(path, f"{self._directory}/{name}")
            self._free.append(name)
            self._renamed = True
        else:
            self._disk.unlink(path)
