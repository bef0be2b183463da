"""Writes that bypass the page cache: the bytes of a log go from memory to the device once, durably.

Written entries are in the entry cache already; a copy in the page cache would only cost memory and CPU
time (copying, finding pages, writing them back later).
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from magnetar.io.waiting import tell

BLOCK_BYTES = 4096
"""Offsets, lengths and addresses of direct writes are multiples of this number."""
STAGING_BYTES = 1 << 20
"""The size of one buffer in bytes; a longer write is split."""
_KEPT_BUFFERS = 4
_REFUSED = frozenset((errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS))
MOST_BYTES = 64 << 10
"""The maximum size of one write, in bytes. A larger write would block the loop for longer than it takes to
pass the write to a thread, which can use another processor.
"""
_AT_ONCE = 16
"""The maximum number of writes in flight."""
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
"""For each machine architecture: the numbers of the system calls io_setup, io_destroy, io_submit and
io_getevents.
"""
_PWRITE = 1
_EVENTFD = 1
_EVENT_WORDS = 4
Done = Callable[[int], object]
"""Called with the number of written bytes, or with the negative error number."""


class StagingBuffers:
    """Reusable, page-aligned buffers. Thread-safe."""

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

    An incomplete last block is written again together with the next write, as the page cache would do, so its
    bytes are kept in memory.
    """

    def __init__(self, descriptor: int, buffers: StagingBuffers) -> None:
        """:param descriptor: the file's descriptor, open for reading and writing
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
        """Writes all of ``data`` and makes it durable; returns False if the file system refuses direct
        writes.

        The rest of the last block becomes zeros.

        :raises OSError: the write failed; the bytes on disk are unknown
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
        """Starts a write like :meth:`write`, without waiting for its end.

        At its end, ``done(None, error)`` is called on the loop; ``error`` is None if the data is durable.

        :return: whether the write was started; otherwise nothing was written
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
        """Returns the ``head`` bytes before ``offset``, which belong to the same block and must be written
        again.
        """
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


class _Fields(ctypes.Structure):
    """``struct iocb`` of ``linux/aio_abi.h`` on little-endian machines."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Request:
    """A reusable ``iocb`` for durable writes."""

    def __init__(self, eventfd: int) -> None:
        self.fields = _Fields(opcode=_PWRITE, rw_flags=os.RWF_DSYNC, flags=_EVENTFD, eventfd=eventfd)
        self.place = self.fields.data = ctypes.addressof(self.fields)
        self.pointer = (ctypes.c_void_p * 1)(self.place)


class KernelWrites:
    """Durable writes of one event loop that the kernel performs asynchronously, without a thread (Linux AIO).

    Waking a thread, and alternating with it at the interpreter's lock, costs more than a small write.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sets up kernel writes.

        :raises OSError: the system does not support kernel writes, or the system's limit of such writes is
            reached
        :raises NotImplementedError: the loop cannot watch descriptors
        """
        self._loop = loop
        numbers = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
        if numbers is None or sys.byteorder != "little" or sys.maxsize < 1 << 32:
            raise OSError(errno.ENOSYS, "asynchronous writes need 64-bit Linux on a known processor")
        self._setup, self._destroy, self._submit, self._get = map(ctypes.c_long, numbers)
        self._call: Any = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._ask(self._setup, ctypes.c_long(_AT_ONCE), ctypes.byref(self._context))
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = (ctypes.c_int64 * (_EVENT_WORDS * _AT_ONCE))()
        self._one, self._many, self._none = ctypes.c_long(1), ctypes.c_long(_AT_ONCE), ctypes.c_long(0)
        self._idle = [_Request(self._eventfd) for _ in range(_AT_ONCE)]
        self._in_flight: dict[int, tuple[_Request, mmap.mmap, Done]] = {}
        """The pending writes, by the address of the request: the request, the buffer from which the kernel
        reads, and the function to call at the end.
        """
        try:
            loop.add_reader(self._eventfd, self._told)
        except NotImplementedError:
            self._end()
            raise

    def begin(self, descriptor: int, buffer: mmap.mmap, length: int, offset: int, done: Done) -> bool:
        """Writes the first ``length`` bytes of a buffer, which must not change before ``done`` is called.

        :param descriptor: a file descriptor that is open for direct writes
        :param length: a multiple of :data:`BLOCK_BYTES`, as is ``offset``
        :return: whether the write was started; otherwise nothing was written
        """
        if not self._idle:
            return False
        request = self._idle.pop()
        fields = request.fields
        fields.descriptor, fields.length, fields.offset = descriptor, length, offset
        first = ctypes.c_char.from_buffer(buffer)
        fields.address = ctypes.addressof(first)
        # A remaining reference would keep the buffer from being closed.
        del first
        if self._call(self._submit, self._context, self._one, request.pointer) != 1:
            self._idle.append(request)
            return False
        self._in_flight[request.place] = request, buffer, done
        return True

    def _told(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        events = self._events
        found = self._ask(self._get, self._context, self._none, self._many, events, None)
        ended = [(events[_EVENT_WORDS * n], events[_EVENT_WORDS * n + 2]) for n in range(found)]
        for place, result in ended:
            request, _buffer, done = self._in_flight.pop(place)
            self._idle.append(request)
            tell(self._loop, done, result)

    def _ask(self, *arguments: object) -> int:
        answer: int = self._call(*arguments)
        if answer < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return answer

    def _end(self) -> None:
        """Waits for the writes in flight."""
        self._ask(self._destroy, self._context)
        os.close(self._eventfd)
        self._eventfd = -1

    def __del__(self) -> None:
        # Runs when the loop is freed, which refers to this object; earlier only if nothing was started.
        if getattr(self, "_eventfd", -1) >= 0:
            self._end()
