"""A disk in memory that records what was synced and can lose the rest."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from random import Random

from simulated_io.storage import Inode, Namespace, SectorFate

_BLOCK_BYTES = 4096


class PowerLost(BaseException):
    """A power cut: raised by the operation that it interrupts, and by every later one."""


class SimulatedFile:
    """A file of a :class:`SimulatedDisk`."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._open = True

    def read(self, length: int, offset: int) -> bytes:
        self._disk._looking()
        self._check_open()
        return bytes(self._inode.content[offset : offset + length])

    def read_cached(self, length: int, offset: int) -> bytes | None:
        data = self.read(length, offset)
        return data if len(data) == length and self._disk._is_at_hand() else None

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._check_open()
        self._disk._changing("write", self.path)
        self._disk._take_room(max(0, offset + len(data) - len(self._inode.content)))
        self._inode.write(bytes(data), offset)
        self._disk._maybe_cut()

    def sync(self) -> None:
        self._check_open()
        try:
            self._disk._changing("sync", self.path)
        except OSError:
            self._inode.fail_sync(self._disk._fate())
            raise
        self._disk._maybe_cut()
        ignored = self._disk.ignore_sync
        if ignored is None or ignored not in self.path:
            self._inode.sync()

    def write_durably(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        if self._disk.direct_writes:
            data, offset = self._whole_blocks(bytes(data), offset)
        self.write(data, offset)
        self.sync()

    def begin_durably(
        self,
        data: bytes | bytearray | memoryview,
        offset: int,
        done: Callable[[None, OSError | None], object],
    ) -> bool:
        """Never starts a write: the seed decides the timing of workers only."""
        return False

    def _whole_blocks(self, data: bytes, offset: int) -> tuple[bytes, int]:
        """Returns what a direct write sends: the start of the first block again, and zeros behind the end."""
        start = offset - offset % _BLOCK_BYTES
        before = bytes(self._inode.content[start:offset])
        data = before + bytes(offset - start - len(before)) + data
        return data + bytes(-len(data) % _BLOCK_BYTES), start

    def truncate(self, size: int) -> None:
        self._check_open()
        self._disk._changing("truncate", self.path)
        self._disk._take_room(max(0, size - len(self._inode.content)))
        self._inode.truncate(size)
        self._disk._maybe_cut()

    def allocate(self, size: int) -> None:
        if size > self.size():
            self.truncate(size)

    def size(self) -> int:
        self._disk._looking()
        return len(self._inode.content)

    def lock(self, *, exclusive: bool) -> bool:
        return self._inode.lock(self, exclusive)

    def unlock(self) -> None:
        self._inode.unlock(self)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._inode.unlock(self)

    def _check_open(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, "the file is closed", self.path)


class SimulatedDisk:
    """Files whose unsynced 512-byte sectors, and whose unsynced directory operations, a power cut may lose.

    Every operation that changes something is counted in :attr:`operations`.
    """

    def __init__(self, seed: int, quota: int = 1 << 40) -> None:
        """:param quota: the most bytes of all files together"""
        self.random = Random(seed)
        self.quota = quota
        self.allowance: int | None = None
        """A quota of the file system for all files in bytes, which the free bytes do not show."""
        self.operations = 0
        self.ignore_sync: str | None = None
        """Syncing files whose path contains this has no effect, as if the call were missing."""
        self.ignore_sync_directory = False
        self.direct_writes = bool(seed & 1)
        """Whether durable writes bypass the page cache, in whole blocks; true for every other seed."""
        self.power_lost: Callable[[PowerLost], None] | None = None
        """Called at a power cut."""
        self.cached_fraction = 0.7
        """The share of reads whose bytes are cached."""
        self.root = ""
        self._namespace = Namespace()
        self._cut_at = -1
        self._dead = False
        self._faults: list[tuple[str, str, int, OSError]] = []

    def open(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        write: bool = True,
        ahead: bool = True,
    ) -> SimulatedFile:
        self._looking()
        inode = self._namespace.current.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._changing("create", path)
            inode = self._namespace.create(path)
            self._maybe_cut()
        elif exclusive:
            raise FileExistsError(errno.EEXIST, "the file exists", path)
        return SimulatedFile(self, path, inode)

    def exists(self, path: str) -> bool:
        self._looking()
        return path in self._namespace.current or path in self._namespace.directories

    def names(self, directory: str) -> Sequence[str]:
        self._looking()
        return self._namespace.names(directory)

    def make_directory(self, path: str) -> None:
        """Durable at once, like the real disk's."""
        self._changing("make_directory", path)
        self._namespace.directories.add(path)
        self._maybe_cut()

    def rename(self, source: str, target: str) -> None:
        self._changing("rename", source)
        self._namespace.rename(source, target)
        self._maybe_cut()

    def unlink(self, path: str) -> None:
        self._changing("unlink", path)
        self._namespace.unlink(path)
        self._maybe_cut()

    def sync_directory(self, path: str) -> None:
        self._changing("sync_directory", path)
        self._maybe_cut()
        if not self.ignore_sync_directory:
            self._namespace.sync(path)

    def free_bytes(self) -> int:
        self._looking()
        return max(0, self.quota - self._namespace.used_bytes())

    def total_bytes(self) -> int:
        self._looking()
        return self.quota

    def cut_power_at(self, operation: int) -> None:
        """Cuts the power at the ``operation``-th change from now on, 1 being the next."""
        self._cut_at = self.operations + operation

    def fail(self, kind: str, path: str = "", after: int = 0, code: int = errno.EIO) -> None:
        """Makes one later operation fail: write, sync, truncate, create, rename, unlink or sync_directory.

        :param path: what the path must contain
        :param after: the number of such operations that succeed before
        """
        self._faults.append((kind, path, after, OSError(code, os.strerror(code), path)))

    def mend(self) -> None:
        """Cancels every :meth:`fail` that has not happened yet."""
        self._faults.clear()

    def paths(self, below: str) -> list[str]:
        """Returns all files whose path begins with ``below``, sorted."""
        return sorted(path for path in self._namespace.current if path.startswith(below))

    def size_of(self, path: str) -> int:
        return len(self._namespace.current[path].content)

    def bit_flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Damages one stored bit."""
        self._namespace.current[path].flip(offset, bit)

    def power_cut(self) -> SimulatedDisk:
        """Returns the disk as it is found after a power cut; this one cannot be used any more."""
        self._dead = True
        found = self._successor()
        found._namespace = self._namespace.after_power_cut(self.random, self._fate())
        return found

    def killed(self) -> SimulatedDisk:
        """Returns the disk after the process was killed: nothing is lost, and nothing more is durable."""
        self._dead = True
        found = self._successor()
        found._namespace = self._namespace
        self._namespace.release_locks()
        return found

    def _successor(self) -> SimulatedDisk:
        found = SimulatedDisk(self.random.getrandbits(64), self.quota)
        found.allowance = self.allowance
        found.ignore_sync = self.ignore_sync
        found.ignore_sync_directory = self.ignore_sync_directory
        found.cached_fraction = self.cached_fraction
        return found

    def _fate(self) -> SectorFate:
        return SectorFate(self.random)

    def _is_at_hand(self) -> bool:
        return self.random.random() < self.cached_fraction

    def _take_room(self, more: int) -> None:
        if more and self.allowance is not None and self._namespace.used_bytes() + more > self.allowance:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        if more and self._namespace.used_bytes() + more > self.quota:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _looking(self) -> None:
        if self._dead:
            raise PowerLost

    def _changing(self, kind: str, path: str) -> None:
        self._looking()
        self.operations += 1
        for number, (wanted, part, after, error) in enumerate(self._faults):
            if wanted == kind and part in path:
                if after == 0:
                    del self._faults[number]
                    raise error
                self._faults[number] = (wanted, part, after - 1, error)

    def _maybe_cut(self) -> None:
        """Called after the effect of an operation, or, for a sync, just before it."""
        if 0 <= self._cut_at <= self.operations:
            self._dead = True
            error = PowerLost()
            if self.power_lost is not None:
                self.power_lost(error)
            raise error
