"""The file that records the durable end of the log; without it, the loss of the last segment would go
unnoticed.

A group declares earlier groups durable: if an earlier group is damaged, durable entries were lost. No group
follows the last one, so while the log grows, its end is recorded once a second in a separate file. A log that
ends before the recorded position has lost acknowledged entries.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import NamedTuple

from magnetar.io.crc32c import crc32c
from magnetar.io.files import is_shortage
from magnetar.io.interfaces import Disk, Io, Worker
from magnetar.ledger.interface import DataDamaged

LOG_END_NAME = "log-end"
NOTED_SECONDS = 1.0
"""The maximum time in seconds between a commit and the recording of the log's new end."""
_SLOT_BYTES = 4096
"""The size of each of the two slots, in bytes. A record replaces the older slot, so that a torn write leaves
the newer one."""
_FIELDS = struct.Struct("<8s16sQQ")
"""Magic, store id, segment id, sequence number."""
_CHECKSUM = struct.Struct("<I")
_MAGIC = b"MGLOGEND"
log = logging.getLogger(__name__)


class LogEnd(NamedTuple):
    """A durable position of the log."""

    segment_id: int
    sequence: int
    """The sequence number of the group at this position."""

    def check(self, next_sequence: int, path: str) -> None:
        """Checks the end of a replay against this position.

        :param next_sequence: the sequence number after that of the last group that was replayed
        :param path: the path of the segment
        :raises DataDamaged: the log ends before this position
        """
        if next_sequence <= self.sequence:
            raise DataDamaged(
                f"{path} is missing, truncated or an older copy: the log ends before group "
                f"{next_sequence}, but group {self.sequence} was acknowledged. Restore the newest copy of "
                "the file"
            )


def _encode(store_id: bytes, end: LogEnd) -> bytes:
    fields = _FIELDS.pack(_MAGIC, store_id, *end)
    return fields + _CHECKSUM.pack(crc32c(fields))


def read_log_end(disk: Disk, directory: str, store_id: bytes) -> LogEnd | None:
    """Returns the recorded end; None if this store has recorded none, or if the file cannot be read."""
    path = f"{directory}/{LOG_END_NAME}"
    if not disk.exists(path):
        return None
    file = disk.open(path, write=False)
    try:
        slots = [file.read(_FIELDS.size + _CHECKSUM.size, at) for at in (0, _SLOT_BYTES)]
    finally:
        file.close()
    found = [end for slot in slots if (end := _decode(slot, store_id)) is not None]
    if not found:
        log.warning("cannot read the recorded end of the log", extra={"path": path})
    return max(found, key=lambda end: end.sequence, default=None)


def _decode(slot: bytes, store_id: bytes) -> LogEnd | None:
    if len(slot) < _FIELDS.size + _CHECKSUM.size:
        return None
    magic, found_id, segment_id, sequence = _FIELDS.unpack_from(slot)
    (checksum,) = _CHECKSUM.unpack_from(slot, _FIELDS.size)
    if magic != _MAGIC or found_id != store_id or crc32c(slot[: _FIELDS.size]) != checksum:
        return None
    return LogEnd(segment_id, sequence)


class LogEndFile:
    """The file that stores the position at which the log ends; one write at a time."""

    def __init__(
        self, io: Io, directory: str, store_id: bytes, worker: Worker, failure: StoreFailure
    ) -> None:
        self._disk = io.disk
        self._directory = directory
        self._path = f"{directory}/{LOG_END_NAME}"
        self._store_id = store_id
        self._worker = worker
        self._failure = failure
        self._writing = False
        self._slot = 0

    def note(self, end: LogEnd) -> None:
        """Records an end; it becomes durable later. A call while a record is being written is ignored."""
        if not self._writing:
            self._writing = True
            self._worker.submit(lambda: self._write(end), self._written)

    def _write(self, end: LogEnd) -> None:
        data = _encode(self._store_id, end)
        new = not self._disk.exists(self._path)
        file = self._disk.open(self._path, create=True)
        try:
            if new:
                file.allocate(2 * _SLOT_BYTES)
            file.write_durably(data, self._slot * _SLOT_BYTES)
        finally:
            file.close()
        if new:
            self._disk.sync_directory(self._directory)
        self._slot = 1 - self._slot

    def _written(self, _: None, error: BaseException | None) -> None:
        self._writing = False
        if error is None:
            return
        if is_shortage(error):
            log.warning("not enough disk space to record the end of the log", extra={"error": str(error)})
        else:
            self._failure("cannot note where the log ends", error)


class StoreFailure:
    """Stops the process after the first failure, because the state of the disk is then unknown."""

    def __init__(self, io: Io) -> None:
        self.happened = False
        self._io = io
        self._last_words: list[Callable[[str], None]] = []

    def before_stopping(self, last_words: Callable[[str], None]) -> None:
        """Registers ``last_words``, which is called with the name of the failed operation before the process
        stops."""
        self._last_words.append(last_words)

    def __call__(self, what: str, error: BaseException) -> None:
        self.happened = True
        for say in self._last_words:
            say(what)
        self._io.stop_process(f"{what}: {error}; the process stops, nothing acknowledged is lost")
