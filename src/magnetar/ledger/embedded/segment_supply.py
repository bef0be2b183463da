"""The log's segments, made ready ahead of need on a worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from magnetar.io.interfaces import File, Worker
from magnetar.io.space_reserve import SpaceExhausted
from magnetar.ledger.embedded.index import GrowingIndex
from magnetar.ledger.embedded.segment_files import Room, SegmentFiles
from magnetar.ledger.embedded.segment_header import LOG, SEGMENT_HEADER_BYTES
from magnetar.ledger.embedded.settings import EmbeddedSettings


class LogSegment:
    """A segment of the log that takes, or will take, groups."""

    __slots__ = ("end", "file", "first_sequence", "index", "reserved", "segment_id", "size")

    def __init__(self, segment_id: int, file: File, size: int, *, reserved: bool = False) -> None:
        self.segment_id = segment_id
        self.file = file
        self.size = size
        self.reserved = reserved
        """Its room is not meant for entries, except of high priority."""
        self.end = SEGMENT_HEADER_BYTES
        """Where the next group begins."""
        self.first_sequence = 0
        self.index = GrowingIndex()


class _Prepared(NamedTuple):
    segment: LogSegment | None
    """None: nobody waits for one, and there is no room."""
    shortage: str
    """Why no more entries should be accepted; empty: there is plenty of room."""


class SegmentSupply:
    """Hands out segments in ascending order of their ids and prepares one ahead.

    How much room there is, it finds out with each segment, a whole segment before it is needed: that there
    is none is no error but told, and only what was accepted still gets segments. When nothing is free, they
    come from the reserve.
    """

    def __init__(
        self,
        files: SegmentFiles,
        worker: Worker,
        settings: EmbeddedSettings,
        next_id: Callable[[], int],
        failed: Callable[[str, BaseException], None],
        short: Callable[[str], object],
    ) -> None:
        """:param short: told why no more entries should be accepted whenever that changes; empty: they may"""
        self.shortage = ""
        """What was told last."""
        self._needed = 0
        """Bytes that must fit into the segment that is waited for."""
        self._files = files
        self._worker = worker
        self._settings = settings
        self._next_id = next_id
        self._failed = failed
        self._short = short
        self._ready: LogSegment | None = None
        self._preparing = False
        self._wanted: Callable[[], None] | None = None
        self._size = settings.first_segment_bytes
        self._stopped = False

    @property
    def ready_bytes(self) -> int:
        """The size of the segment that is prepared."""
        return 0 if self._ready is None else self._ready.size

    @property
    def has_room(self) -> bool:
        """Whether a segment is ready that takes all entries."""
        return self._ready is not None and not self._ready.reserved

    @property
    def has_reserved(self) -> bool:
        """Whether the segment that is ready takes entries of high priority only."""
        return self._ready is not None and self._ready.reserved

    def first(self) -> LogSegment:
        """The first segment of a life; blocks until it is there.

        :raises SpaceExhausted: not even the reserve has room for it
        """
        size = min(self._size, self._settings.segment_bytes)
        segment = self._prepare(self._next_id(), size, size).segment
        if segment is None:
            raise AssertionError("a segment that is needed is made, or there is an error")
        return segment

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
        self._wanted, self._needed = ready, needed
        if segment is not None:
            # Too small for what comes next. Its id is spent: ids must ascend along the log.
            self._ready = None
            self._discard(segment)
        self._request(max(needed, self._size))
        return None

    def look_for_room(self) -> None:
        """Tries again to prepare a segment ahead, if there was no room for one."""
        if self.shortage:
            self._request(self._size)

    def stop(self) -> None:
        """Prepares nothing more; what is ready goes. Call with nothing in flight on the worker."""
        self._stopped = True
        if self._ready is not None:
            self._discard(self._ready)
            self._ready = None

    def _request(self, size: int) -> None:
        # One that was made in a shortage may be small, and says nothing of the room there is now.
        if self._preparing or self._stopped or (self._ready is not None and not self.shortage):
            return
        self._preparing = True
        needed = 0 if self._wanted is None else self._needed
        self._worker.submit(partial(self._prepare, self._next_id(), size, needed), self._prepared)

    def _prepare(self, segment_id: int, size: int, needed: int) -> _Prepared:
        """Runs on the worker.

        :param needed: bytes that must have room somewhere; 0: none
        :raises SpaceExhausted: they have none, not even in the reserve
        """
        try:
            file = self._files.prepare(segment_id, LOG, size, Room.PLENTY)
            return _Prepared(LogSegment(segment_id, file, file.size()), "")
        except SpaceExhausted as error:
            shortage = str(error.strerror)
        if not needed:
            return _Prepared(None, shortage)
        size = max(needed, min(size, self._settings.first_segment_bytes))
        try:
            file = self._files.prepare(segment_id, LOG, size, Room.FREE)
            return _Prepared(LogSegment(segment_id, file, file.size()), shortage)
        except SpaceExhausted:
            file = self._files.prepare(segment_id, LOG, size, Room.RESERVED)
            return _Prepared(LogSegment(segment_id, file, file.size(), reserved=True), shortage)

    def _prepared(self, prepared: _Prepared | None, error: BaseException | None) -> None:
        self._preparing = False
        if prepared is None:
            self._failed("cannot prepare a segment", error or RuntimeError("no segment"))
            return
        segment = prepared.segment
        if self._stopped:
            if segment is not None:
                segment.file.close()
            return
        if segment is not None:
            if self._ready is not None:
                self._discard(self._ready)
            self._ready = segment
        if prepared.shortage != self.shortage:
            self.shortage = prepared.shortage
            self._short(self.shortage)
        if self._wanted is None:
            return
        if segment is None:
            # Somebody has come to need it meanwhile.
            self._request(self._size)
            return
        wanted, self._wanted = self._wanted, None
        wanted()

    def _discard(self, segment: LogSegment) -> None:
        segment.file.close()
        self._worker.submit(lambda: self._files.retire(segment.segment_id), self._discarded)

    def _discarded(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._failed("cannot remove a segment", error)
