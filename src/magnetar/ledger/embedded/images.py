"""Images of the store: an image consists of the bytes of the store's files that represent its state at one
moment."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.ledger.embedded.log import CommitLog
from magnetar.ledger.embedded.maintenance import Maintenance
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.segment_table import SegmentState, SegmentTable


class ImageFile(NamedTuple):
    """A file whose first bytes belong to an image."""

    path: str
    bytes: int
    """The number of bytes; -1: the whole file, whose length does not change any more."""
    sealed: bool
    """Whether the file does not change while the image is held."""


class StoreImage(NamedTuple):
    """The files of the store at one moment, besides VERSION and the copy of the checkpoint."""

    segments: frozenset[int]
    files: list[ImageFile]


class StoreImages:
    """Takes images. An image is the state that a power cut at that moment would leave, without bytes that are
    not durable.

    An image pins its segments like a read: their files and indexes keep their names and bytes until the
    image is released.
    """

    def __init__(
        self,
        directory: str,
        log: CommitLog,
        segments: SegmentTable,
        reads: SegmentReads,
        files: SegmentFiles,
        maintenance: Maintenance,
    ) -> None:
        self.directory = directory
        self._log = log
        self._segments = segments
        self._reads = reads
        self._files = files
        self._maintenance = maintenance
        self.held = 0
        """The number of images that were taken and not released yet."""

    async def prepare(self, checkpoint_copy: str) -> None:
        """Waits until all earlier appends are durable or refused, and copies the last checkpoint.

        :meth:`finish` must be called soon afterwards, because no segment is sealed or removed until then.

        :param checkpoint_copy: path for a copy of the checkpoint, which belongs to the image
        :raises StoreClosed: the log has failed
        :raises OSError: the copy cannot be written
        """
        await self._maintenance.hold(checkpoint_copy)
        try:
            await self._log.flush()
        except BaseException:
            self._maintenance.let_go()
            raise

    def take(self) -> StoreImage:
        """Returns the image of this moment; called between :meth:`prepare` and :meth:`finish`."""
        found: dict[int, list[ImageFile]] = {}
        for state in (SegmentState.SEALED, SegmentState.LEAVING):
            for segment_id in self._segments.of(state):
                paths = (self._files.segment_path(segment_id), self._files.index_path(segment_id))
                found[segment_id] = [ImageFile(path, -1, True) for path in paths]
        for state in (SegmentState.FULL, SegmentState.GROWING):
            for segment_id, segment in self._segments.of(state).items():
                if segment.log is not None:
                    growing = segment.log is self._log.segment
                    end = self._log.durable_end if growing else segment.log.end
                    found[segment_id] = [ImageFile(self._files.segment_path(segment_id), end, False)]
        for segment_id in found:
            self._reads.pin(segment_id)
        self.held += 1
        files = [file for segment_id in sorted(found) for file in found[segment_id]]
        return StoreImage(frozenset(found), files)

    def finish(self) -> None:
        """Lets the store seal and remove segments again after :meth:`prepare`."""
        self._maintenance.let_go()

    def release(self, image: StoreImage) -> None:
        self.held -= 1
        for segment_id in image.segments:
            self._reads.unpin(segment_id)
