"""The log's segments, prepared ahead of need on a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.io.files import SpaceExhausted
from magnetar.io.interfaces import File, Worker
from magnetar.ledger.embedded.index import GrowingIndex
from magnetar.ledger.embedded.segment_files import SegmentFiles, SegmentRoom
from magnetar.ledger.embedded.segment_header import LOG, SEGMENT_HEADER_BYTES
from magnetar.ledger.embedded.settings import EmbeddedSettings

_ROOMS: Sequence[SegmentRoom] = (SegmentRoom.FREE, SegmentRoom.RESERVED, SegmentRoom.LAST)
"""The kinds of room that are tried in turn for entries that must be stored, if PLENTY is not available."""


class LogSegment:
    """A segment of the log that receives, or will receive, groups."""

    __slots__ = ("end", "file", "first_sequence", "index", "reserved", "room", "segment_id", "size")

    def __init__(
        self, segment_id: int, file: File, size: int, room: SegmentRoom = SegmentRoom.PLENTY
    ) -> None:
        self.segment_id = segment_id
        self.file = file
        self.size = size
        self.room = room
        """The kind of room from which the segment was made, which determines its use."""
        self.reserved = room in (SegmentRoom.RESERVED, SegmentRoom.LAST)
        """Whether the segment is from the reserve, and so not for entries without high priority."""
        self.end = SEGMENT_HEADER_BYTES
        """The offset where the next group begins."""
        self.first_sequence = 0
        self.index = GrowingIndex()


class _Prepared(NamedTuple):
    segment: LogSegment | None
    """The prepared segment; None if there is no room for one."""
    shortage: str
    """The reason why no more entries should be accepted; empty: there is plenty of room."""
    refused: bool = False
    """Whether there is no room for the waiting caller, even in the reserve."""


class _Waiting(NamedTuple):
    """A caller that waits for a segment."""

    needed: int
    """The number of bytes that must fit into the segment."""
    ready: Callable[[], None]
    refused: Callable[[], None]


class SegmentSupply:
    """Provides segments in ascending order of their ids, and prepares one segment ahead of need.

    Each preparation checks how much room there is. A shortage is reported, but is no error: from then on,
    segments are only provided for entries that were accepted before. When the device is full, segments come
    from the reserve.
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
        """:param short: called with each new reason to refuse entries; empty: entries are accepted"""
        self.shortage = ""
        """The last reported reason for a shortage; empty: no shortage."""
        self._files = files
        self._worker = worker
        self._settings = settings
        self._next_id = next_id
        self._failed = failed
        self._short = short
        self._ready: LogSegment | None = None
        self._preparing = False
        self._waiting: _Waiting | None = None
        self._last = False
        """Whether the last provided segment is for changes of ledgers only."""
        self._size = settings.first_segment_bytes
        self._stopped = False

    @property
    def ready_bytes(self) -> int:
        """The size of the prepared segment, in bytes; 0: no segment is prepared."""
        return 0 if self._ready is None else self._ready.size

    @property
    def has_room(self) -> bool:
        """Whether a segment is ready that is not from the reserve, so that it takes entries of any writer."""
        return self._ready is not None and not self._ready.reserved

    @property
    def reserved(self) -> SegmentRoom | None:
        """The kind of room of the prepared segment if it is from the reserve, otherwise None."""
        return self._ready.room if self._ready is not None and self._ready.reserved else None

    def first(self) -> LogSegment:
        """Returns the first segment after a start; blocks until it is ready.

        :raises SpaceExhausted: even the reserve has no room for it
        """
        size = min(self._size, self._settings.segment_bytes)
        prepared = self._prepare(self._next_id(), size, size, _ROOMS)
        if prepared.segment is None:
            raise SpaceExhausted(
                f"no space for a segment of {size} bytes, not even in the reserve: {prepared.shortage}"
            )
        return prepared.segment

    def prefetch(self, active: LogSegment, last: LogSegment) -> None:
        """Starts to prepare the segment after ``active``.

        Sizes grow while segments become full, and shrink when ``last`` was sealed half empty.
        """
        if active is last or last.end * 2 >= last.size:
            self._size = min(active.size * 2, self._settings.segment_bytes)
        else:
            self._size = max(active.size // 2, self._settings.first_segment_bytes)
        self._request(self._size)

    def take(self, needed: int, ready: Callable[[], None], refused: Callable[[], None]) -> LogSegment | None:
        """Returns the next segment, with room for ``needed`` bytes; None: the segment is not ready yet, and
        ``ready`` is called when the caller should ask again.

        :param refused: called instead of ``ready`` if even the reserve has no room for such a segment
        """
        segment = self._ready
        if segment is not None and segment.size >= needed:
            self._ready = None
            self._last = segment.room is SegmentRoom.LAST
            return segment
        self._waiting = _Waiting(needed, ready, refused)
        if segment is not None:
            # Too small for the next item. Its id is used up: ids must ascend along the log.
            self._ready = None
            self._discard(segment)
        self._request(max(needed, self._size))
        return None

    def look_for_room(self) -> None:
        """Tries again to prepare a segment ahead, if there was no room for one."""
        if self.shortage:
            self._request(self._size)

    def stop(self) -> None:
        """Ends all preparation, and discards the prepared segment. The worker must have nothing in flight."""
        self._stopped = True
        if self._ready is not None:
            self._discard(self._ready)
            self._ready = None

    def _request(self, size: int) -> None:
        # A segment that was made in a shortage may be small, and says nothing about the present room.
        if self._preparing or self._stopped or (self._ready is not None and not self.shortage):
            return
        self._preparing = True
        needed, rooms = 0, _ROOMS
        if self._waiting is not None:
            needed = self._waiting.needed
        elif self._last or self.reserved is SegmentRoom.LAST:
            # Only changes of ledgers have room. Cursors may have room again before there is plenty.
            needed, rooms = self._settings.first_segment_bytes, _ROOMS[:-1]
        self._worker.submit(partial(self._prepare, self._next_id(), size, needed, rooms), self._prepared)

    def _prepare(self, segment_id: int, size: int, needed: int, rooms: Sequence[SegmentRoom]) -> _Prepared:
        """Prepares a segment. Runs on the worker.

        :param needed: the bytes for which a segment must be found, from any of ``rooms``; 0: a segment is
            made only if there is plenty of room
        :param rooms: the kinds of room to try in turn if there is not plenty
        """
        try:
            file = self._files.prepare(segment_id, LOG, size, SegmentRoom.PLENTY)
            return _Prepared(LogSegment(segment_id, file, file.size()), "")
        except SpaceExhausted as error:
            shortage = str(error.strerror)
        if not needed:
            return _Prepared(None, shortage)
        size = max(needed, min(size, self._settings.first_segment_bytes))
        for room in rooms:
            try:
                file = self._files.prepare(segment_id, LOG, size, room)
            except SpaceExhausted:
                continue
            return _Prepared(LogSegment(segment_id, file, file.size(), room), shortage)
        return _Prepared(None, shortage, refused=SegmentRoom.LAST in rooms)

    def _prepared(self, prepared: _Prepared | None, error: BaseException | None) -> None:
        self._preparing = False
        if prepared is None:
            self._failed("cannot prepare a segment", error or RuntimeError("the worker returned no segment"))
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
        waiting = self._waiting
        if waiting is None:
            return
        if segment is not None:
            self._waiting = None
            waiting.ready()
        elif prepared.refused:
            self._waiting = None
            waiting.refused()
        else:
            # A caller has begun to wait for a segment during the preparation.
            self._request(max(waiting.needed, self._size))

    def _discard(self, segment: LogSegment) -> None:
        segment.file.close()
        self._worker.submit(lambda: self._files.retire(segment.segment_id), self._discarded)

    def _discarded(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._failed("cannot remove a segment", error)
