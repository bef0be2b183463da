"""A copy of the embedded metadata, made while the metadata changes: a database that is exact at one
moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from magnetar.io.interfaces import Io, SqlConnection, SqlError, SqlFull, Worker
from magnetar.io.waiting import run_job
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataRefused, MetadataUnavailable
from magnetar.metadata.progress import Edit, Edits, NodeRange, Progress
from magnetar.metadata.sqlite_nodes import SqliteNodes


class MetadataCopy:
    """A copy in progress: the nodes are read in parts, and later changes are applied to parts already read.

    During :meth:`read`, which takes time, the copy follows the changes. :meth:`finish` determines the moment
    whose state the copy contains. :meth:`close` must always be called.
    """

    def __init__(self, io: Io, metadata: EmbeddedMetadataStore, path: str) -> None:
        """:param path: the path of the new database; no file may exist there"""
        self._io = io
        self._metadata = metadata
        self._path = path
        self._worker: Worker = io.start_worker("metadata-copy")
        self._connection: SqlConnection
        self._open = False
        self._edits: list[Edit] = []
        """Changes that are not applied yet, in order."""
        self._after = ""
        """The last path that was read."""
        metadata.listen_for_edits(self._edited)

    async def read(self) -> None:
        """Reads all nodes.

        :raises MetadataRefused: the device has no space for the copy
        :raises MetadataUnavailable: the nodes cannot be read, or the copy cannot be written
        """
        await self._run(self._begin)
        while await self._part(lambda _part: None):
            await self._apply()
        await self._apply()

    async def finish(self, at_moment: Callable[[], None]) -> Progress:
        """Completes the copy; returns the progress that the new database records.

        :param at_moment: called at the moment whose state the copy contains: the copy has every change that
            was reported to listeners of edits before this call, and no other change
        :raises MetadataRefused: the device has no space for the copy
        :raises MetadataUnavailable: the nodes cannot be read, or the copy cannot be written
        """
        found: list[Progress] = []

        def last(part: NodeRange) -> None:
            if not part.upto:
                self._metadata.stop_listening_for_edits(self._edited)
                found.append(part.progress)
                at_moment()

        while await self._part(last):
            await self._apply()
        await self._apply()
        await self._run(partial(self._end, found[0]))
        return found[0]

    def close(self) -> None:
        """Stops the copy; an incomplete file is not removed."""
        self._metadata.stop_listening_for_edits(self._edited)
        self._worker.submit(self._close)
        self._worker.close()

    def _edited(self, edits: Edits) -> None:
        self._edits += edits.edits

    async def _part(self, taken: Callable[[NodeRange], None]) -> bool:
        """Reads one part of the nodes and passes it to ``taken``; returns whether more parts follow."""
        more = False

        def take(part: NodeRange) -> None:
            nonlocal more
            # Replaces everything in its range: what was noted before is older.
            self._edits += part.edits
            if part.upto:
                self._after, more = part.upto, True
            taken(part)

        await self._metadata.read_part(self._after, take)
        return more

    async def _apply(self) -> None:
        edits, self._edits = self._edits, []
        await self._run(partial(self._write, edits))

    async def _run(self, job: Callable[[], None]) -> None:
        try:
            await run_job(self._io.loop, self._worker, job)
        except SqlFull as error:
            raise MetadataRefused(
                f"no space for a copy of the metadata in {self._path!r}: {error}"
            ) from error
        except SqlError as error:
            raise MetadataUnavailable(f"{self._path} cannot be written: {error}") from error

    # On the worker

    def _begin(self) -> None:
        connection = self._connection = self._io.open_sqlite(self._path)
        self._open = True
        connection.start()
        connection.execute("BEGIN IMMEDIATE")
        SqliteNodes(connection).create()

    def _write(self, edits: list[Edit]) -> None:
        nodes = SqliteNodes(self._connection)
        for edit in edits:
            nodes.restore(edit)

    def _end(self, progress: Progress) -> None:
        SqliteNodes(self._connection).add_progress(progress)
        self._connection.execute("COMMIT")
        self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._connection.close()
