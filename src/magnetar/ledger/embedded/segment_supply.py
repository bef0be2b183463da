"""The log's segments, made ready ahead of need on a worker."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.io.interfaces import File, Worker
from magnetar.ledger.embedded.index import GrowingIndex
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import LOG, SEGMENT_HEADER_BYTES
from magnetar.ledger.embedded.settings import EmbeddedSettings


class LogSegment:
    """A segment of the log that takes, or will take, groups."""

    __slots__ = ("end", "file", "first_sequence", "index", "segment_id", "size")

    def __init__(self, segment_id: int, file: File, size: int) -> None:
        self.segment_id = segment_id
        self.file = file
        self.size = size
        self.end = SEGMENT_HEADER_BYTES
        """Where the next group begins."""
        self.first_sequence = 0
        self.index = GrowingIndex()


class SegmentSupply:
    """Hands out segments in ascending order of their ids and prepares one ahead."""

    def __init__(
        self,
        files: SegmentFiles,
        worker: Worker,
        settings: EmbeddedSettings,
        next_id: Callable[[], int],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._files = files
        self._worker = worker
        self._settings = settings
        self._next_id = next_id
        self._failed = failed
        self._ready: LogSegment | None = None
        self._preparing = False
        self._wanted: Callable[[], None] | None = None
        self._size = settings.first_segment_bytes
        self._stopped = False

    @property
    def ready_bytes(self) -> int:
        """The size of the segment that is prepared."""
        return 0 if self._ready is None else self._ready.size

    def first(self) -> LogSegment:
        """The first segment of a life; blocks until it is there."""
        return self._prepare(self._next_id(), min(self._size, self._settings.segment_bytes))

    def prefetch(self, active: LogSegment, last: LogSegment) -> None:
        """Begins to prepare the segment after ``active``.

        Sizes grow as long as segments get full, and shrink when ``last`` was sealed half empty.
        """
        if active is last or last.end * 2 >= last.size:
            self._size = min(active.size * 2, self._settings.segment_bytes)
        else:
            self._size = max(active.size // 2, self._settings.first_segment_bytes)
        self._request(self._size)

    def take(self, needed: int, ready: Callable[[], None]) -> LogSegment | None:
        """The next segment, with room for ``needed`` bytes; None: ``ready`` is called when to ask again."""
        segment = self._ready
        if segment is not None and segment.size >= needed:
            self._ready = None
            return segment
        self._wanted = ready
        if segment is not None:
            # Too small for what comes next. Its id is spent: ids must ascend along the log.
            self._ready = None
            self._discard(segment)
        self._request(max(needed, self._size))
        return None

    def stop(self) -> None:
        """Prepares nothing more; what is ready goes. Call with nothing in flight on the worker."""
        self._stopped = True
        if self._ready is not None:
            self._discard(self._ready)
            self._ready = None

    def _request(self, size: int) -> None:
        if self._preparing or self._stopped or (self._ready is not None):
            return
        self._preparing = True
        segment_id = self._next_id()
        self._worker.submit(lambda: self._prepare(segment_id, size), self._prepared)

    def _prepare(self, segment_id: int, size: int) -> LogSegment:
        file = self._files.prepare(segment_id, LOG, size)
        return LogSegment(segment_id, file, file.size())

    def _prepared(self, segment: LogSegment | None, error: BaseException | None) -> None:
        self._preparing = False
        if segment is None:
            self._failed("cannot prepare a segment", error or RuntimeError("no segment"))
            return
        if self._stopped:
            segment.file.close()
            return
        self._ready = segment
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted()

    def _discard(self, segment: LogSegment) -> None:
        segment.file.close()
        self._worker.submit(lambda: self._files.retire(segment.segment_id), self._discarded)

    def _discarded(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._failed("cannot remove a segment", error)
