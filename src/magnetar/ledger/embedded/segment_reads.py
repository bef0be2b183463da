"""Reading from segments: open files, pins, workers, and a limit of bytes in flight."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from magnetar.invariants import must, violated
from magnetar.io.interfaces import File, Future, Io, Worker
from magnetar.io.waiting import run_job
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import LedgerUnreadable, StoreClosed

T = TypeVar("T")


class SegmentReads:
    """The reads from the segments of one store. A pinned segment keeps its file, even if its ledgers are
    deleted."""

    def __init__(
        self, io: Io, files: SegmentFiles, settings: EmbeddedSettings, unpinned: Callable[[], None]
    ) -> None:
        """:param unpinned: called when a segment's last pin is released"""
        self._unpinned = unpinned
        self._io = io
        self._files = files
        self._settings = settings
        self._open: OrderedDict[tuple[int, bool], File] = OrderedDict()
        """The open files by segment, and by whether the operating system may read ahead."""
        self._pins: dict[int, int] = {}
        self._workers: list[Worker] = []
        self._next_worker = 0
        self._in_flight = 0
        self._queue: deque[tuple[int, Future[None]]] = deque()
        self._closed = False

    def pin(self, segment_id: int) -> None:
        self._pins[segment_id] = self._pins.get(segment_id, 0) + 1

    def unpin(self, segment_id: int) -> None:
        left = self._pins.get(segment_id, 0) - 1
        if left < 0:
            violated(None, f"pins of segment {segment_id}", "at least 0", left)
        if left:
            self._pins[segment_id] = left
        else:
            del self._pins[segment_id]
            self._unpinned()

    def is_pinned(self, segment_id: int) -> bool:
        return segment_id in self._pins

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the pins of a segment or the bytes in flight are out of range
        """
        for segment_id, pins in self._pins.items():
            must(pins > 0, "segment", segment_id, "is held", pins, "times")
        must(self._in_flight >= 0, self._in_flight, "bytes are being read")
        must(bool(self._in_flight) or not self._queue, "reads are queued while none is in progress")

    def adopt(self, segment_id: int, file: File) -> None:
        """Takes over an open file of a segment."""
        self._adopt((segment_id, True), file)

    def _adopt(self, key: tuple[int, bool], file: File) -> None:
        self._open[key] = file
        self._close_some()

    def drop(self, segment_id: int) -> None:
        """Closes the files of a segment that is not pinned."""
        for ahead in (True, False):
            file = self._open.pop((segment_id, ahead), None)
            if file is not None:
                file.close()

    async def read(self, segment_id: int, length: int, offset: int, *, ahead: bool = True) -> bytes:
        """Returns up to ``length`` bytes of a pinned segment; fewer only at its end.

        :param ahead: whether the operating system may read ahead
        :raises StoreClosed: the store is closed
        :raises LedgerUnreadable: the operating system cannot read the bytes
        """
        await self._wait_for_room(length)
        key = segment_id, ahead
        try:
            known = self._open.get(key)
            if known is not None:
                self._open.move_to_end(key)
                # Without reading ahead, the bytes are rarely cached: not worth the time on the loop.
                with self._unreadable(segment_id):
                    at_hand = known.read_cached(length, offset) if ahead else None
                if at_hand is not None:
                    return at_hand
                return await self.job(segment_id, lambda: known.read(length, offset))
            file, data = await self.job(segment_id, lambda: self._open_and_read(key, length, offset))
            if self._closed or key in self._open:
                file.close()
            else:
                self._adopt(key, file)
            return data
        finally:
            self._give_room(length)

    async def job(self, segment_id: int, job: Callable[[], T]) -> T:
        """Runs ``job``, which reads from a segment or its index, on one of the readers' workers.

        :raises StoreClosed: the store is closed
        :raises LedgerUnreadable: the operating system refuses an operation of the job
        """
        if self._closed:
            raise StoreClosed("the ledger store is closed")
        with self._unreadable(segment_id):
            if len(self._workers) < self._settings.reader_workers:
                self._workers.append(self._io.start_worker(f"ledger-read-{len(self._workers)}"))
            worker = self._workers[self._next_worker % len(self._workers)]
            self._next_worker += 1
            return await run_job(self._io.loop, worker, job)

    @contextmanager
    def _unreadable(self, segment_id: int) -> Iterator[None]:
        """Converts system errors to :class:`LedgerUnreadable`, after which readers try again instead of
        ending."""
        try:
            yield
        except OSError as error:
            path = self._files.segment_path(segment_id)
            raise LedgerUnreadable(f"{path} cannot be read: {error.strerror or error}") from error

    def close(self) -> None:
        """Refuses all waiting and later reads."""
        self._closed = True
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _open_and_read(self, key: tuple[int, bool], length: int, offset: int) -> tuple[File, bytes]:
        file = self._files.open(key[0], ahead=key[1])
        try:
            return file, file.read(length, offset)
        except BaseException:
            file.close()
            raise

    def _close_some(self) -> None:
        spare = len(self._open) - self._settings.open_segments
        for key in [key for key in self._open if key[0] not in self._pins][: max(spare, 0)]:
            self._open.pop(key).close()

    async def _wait_for_room(self, length: int) -> None:
        """Waits, first come first served, until ``length`` more bytes may be in flight."""
        limit = self._settings.reads_in_flight_bytes
        if self._queue or (self._in_flight and self._in_flight + length > limit):
            admitted = self._io.loop.create_future()
            self._queue.append((length, admitted))
            try:
                await admitted
            except BaseException:
                if admitted.done() and not admitted.cancelled():
                    self._give_room(length)
                raise
        else:
            self._in_flight += length

    def _give_room(self, length: int) -> None:
        self._in_flight -= length
        if self._in_flight < 0:
            found, self._in_flight = self._in_flight, 0
            violated(None, "bytes of reads in flight", "at least 0", found)
        limit = self._settings.reads_in_flight_bytes
        while self._queue:
            wanted, admitted = self._queue[0]
            if self._in_flight and self._in_flight + wanted > limit:
                return
            self._queue.popleft()
            if not admitted.done():
                self._in_flight += wanted
                admitted.set_result(None)
