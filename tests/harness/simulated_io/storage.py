"""What a simulated disk stores: inodes, names, and which of their changes are durable."""

from __future__ import annotations

import errno
from random import Random

SECTOR_BYTES = 512


class SectorFate:
    """Decides which unsynced changes survive one power cut."""

    def __init__(self, random: Random) -> None:
        self._random = random
        # Most cuts lose nearly everything or nearly nothing; some lose half.
        self._survival = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))

    def survives(self) -> bool:
        return self._random.random() < self._survival

    def choose(self, candidates: list[int]) -> int:
        return self._random.choice(candidates)


class Inode:
    """The bytes of a file, as programs see them and as they are stored."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._durable = bytearray()
        self._pending: list[tuple[int, bytes | None]] = []
        """Writes (offset, data) and truncations (size, None) since the last sync, in order."""
        self._shared: set[object] = set()
        self._exclusive: object | None = None

    def write(self, data: bytes, offset: int) -> None:
        self._pending.append((offset, data))
        _apply(self.content, offset, data)

    def truncate(self, size: int) -> None:
        self._pending.append((size, None))
        _apply(self.content, size, None)

    def sync(self) -> None:
        for offset, data in self._pending:
            _apply(self._durable, offset, data)
        self._pending.clear()

    def fail_sync(self, fate: SectorFate) -> None:
        """As on Linux: pages that could not be written are not retried, and still look written."""
        self._durable = self._after(fate)
        self._pending.clear()

    def flip(self, offset: int, bit: int) -> None:
        self.content[offset] ^= 1 << bit
        if offset < len(self._durable):
            self._durable[offset] ^= 1 << bit

    def after_power_cut(self, fate: SectorFate) -> Inode:
        found = Inode()
        found._durable = self._after(fate) if self._pending else bytearray(self._durable)
        found.content = bytearray(found._durable)
        return found

    def lock(self, owner: object, exclusive: bool) -> bool:
        if self._exclusive not in (None, owner) or (exclusive and self._shared - {owner}):
            return False
        self.unlock(owner)
        if exclusive:
            self._exclusive = owner
        else:
            self._shared.add(owner)
        return True

    def unlock(self, owner: object) -> None:
        self._shared.discard(owner)
        if self._exclusive is owner:
            self._exclusive = None

    def release_locks(self) -> None:
        self._shared.clear()
        self._exclusive = None

    def _after(self, fate: SectorFate) -> bytearray:
        """Returns the stored bytes with some of the unsynced sectors, each in one of its versions."""
        working = bytearray(self._durable)
        versions: dict[int, list[bytes]] = {}
        sizes = [len(working)]
        for offset, data in self._pending:
            _apply(working, offset, data)
            sizes.append(len(working))
            if data:
                for sector in range(offset // SECTOR_BYTES, (offset + len(data) - 1) // SECTOR_BYTES + 1):
                    begin = sector * SECTOR_BYTES
                    versions.setdefault(sector, []).append(bytes(working[begin : begin + SECTOR_BYTES]))
        found = bytearray(self._durable)
        for sector, candidates in versions.items():
            if fate.survives():
                _apply(found, sector * SECTOR_BYTES, candidates[fate.choose(list(range(len(candidates))))])
        # The size is separate metadata: any size that the file had may be the stored one.
        _apply(found, fate.choose(sizes), None)
        return found


class Namespace:
    """The mapping of names to inodes, now and durably."""

    def __init__(self) -> None:
        self.current: dict[str, Inode] = {}
        self.directories: set[str] = set()
        self._durable: dict[str, Inode] = {}
        self._pending: list[tuple[str | None, str | None, Inode]] = []
        """(removed name, added name, inode), in order."""

    def create(self, path: str) -> Inode:
        inode = Inode()
        self._change(None, path, inode)
        return inode

    def rename(self, source: str, target: str) -> None:
        self._change(source, target, self._existing(source))

    def unlink(self, path: str) -> None:
        self._change(path, None, self._existing(path))

    def names(self, directory: str) -> list[str]:
        if directory not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        return sorted(path.rpartition("/")[2] for path in self.current if _directory_of(path) == directory)

    def used_bytes(self) -> int:
        return sum(len(inode.content) for inode in self.current.values())

    def sync(self, directory: str) -> None:
        left = []
        for gone, new, inode in self._pending:
            if _directory_of(gone or new or "") == directory:
                _rename(self._durable, gone, new, inode)
            else:
                left.append((gone, new, inode))
        self._pending = left

    def after_power_cut(self, random: Random, fate: SectorFate) -> Namespace:
        found = Namespace()
        found.directories = set(self.directories)
        names = dict(self._durable)
        survivors = [operation for operation in self._pending if fate.survives()]
        random.shuffle(survivors)
        for gone, new, inode in survivors:
            _rename(names, gone, new, inode)
        inodes: dict[int, Inode] = {}
        for path, inode in names.items():
            if id(inode) not in inodes:
                inodes[id(inode)] = inode.after_power_cut(fate)
            found.current[path] = inodes[id(inode)]
        found._durable = dict(found.current)
        return found

    def release_locks(self) -> None:
        for inode in self.current.values():
            inode.release_locks()

    def _existing(self, path: str) -> Inode:
        inode = self.current.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def _change(self, gone: str | None, new: str | None, inode: Inode) -> None:
        self._pending.append((gone, new, inode))
        _rename(self.current, gone, new, inode)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        if offset <= len(content):
            del content[offset:]
        else:
            content.extend(bytes(offset - len(content)))
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _rename(names: dict[str, Inode], gone: str | None, new: str | None, inode: Inode) -> None:
    # Out of order, the name may already lead to another inode, which this operation must not remove.
    if gone is not None and names.get(gone) is inode:
        del names[gone]
    if new is not None:
        names[new] = inode


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0] or "."
