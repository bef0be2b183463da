"""Images of the store: the bytes of its files that are its state at one moment."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.ledger.embedded.log import CommitLog
from magnetar.ledger.embedded.maintenance import Maintenance
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.segment_table import SegmentState, SegmentTable


class ImageFile(NamedTuple):
    """The first bytes of a file that belong to an image."""

    path: str
    bytes: int
    """-1: the whole file, whose length does not change any more."""
    sealed: bool
    """Whether the file never changes again while the image holds it."""


class StoreImage(NamedTuple):
    """The files of the store at a moment, besides VERSION and the copy of the checkpoint."""

    segments: frozenset[int]
    files: list[ImageFile]


class StoreImages:
    """Takes images; one is what a power cut at that moment would leave, without anything that is not durable.

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
        """Images that were taken and not released yet."""

    async def prepare(self, checkpoint_copy: str) -> None:
        """Makes everything durable that was appended before the call, and holds the last checkpoint.

        :meth:`finish` has to be called afterwards, soon: no segment is sealed or removed in between.

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
        """Returns the image of this moment; between :meth:`prepare` and :meth:`finish`."""
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
        """Lets the store go on after :meth:`prepare`."""
        self._maintenance.let_go()

    def release(self, image: StoreImage) -> None:
        self.held -= 1
        for segment_id in image.segments:
            self._reads.unpin(segment_id)
