"""Reads entries of a topic directly from the files of an embedded ledger store: ``read.mode=segments``.

The broker creates a read plan: a list of the files with the entries, which are kept until the plan is
released, and of the aborted transactions, whose entries readers must omit. Entries that are not in a file yet
(at the open end of the log) are read through the broker, so that each entry of a range occurs exactly once
and in order.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Generator, Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from magnetar.admin_client import AdminError
from magnetar.ledger.embedded.reader import SegmentReader, entries_of_part
from magnetar.protocol.hot_codec import transaction_of
from magnetar.spark.codec.rows import EntryPart
from magnetar.spark.connection import Connection
from magnetar.spark.ledgers import Range
from magnetar.spark.reading import entries as through_broker

__all__ = ["entries_of", "is_aborted", "part_of"]

log = logging.getLogger(__name__)

_HELD_SECONDS = 600
_PROLONG_AFTER = 200
_LOOK_EVERY = 1000
"""The clock is checked once per this number of entries."""


def entries_of(connection: Connection, topic: str, ranges: Sequence[Range]) -> Generator[EntryPart]:
    """Yields the entries of consecutive ranges; see :func:`magnetar.spark.reading.entries.entries_of`.

    :raises EntriesDamaged: a checksum of a file is wrong
    :raises AdminError: the broker does not create read plans, because read plans are disabled or the broker
        has another store
    :raises FileNotFoundError: ``segments.directory`` is not the broker's data directory
    """
    if not ranges:
        return
    plan = _Plan(connection, topic, ranges)
    try:
        for wanted in ranges:
            for part in plan.parts_of(wanted):
                yield from plan.keep(_part(connection, topic, wanted, part, plan.aborted))
    finally:
        plan.release()


class _Plan:
    """A read plan, whose lifetime is extended while it is in use."""

    def __init__(self, connection: Connection, topic: str, ranges: Sequence[Range]) -> None:
        self._admin = connection.admin
        first, last = ranges[0], ranges[-1]
        made = self._admin.make_read_plan(
            topic, (first.ledger, first.first), (last.ledger, last.first + last.entries), _HELD_SECONDS
        )
        self._id = str(made["id"])
        self.aborted = frozenset((most, least) for most, least in made.get("abortedTransactions", ()))
        """The ids of the aborted transactions, whose entries are omitted."""
        self._ranges: list[dict[str, Any]] = sorted(
            made["ranges"], key=lambda each: (each["ledgerId"], each["firstEntryId"])
        )
        self._held_since = monotonic()

    def parts_of(self, wanted: Range) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
        """Yields the parts of a range in order, each with its first entry, its end and its file. If the file
        is None, the part must be read through the broker.
        """
        at, end = wanted.first, wanted.first + wanted.entries
        for each in self._ranges:
            first = max(at, int(each["firstEntryId"]))
            last = min(end, int(each["lastEntryId"]) + 1)
            if each["ledgerId"] != wanted.ledger or first >= last:
                continue
            if at < first:
                yield at, first, None
            yield first, last, each
            at = last
        if at < end:
            yield at, end, None

    def keep(self, parts: Iterator[EntryPart]) -> Iterator[EntryPart]:
        """Yields the given parts unchanged, and extends the plan's lifetime meanwhile."""
        for number, part in enumerate(parts):
            if number % _LOOK_EVERY == 0 and monotonic() - self._held_since > _PROLONG_AFTER:
                self._admin.prolong_read_plan(self._id, _HELD_SECONDS)
                self._held_since = monotonic()
            yield part

    def release(self) -> None:
        try:
            self._admin.release_read_plan(self._id)
        except AdminError as error:
            log.warning("cannot release a read plan; it will expire: %s", error)


def _part(
    connection: Connection,
    topic: str,
    wanted: Range,
    part: tuple[int, int, dict[str, object] | None],
    aborted: Set[tuple[int, int]],
) -> Iterator[EntryPart]:
    first, end, file = part
    if file is not None:
        with _opened(Path(connection.options.segments_directory), file) as (segment, index):
            found = entries_of_part(segment, index, wanted.ledger, first, end - 1)
            if found is not None:
                for entry, data in found:
                    if not is_aborted(data, aborted):
                        yield part_of(wanted, entry, data)
                return
        log.warning("cannot read the index of %s; reading from the broker", file["segmentFile"])
    whole = min(end, wanted.end)
    piece = Range(
        wanted.ledger,
        first,
        wanted.first_index if first == wanted.first else 0,
        whole,
        wanted.end_index if end > wanted.end else 0,
    )
    yield from through_broker.entries_of(connection, topic, [piece])


def is_aborted(data: bytes, aborted: Set[tuple[int, int]]) -> bool:
    """Whether a stored entry belongs to one of the aborted transactions of its topic."""
    return bool(aborted) and transaction_of(data, 0, len(data)) in aborted


def part_of(wanted: Range, entry: int, data: bytes) -> EntryPart:
    """Returns those messages of a stored entry that a range includes."""
    return EntryPart(
        wanted.ledger,
        entry,
        data,
        wanted.first_index if entry == wanted.first else 0,
        wanted.end_index if entry == wanted.end else -1,
    )


@contextmanager
def _opened(directory: Path, file: dict[str, Any]) -> Iterator[tuple[SegmentReader, Any]]:
    """Context manager: opens a segment under a shared lock; yields its reader and its index.

    :raises FileNotFoundError: the file does not exist
    """
    segment = os.open(directory / file["segmentFile"], os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The store reuses a file only if it gets an exclusive lock without waiting.
        fcntl.flock(segment, fcntl.LOCK_SH)
        index = os.open(directory / file["indexFile"], os.O_RDONLY | os.O_CLOEXEC)
        try:
            reader = SegmentReader(
                lambda length, offset: os.pread(segment, length, offset),
                os.fstat(segment).st_size,
                int(file["segmentId"]),
            )
            if reader.header() is None:
                raise FileNotFoundError(
                    f"{file['segmentFile']} was replaced by another segment: the read plan expired"
                )
            yield reader, lambda length, offset: os.pread(index, length, offset)
        finally:
            os.close(index)
    finally:
        os.close(segment)
