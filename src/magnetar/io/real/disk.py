"""Files below one directory of the system's file system."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from magnetar.io.real.direct import DirectWriter, KernelWrites, StagingBuffers

_NOT_AT_HAND = frozenset((errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))


_PIECE_BYTES = 64 * 1024
"""The maximum size in bytes of one read without read-ahead; writes wait until such a read has finished."""


class RealFile:
    """A file descriptor with complete reads and writes.

    :param ahead: whether the kernel reads ahead, which speeds up reads in sequence and delays other requests
    """

    def __init__(
        self,
        path: str,
        descriptor: int,
        buffers: StagingBuffers,
        writes: Callable[[], KernelWrites | None],
        *,
        ahead: bool = True,
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._buffers = buffers
        self._writes = writes
        self._ahead = ahead
        self._cached_reads = hasattr(os, "RWF_NOWAIT")
        self._direct: DirectWriter | None = None
        self._proven = False
        """Whether a direct write has succeeded."""
        self._direct_writes = hasattr(os, "O_DIRECT") and hasattr(os, "RWF_DSYNC")

    def read(self, length: int, offset: int) -> bytes:
        most = length if self._ahead else _PIECE_BYTES
        data = os.pread(self._descriptor, min(length, most), offset)
        if len(data) == length or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < length:
            data = os.pread(self._descriptor, min(length - got, most), offset + got)
            if not data:
                break
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def read_cached(self, length: int, offset: int) -> bytes | None:
        if not self._cached_reads:
            return None
        buffer = bytearray(length)
        try:
            got = os.preadv(self._descriptor, [buffer], offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno not in _NOT_AT_HAND:
                raise
            # Some file systems never know what is cached: asking again would only cost time.
            self._cached_reads = error.errno == errno.EAGAIN
            return None
        return bytes(buffer) if got == length else None

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(self._descriptor, view[written:], offset + written)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def write_durably(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        if self._direct_writes:
            try:
                self._direct = self._direct or DirectWriter(self._descriptor, self._buffers)
            except OSError:
                # File systems in memory, and systems without /proc.
                self._direct_writes = False
            else:
                if self._direct.write(data, offset):
                    self._proven = True
                    return
                self._direct_writes = False
        self.write(data, offset)
        self.sync()

    def begin_durably(
        self,
        data: bytes | bytearray | memoryview,
        offset: int,
        done: Callable[[None, OSError | None], object],
    ) -> bool:
        if not self._proven or self._direct is None or (writes := self._writes()) is None:
            return False
        return self._direct.begin(data, offset, writes, done)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._descriptor, 0, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def lock(self, *, exclusive: bool) -> bool:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """The files below ``root``, which is created if it is missing."""

    def __init__(self, root: str | Path, writes: Callable[[], KernelWrites | None] = lambda: None) -> None:
        """:param writes: returns the kernel writes of the loop, or None if they are not available; called on
        the loop's thread
        """
        self._root = Path(root).absolute()
        self._writes = writes
        self._buffers = StagingBuffers()
        self._make_directory(self._root)

    @property
    def root(self) -> str:
        return str(self._root)

    def locate(self, path: str) -> Path:
        """Returns the system's path for a path of this disk.

        :raises ValueError: the path is outside the root
        """
        relative = Path(path)
        if relative.is_absolute() or ".." in relative.parts:
            raise ValueError(f"path leaves the disk's root: {path!r}")
        return self._root / relative

    def open(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        write: bool = True,
        ahead: bool = True,
    ) -> RealFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        descriptor = os.open(self.locate(path), flags, 0o640)
        if not ahead and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return RealFile(path, descriptor, self._buffers, self._writes, ahead=ahead)

    def exists(self, path: str) -> bool:
        return self.locate(path).exists()

    def names(self, directory: str) -> Sequence[str]:
        return sorted(os.listdir(self.locate(directory)))

    def make_directory(self, path: str) -> None:
        self._make_directory(self.locate(path))

    def _make_directory(self, directory: Path) -> None:
        """Creates a directory and its missing parents, and syncs the parent of each created directory."""
        if directory.is_dir():
            return
        self._make_directory(directory.parent)
        directory.mkdir(mode=0o750, exist_ok=True)
        _sync_directory(directory.parent)

    def rename(self, source: str, target: str) -> None:
        os.replace(self.locate(source), self.locate(target))

    def unlink(self, path: str) -> None:
        os.unlink(self.locate(path))

    def sync_directory(self, path: str) -> None:
        _sync_directory(self.locate(path))

    def free_bytes(self) -> int:
        figures = os.statvfs(self._root)
        return figures.f_bavail * figures.f_frsize

    def total_bytes(self) -> int:
        figures = os.statvfs(self._root)
        # As in df: blocks reserved for the administrator are neither used nor free.
        return (figures.f_blocks - figures.f_bfree + figures.f_bavail) * figures.f_frsize


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
