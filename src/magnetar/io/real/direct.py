"""Writes past the page cache: the bytes of a log go from memory to the device once, and are durable then.

Written entries are in the entry cache already; a copy in the page cache would only cost memory and processor
time (copying, finding pages, writing them back later).
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import deque
from collections.abc import Callable

from magnetar.io.real.kernel_writes import MOST_BYTES, KernelWrites

BLOCK_BYTES = 4096
"""Offsets, lengths and addresses of direct writes are multiples of this."""

STAGING_BYTES = 1 << 20
"""The size of one buffer; a longer write is split."""

_KEPT_BUFFERS = 4
_REFUSED = frozenset((errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS))


class StagingBuffers:
    """Reusable buffers whose addresses are multiples of a page. Thread-safe."""

    def __init__(self) -> None:
        self._free: deque[mmap.mmap] = deque()

    def take(self) -> mmap.mmap:
        try:
            return self._free.pop()
        except IndexError:
            return mmap.mmap(-1, STAGING_BYTES)

    def give_back(self, buffer: mmap.mmap) -> None:
        if len(self._free) < _KEPT_BUFFERS:
            self._free.append(buffer)
        else:
            buffer.close()


class DirectWriter:
    """Direct, durable writes to one file, one at a time.

    The last block is written again together with what follows it, as the page cache would do; its bytes are
    kept.
    """

    def __init__(self, descriptor: int, buffers: StagingBuffers) -> None:
        """:param descriptor: of the file, open for reading and writing

        :raises OSError: the file system does not support direct writes
        """
        self._buffered = descriptor
        self._buffers = buffers
        self._direct = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        self._end = -1
        self._tail = b""

    def close(self) -> None:
        if self._direct >= 0:
            os.close(self._direct)
            self._direct = -1

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> bool:
        """Writes all of ``data`` and makes it durable; returns False if the file system refuses such writes.

        The rest of the last block becomes zeros.

        :raises OSError: the write failed; what is on disk is not known
        """
        head = offset % BLOCK_BYTES
        before = self._before(offset, head)
        view = memoryview(data)
        buffer = self._buffers.take()
        try:
            return self._write(buffer, before, view, offset - head)
        finally:
            self._buffers.give_back(buffer)

    def begin(
        self,
        data: bytes | bytearray | memoryview,
        offset: int,
        writes: KernelWrites,
        done: Callable[[None, OSError | None], object],
    ) -> bool:
        """Like :meth:`write`, except that ``done`` is called in the loop when it is durable, or with the
        error.

        :return: whether it was started; otherwise nothing was written
        """
        head = offset % BLOCK_BYTES
        before = self._before(offset, head)
        used = head + len(data)
        length = -(-used // BLOCK_BYTES) * BLOCK_BYTES
        if length > MOST_BYTES:
            return False
        buffer = self._buffers.take()
        buffer[:head] = before
        buffer[head:used] = data
        buffer[used:length] = bytes(length - used)
        tail = buffer[used - used % BLOCK_BYTES : used]
        end, self._end = self._end, -1

        def ended(written: int) -> None:
            self._buffers.give_back(buffer)
            if written == length:
                self._end, self._tail = offset + len(data), tail
                done(None, None)
            else:
                error = OSError(-written, os.strerror(-written)) if written < 0 else _short(length, written)
                done(None, error)

        if writes.begin(self._direct, buffer, length, offset - head, ended):
            return True
        self._end = end
        self._buffers.give_back(buffer)
        return False

    def _before(self, offset: int, head: int) -> bytes:
        """Returns what the block already holds before ``offset``."""
        if not head:
            return b""
        if self._end == offset:
            return self._tail
        found = os.pread(self._buffered, head, offset - head)
        return found + bytes(head - len(found))

    def _write(self, buffer: mmap.mmap, before: bytes, data: memoryview, start: int) -> bool:
        taken = 0
        filled = len(before)
        buffer[:filled] = before
        whole = filled + len(data) <= STAGING_BYTES
        while True:
            piece = data[taken : taken + STAGING_BYTES - filled]
            used = filled + len(piece)
            buffer[filled:used] = piece
            taken += len(piece)
            padded = -(-used // BLOCK_BYTES) * BLOCK_BYTES
            if padded > used:
                buffer[used:padded] = bytes(padded - used)
            if not self._put(buffer, padded, start, os.RWF_DSYNC if whole else 0):
                return False
            if taken == len(data):
                break
            start += used
            filled = 0
        if not whole:
            os.fdatasync(self._direct)
        rest = used % BLOCK_BYTES
        self._end = start + used
        self._tail = buffer[used - rest : used]
        return True

    def _put(self, buffer: mmap.mmap, length: int, offset: int, flags: int) -> bool:
        with memoryview(buffer) as view:
            done = 0
            while done < length:
                try:
                    with view[done:length] as piece:
                        written = os.pwritev(self._direct, [piece], offset + done, flags)
                except OSError as error:
                    if error.errno in _REFUSED and not done:
                        return False
                    raise
                if written <= 0 or written % BLOCK_BYTES:
                    raise _short(length - done, written)
                done += written
        return True


def _short(length: int, written: int) -> OSError:
    return OSError(errno.EIO, f"a direct write of {length} bytes wrote {written}")
