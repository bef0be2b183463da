"""A bucket in memory, and the driver that offloads to it; it survives crashes of the world that uses it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.settings import OffloadStorage
from magnetar.offload.interface import OffloadedLedger, OffloadedLedgerMissing, OffloadKey, OffloadUnavailable


class MemoryBucket:
    """Objects by uuid: complete ones, and those of uploads that have not ended."""

    def __init__(self) -> None:
        self.complete: dict[UUID, tuple[LedgerRecord, list[bytes]]] = {}
        self.unfinished: dict[UUID, list[bytes]] = {}
        self.calls = 0
        self.fault: Callable[[int, str], bool] = lambda _call, _name: False
        """Called with the number of each call and its name; True: the call fails without effect."""
        self.loses_answer: Callable[[int, str], bool] = lambda _call, _name: False
        """Like :attr:`fault`; True: the call has its effect and fails."""
        self.opened: list[OffloadStorage] = []
        """What each driver was opened with."""
        self.closed = 0
        """The number of drivers that were closed."""

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Does what happens ``with`` it, unless a fault says otherwise."""
        self.calls += 1
        number = self.calls
        if self.fault(number, name):
            raise OffloadUnavailable(f"{name}: the bucket does not answer")
        yield
        if self.loses_answer(number, name):
            raise OffloadUnavailable(f"{name}: the answer of the bucket is lost")

    def open_driver(self, storage: OffloadStorage, _recorded: Mapping[str, str] | None) -> MemoryDriver:
        self.opened.append(storage)
        return MemoryDriver(self, storage)


class MemoryDriver:
    """An ``OffloadDriver``."""

    def __init__(self, bucket: MemoryBucket, storage: OffloadStorage) -> None:
        self._bucket = bucket
        self.name = storage.driver
        self.metadata = {"bucket": "memory"}

    def begin(self, key: OffloadKey, record: LedgerRecord) -> MemoryWriter:
        with self._bucket.call("begin"):
            self._bucket.unfinished[key.uuid] = []
            return MemoryWriter(self._bucket, key, record)

    def open(self, key: OffloadKey) -> MemoryReader:
        with self._bucket.call("open"):
            found = self._bucket.complete.get(key.uuid)
            if found is None:
                raise OffloadedLedgerMissing(f"{key.uuid} does not exist")
            return MemoryReader(self._bucket, key, *found)

    def delete(self, key: OffloadKey) -> None:
        with self._bucket.call("delete"):
            self._bucket.complete.pop(key.uuid, None)

    def discard(self, key: OffloadKey, _upload_id: str = "") -> None:
        with self._bucket.call("discard"):
            self._bucket.complete.pop(key.uuid, None)
            self._bucket.unfinished.pop(key.uuid, None)

    def close(self) -> None:
        self._bucket.closed += 1


class MemoryWriter:
    """An ``OffloadWriter``."""

    def __init__(self, bucket: MemoryBucket, key: OffloadKey, record: LedgerRecord) -> None:
        self._bucket = bucket
        self._key = key
        self._record = record
        self.upload_id = str(key.uuid)

    def append(self, first_entry_id: int, entries: Sequence[bytes | memoryview]) -> int:
        with self._bucket.call("append"):
            stored = self._bucket.unfinished[self._key.uuid]
            assert first_entry_id == len(stored)
            stored += map(bytes, entries)
            return sum(map(len, stored))

    def finish(self) -> OffloadedLedger:
        with self._bucket.call("finish"):
            stored = self._bucket.unfinished.pop(self._key.uuid)
            size = sum(map(len, stored))
            assert (len(stored) - 1, size) == (self._record.last_entry_id, self._record.length)
            self._bucket.complete[self._key.uuid] = self._record, stored
            return OffloadedLedger(len(stored), size, size, 1)

    def abort(self) -> None:
        with self._bucket.call("abort"):
            self._bucket.complete.pop(self._key.uuid, None)
            self._bucket.unfinished.pop(self._key.uuid, None)


class MemoryReader:
    """An ``OffloadedReader``."""

    def __init__(
        self, bucket: MemoryBucket, key: OffloadKey, record: LedgerRecord, entries: list[bytes]
    ) -> None:
        self._bucket = bucket
        self._ledger_id = key.ledger_id
        self.record = record
        self._entries = entries
        self.first_entry_id = 0
        self.last_entry_id = len(entries) - 1
        self.length = sum(map(len, entries))
        self.requests = 0

    def read(self, first: int, last: int, _max_bytes: int) -> Sequence[EntryRun]:
        self.requests += 1
        with self._bucket.call("read"):
            wanted = self._entries[first : last + 1]
            ends = [sum(map(len, wanted[: index + 1])) for index in range(len(wanted))]
            starts = array("q", [0, *ends[:-1]])
            return [EntryRun(self._ledger_id, first, len(wanted), b"".join(wanted), starts, array("q", ends))]

    def close(self) -> None:
        """Has nothing to close."""
