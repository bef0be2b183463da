"""Tiered storage for all managed ledgers of a process: uploads, readers and deletions of offloaded ledgers.

Drivers block, so each driver has its own workers: a store that does not answer delays only its own requests.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from magnetar.io.interfaces import Cancellable, Clock, Io, Worker
from magnetar.io.locks import FairSemaphore, Mutex
from magnetar.io.waiting import finished, run_job, settle
from magnetar.ledger.interface import (
    EntryRun,
    LedgerError,
    LedgerMetadata,
    LedgerState,
    LedgerStore,
)
from magnetar.managed_ledger.measures import TieredReads, Timings
from magnetar.managed_ledger.offload_deletions import OffloadDeletions
from magnetar.managed_ledger.records import LedgerSummary, Offload
from magnetar.managed_ledger.settings import OffloadStorage
from magnetar.metadata.interface import MetadataStore
from magnetar.offload.interface import (
    FoundObject,
    OffloadDriver,
    OffloadedReader,
    OffloadError,
    OffloadKey,
    OffloadMisconfigured,
)
from magnetar.offload.ledger_metadata import without_bookies

if TYPE_CHECKING:
    from magnetar.io.interfaces import Future
    from magnetar.offload.interface import OffloadWriter


log = logging.getLogger(__name__)
T = TypeVar("T")
OpenDriver = Callable[[OffloadStorage, Mapping[str, str] | None], OffloadDriver]
"""Opens a driver. The second argument is the recorded description of the store of a ledger that is read or
deleted; None: the driver uploads or lists. Called on a worker. Raises OffloadMisconfigured."""
StorageOf = Callable[[str], Awaitable[OffloadStorage | None]]
"""Returns the tiered storage in the policies of the managed ledger with the given name or, if the managed
ledger was deleted, in the policies of its namespace; None: no tiered storage."""
_READERS = 2
"""The number of threads that read for one driver."""
_UPLOADS = 2
"""The number of ledgers that are uploaded to one store at the same time; each takes memory for two blocks."""
_CHUNK_BYTES = 4 << 20
"""The number of bytes that are read from the ledger store and passed to the driver at a time."""
_IDLE_SECONDS = 600.0
"""The time, in seconds, after which an unused driver is closed and its threads end."""
_CLOSING_SECONDS = 5.0
"""The maximum time, in seconds, that a stopping broker waits for stores that do not answer."""


class TieredStorageError(LedgerError):
    """An offloaded ledger cannot be written, read or deleted, temporarily or permanently; the message gives
    the reason."""


class _Tier:
    """A driver and its workers; used in a ``with`` statement."""

    def __init__(self, io: Io, open_driver: Callable[[], OffloadDriver]) -> None:
        self._io = io
        self._open_driver = open_driver
        self._opening = Mutex(io.loop)
        self._driver: OffloadDriver | None = None
        self._writer = io.start_worker("offload")
        self._workers = [io.start_worker(f"offload-read-{number}") for number in range(_READERS)]
        self.uploads = FairSemaphore(io.loop, _UPLOADS)
        self._readers: dict[OffloadedReader, Worker] = {}
        """Open readers, and the worker of each."""
        self._closing: dict[Worker, deque[OffloadedReader]] = {each: deque() for each in self._workers}
        """Readers that are still to be closed, by worker."""
        self._closers: set[Worker] = set()
        """Workers with a job that closes readers."""
        self._users = 0
        self._used_at = io.loop.time()
        self.ended = False
        """Whether :meth:`end` was called; the tier must not be used any more."""

    def __enter__(self) -> None:
        self._users += 1

    def __exit__(self, *_error: object) -> None:
        self._users -= 1
        self._used_at = self._io.loop.time()

    def idle_at(self) -> float:
        """Returns the loop's time, in seconds, from which on an unused tier may be ended."""
        return (self._io.loop.time() if self._users else self._used_at) + _IDLE_SECONDS

    async def driver(self) -> OffloadDriver:
        """Returns the driver, and opens it if necessary.

        :raises OffloadError: the configuration is wrong
        """
        async with self._opening:
            if self._driver is None:
                self._driver = await self.write(self._open_driver)
            return self._driver

    async def write(self, job: Callable[[], T]) -> T:
        """Runs a job that changes the store, after all earlier jobs; returns its result."""
        return await run_job(self._io.loop, self._writer, job)

    def discard(self, writer: OffloadWriter) -> None:
        """Removes an unfinished upload, after the job in progress. Objects that cannot be removed now are
        removed later, by the uuid that is recorded for the upload."""
        self._writer.submit(writer.abort, self._discarded)

    def _discarded(self, _result: None, error: BaseException | None) -> None:
        if error is not None:
            log.warning("an unfinished upload cannot be removed now", extra={"error": str(error)})

    async def open(self, key: OffloadKey, times: Timings) -> OffloadedReader:
        """Opens a reader of an offloaded ledger.

        :raises OffloadError: the ledger cannot be opened
        """
        driver = await self.driver()
        worker = self._workers[key.ledger_id % _READERS]
        job = partial(_timed, self._io.clock, partial(driver.open, key))
        reader, milliseconds = await run_job(self._io.loop, worker, job)
        times.add(milliseconds)
        self._readers[reader] = worker
        return reader

    async def listed(self, after: str) -> tuple[Sequence[FoundObject], str]:
        """Lists objects in the store; see :meth:`OffloadDriver.listed`.

        :raises OffloadError: the store cannot be listed
        """
        driver = await self.driver()
        return await run_job(self._io.loop, self._workers[0], partial(driver.listed, after))

    async def read(
        self, reader: OffloadedReader, first: int, last: int, max_bytes: int, times: Timings
    ) -> Sequence[EntryRun]:
        """Returns entries of an offloaded ledger.

        :param times: records the duration of the read if the read sent a request to the store
        :raises OffloadError: the entries cannot be read
        """
        before = reader.requests
        job = partial(_timed, self._io.clock, partial(reader.read, first, last, max_bytes))
        runs, milliseconds = await run_job(self._io.loop, self._readers[reader], job)
        if reader.requests != before:
            times.add(milliseconds)
        return runs

    def close_reader(self, reader: OffloadedReader) -> None:
        """Closes a reader, after the job in progress. Idempotent.

        Readers that are closed together share a job, because a broker that stops may have thousands.
        """
        worker = self._readers.pop(reader, None)
        if worker is not None:
            self._closing[worker].append(reader)
            self._close_soon(worker)

    def _close_soon(self, worker: Worker) -> None:
        if worker not in self._closers:
            self._closers.add(worker)
            worker.submit(partial(_close_all, self._closing[worker]), partial(self._closed, worker))

    def _closed(self, worker: Worker, _result: None, error: BaseException | None) -> None:
        if error is not None:
            log.warning("readers of tiered storage cannot be closed", extra={"error": str(error)})
        self._closers.remove(worker)
        if self._closing[worker] and not self.ended:
            self._close_soon(worker)

    def end(self) -> Future[None]:
        """Closes readers, workers and the driver after the jobs in progress, without blocking the loop.

        :return: a future that completes when all threads have ended
        """
        self.ended = True
        ended: Future[None] = self._io.loop.create_future()
        reading = set(self._workers)

        def worker_is_idle(worker: Worker, _result: None, error: BaseException | None) -> None:
            if error is not None:
                log.warning("readers of tiered storage cannot be closed", extra={"error": str(error)})
            # A job has just ended, and none follows: this does not block.
            worker.close()
            reading.remove(worker)
            if not reading:
                driver = self._driver
                self._writer.submit(driver.close if driver is not None else _nothing, driver_closed)

        def driver_closed(_result: None, error: BaseException | None) -> None:
            if error is not None:
                log.warning("a driver of tiered storage cannot be closed", extra={"error": str(error)})
            self._writer.close()
            settle(ended)

        for reader, worker in self._readers.items():
            self._closing[worker].append(reader)
        self._readers.clear()
        for worker in self._workers:
            worker.submit(partial(_close_all, self._closing[worker]), partial(worker_is_idle, worker))
        return ended


def _timed(clock: Clock, job: Callable[[], T]) -> tuple[T, float]:
    """Returns the result of a job, and the duration of the job in ms, without its wait for the worker."""
    began = clock.monotonic()
    found = job()
    return found, (clock.monotonic() - began) * 1000


def _close_all(readers: deque[OffloadedReader]) -> None:
    """Closes all readers; a reader that cannot be closed counts as closed."""
    with ExitStack() as stack:
        while readers:
            stack.callback(readers.popleft().close)


def _nothing() -> None:
    """Does nothing; queued to a worker so that the worker ends after its other jobs."""


_FindTier = Callable[[_Tier | None], Awaitable[_Tier]]


class TieredStorage:
    """Access to the offloaded ledgers of one process, in all stores that policies and records name."""

    def __init__(
        self,
        io: Io,
        store: LedgerStore,
        metadata: MetadataStore,
        open_driver: OpenDriver,
        storage_of: StorageOf,
        note_offloading: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """:param note_offloading: called before the first ledger is offloaded, and before the first offloaded
        ledger is read
        """
        self._io = io
        self._store = store
        self._open_driver = open_driver
        self._find_storage = storage_of
        self._note_offloading = note_offloading
        self._tiers: dict[tuple[OffloadStorage, frozenset[tuple[str, str]] | None], _Tier] = {}
        self._ending: set[Future[None]] = set()
        """Futures of tiers that are being closed; each completes when the tier's threads have ended."""
        self._timer: Cancellable | None = None
        """A timer that ends unused tiers; None: there are no tiers."""
        self._closed = False
        self.deletions = OffloadDeletions(io, metadata, self._erase)

    async def note_use(self) -> None:
        """Records durably that ledgers are in tiered storage.

        :raises MetadataError: the fact cannot be stored
        """
        if self._note_offloading is not None:
            await self._note_offloading()
            self._note_offloading = None

    async def new_place(self, storage: OffloadStorage) -> Offload:
        """Returns the description of a new offload of a ledger, with a new uuid; called before the upload.

        :raises TieredStorageError: the configuration of the store is wrong
        """
        tier = self._tier(storage, None)
        try:
            with tier:
                driver = await tier.driver()
        except OffloadError as error:
            raise TieredStorageError(f"no ledger can be offloaded: {error}") from error
        await self.note_use()
        return Offload(
            UUID(bytes=self._io.randomness.token(16), version=4), driver.name, dict(driver.metadata)
        )

    async def upload(
        self, storage: OffloadStorage, managed_ledger: str, ledger_id: int, place: Offload, times: Timings
    ) -> None:
        """Uploads a closed ledger of the ledger store; all its entries can be read back when this returns.

        :param times: records the durations of reads from the ledger store
        :raises TieredStorageError: the store has failed
        :raises LedgerError: the ledger cannot be read
        """
        key = OffloadKey(managed_ledger, ledger_id, place.uuid)
        tier = self._tier(storage, None)
        with tier:
            async with tier.uploads:
                try:
                    await self._upload(tier, key, times)
                except (OffloadError, ValueError) as error:
                    raise TieredStorageError(f"ledger {ledger_id} cannot be offloaded: {error}") from error

    async def _upload(self, tier: _Tier, key: OffloadKey, times: Timings) -> None:
        reader = await self._store.open(key.ledger_id, recover=False)
        try:
            reader.in_background()
            found = reader.metadata
            record = without_bookies(found.last_entry_id, found.length, found.ctime_ms, found.custom)
            driver = await tier.driver()
            writer = await tier.write(partial(driver.begin, key, record))
            try:
                entry_id = 0
                while entry_id <= found.last_entry_id:
                    began = self._io.clock.monotonic()
                    runs = await reader.read(entry_id, found.last_entry_id, _CHUNK_BYTES)
                    times.add((self._io.clock.monotonic() - began) * 1000)
                    await tier.write(partial(_append, writer, runs))
                    entry_id = runs[-1].last_entry_id + 1
                await tier.write(writer.finish)
            except BaseException:
                # After the job in progress, also if this task was cancelled.
                tier.discard(writer)
                raise
        finally:
            reader.close()

    async def open(
        self,
        managed_ledger: str,
        ledger_id: int,
        place: Offload,
        storage: Callable[[], OffloadStorage | None],
        reads: TieredReads,
    ) -> TieredReader:
        """Opens an offloaded ledger in the store that its record names.

        :param storage: returns the tiered storage in the current policy of the topic, which contains the
            credentials; None: the namespace's policy applies
        :param reads: the statistics to which the reads are added
        :raises TieredStorageError: the ledger cannot be read
        """

        async def find_tier(present: _Tier | None) -> _Tier:
            now = storage()
            if now is None and present is not None and not present.ended:
                # The namespace's policies are not read for each read.
                return present
            return self._tier_of(place, now or await self._find_storage(managed_ledger))

        key = OffloadKey(managed_ledger, ledger_id, place.uuid)
        return await TieredReader.opened(self._io, key, find_tier, reads)

    async def confirm(
        self, managed_ledger: str, summary: LedgerSummary, storage: OffloadStorage | None
    ) -> None:
        """Checks that an offloaded ledger is complete in the store that its record names.

        :raises TieredStorageError: the ledger is missing or incomplete, or the store does not answer
        """
        if summary.offload is None:
            return
        reader = await self.open(
            managed_ledger, summary.ledger_id, summary.offload, lambda: storage, TieredReads()
        )
        try:
            found = reader.metadata
            if (found.last_entry_id, found.length) != (summary.entries - 1, summary.size):
                raise TieredStorageError(
                    f"ledger {summary.ledger_id} has {found.last_entry_id + 1} entries with {found.length} "
                    f"bytes in tiered storage, but {summary.entries} with {summary.size} bytes in its record"
                )
        finally:
            reader.close()

    async def listed(self, storage: OffloadStorage, after: str) -> tuple[Sequence[FoundObject], str]:
        """Returns some of the objects in a store; see :meth:`OffloadDriver.listed`.

        :raises TieredStorageError: the store cannot be listed
        """
        tier = self._tier(storage, None)
        try:
            with tier:
                return await tier.listed(after)
        except OffloadError as error:
            raise TieredStorageError(f"tiered storage cannot be listed: {error}") from error

    async def _erase(self, managed_ledger: str, ledger_id: int, place: Offload) -> None:
        """Deletes the objects of an offloaded ledger.

        :raises TieredStorageError: some objects may be left
        """
        tier = self._tier_of(place, await self._find_storage(managed_ledger))
        key = OffloadKey(managed_ledger, ledger_id, place.uuid)
        try:
            with tier:
                driver = await tier.driver()
                # Only an incomplete offload may have unfinished uploads; to list them takes a permission.
                await tier.write(partial(driver.delete if place.complete else driver.discard, key))
        except OffloadError as error:
            raise TieredStorageError(str(error)) from error

    def _tier_of(self, place: Offload, present: OffloadStorage | None) -> _Tier:
        """Returns the tier of the driver that the record of a ledger names, whatever the current policies
        are.

        :param present: the current policies, for their credentials; None: there are no policies
        :raises TieredStorageError: this object is closed
        """
        values = () if present is None else present.values
        return self._tier(OffloadStorage(place.driver, values), place.properties)

    def _tier(self, storage: OffloadStorage, recorded: Mapping[str, str] | None) -> _Tier:
        """Returns the tier for a store, opened if necessary.

        :param recorded: the recorded description of the store of a ledger that is read or deleted, which
            takes precedence over ``storage``; None: all settings come from ``storage``
        :raises TieredStorageError: this object is closed
        """
        if self._closed:
            raise TieredStorageError("tiered storage is no longer accessed: the broker is stopping")
        key = storage, None if recorded is None else frozenset(recorded.items())
        tier = self._tiers.get(key)
        if tier is None:
            tier = self._tiers[key] = _Tier(self._io, partial(self._open_driver, storage, recorded))
            if self._timer is None:
                self._timer = self._io.loop.call_at(tier.idle_at(), self._end_idle)
        return tier

    def _end_idle(self) -> None:
        """Ends tiers that are not used any more, for example tiers with former credentials."""
        now = self._io.loop.time()
        for key, tier in list(self._tiers.items()):
            if tier.idle_at() <= now:
                del self._tiers[key]
                self._end(tier)
        next_time = min((tier.idle_at() for tier in self._tiers.values()), default=None)
        self._timer = None if next_time is None else self._io.loop.call_at(next_time, self._end_idle)

    def _end(self, tier: _Tier) -> None:
        ended = tier.end()
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Ends all workers after the jobs in progress. Does not wait long for stores that do not
        answer, because deletions and uploads that have not finished are recorded."""
        self._closed = True
        self.deletions.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for tier in self._tiers.values():
            self._end(tier)
        self._tiers.clear()
        until = self._io.loop.time() + _CLOSING_SECONDS
        for ended in list(self._ending):
            await finished(self._io.loop, ended, partial(self._io.loop.call_at, until))
        if self._ending:
            log.warning(
                "tiered storage does not answer; not waiting for it any longer",
                extra={"stores": len(self._ending), "seconds": _CLOSING_SECONDS},
            )


class TieredReader:
    """A ``LedgerReader`` of an offloaded ledger. After a change of credentials in the policies, and after a
    long pause, it opens the ledger again."""

    def __init__(
        self,
        io: Io,
        key: OffloadKey,
        find_tier: _FindTier,
        tier: _Tier,
        reader: OffloadedReader,
        reads: TieredReads,
    ) -> None:
        """Wraps an open reader; use :meth:`opened`."""
        self._key = key
        self._find_tier = find_tier
        self._tier = tier
        self._reader = reader
        self._reads = reads
        self._clock = io.clock
        self._reading = Mutex(io.loop)
        self._closed = False

    @classmethod
    async def opened(cls, io: Io, key: OffloadKey, find_tier: _FindTier, reads: TieredReads) -> TieredReader:
        """Opens an offloaded ledger for reading.

        :param find_tier: called with the tiered storage in use (None at first); returns the tiered storage
            that the current offload policies require
        :param reads: the statistics to which the reads are added
        :raises TieredStorageError: the ledger cannot be read
        """
        tier = await find_tier(None)
        with tier:
            return cls(io, key, find_tier, tier, await _opened(tier, key, reads), reads)

    @property
    def metadata(self) -> LedgerMetadata:
        record = self._reader.record
        return LedgerMetadata(
            self._key.ledger_id,
            LedgerState.CLOSED,
            self._reader.last_entry_id,
            self._reader.length,
            record.ctime_ms,
            record.custom,
        )

    async def read(self, first: int, last: int, max_bytes: int) -> Sequence[EntryRun]:
        """Returns entries; see :meth:`magnetar.ledger.interface.LedgerReader.read`.

        :raises TieredStorageError: the store has failed, or the data is damaged
        """
        async with self._reading:
            self._check_open()
            tier = await self._find_tier(self._tier)
            with tier:
                if tier is not self._tier:
                    await self._move(tier)
                self._check_open()
                try:
                    runs = await tier.read(self._reader, first, last, max_bytes, self._reads.data_times)
                except OffloadError as error:
                    self._reads.errors += 1
                    raise TieredStorageError(
                        f"ledger {self._key.ledger_id} cannot be read from tiered storage: {error}"
                    ) from error
        size = sum(run.size() for run in runs)
        self._reads.bytes += size
        self._reads.recent.add(self._clock.monotonic(), size)
        return runs

    def _check_open(self) -> None:
        if self._closed:
            raise TieredStorageError(f"the reader of ledger {self._key.ledger_id} is closed")

    async def _move(self, tier: _Tier) -> None:
        reader = await _opened(tier, self._key, self._reads)
        self._tier.close_reader(self._reader)
        self._tier, self._reader = tier, reader
        if self._closed:
            tier.close_reader(reader)

    def in_background(self) -> None:
        """Does nothing, because tiered storage has no writers that reads could delay."""

    def has_confirmed(self, entry_id: int) -> None:
        """Does nothing, because the ledger is closed."""

    async def last_add_confirmed(self) -> int:
        return self._reader.last_entry_id

    def close(self) -> None:
        self._closed = True
        self._tier.close_reader(self._reader)


async def _opened(tier: _Tier, key: OffloadKey, reads: TieredReads) -> OffloadedReader:
    """Returns an open reader of a ledger.

    :raises TieredStorageError: the ledger cannot be opened
    """
    try:
        return await tier.open(key, reads.index_times)
    except OffloadError as error:
        reads.errors += 1
        raise TieredStorageError(
            f"ledger {key.ledger_id} cannot be opened in tiered storage: {error}"
        ) from error


def _append(writer: OffloadWriter, runs: Sequence[EntryRun]) -> None:
    for run in runs:
        view = memoryview(run.buffer)
        entries = [view[run.starts[i] : run.ends[i]] for i in range(run.count)]
        writer.append(run.first_entry_id, entries)


def no_driver(storage: OffloadStorage, _recorded: Mapping[str, str] | None) -> OffloadDriver:
    """Refuses to open a driver; for programs that do not access tiered storage.

    :raises OffloadMisconfigured: always
    """
    raise OffloadMisconfigured(f"this program does not access tiered storage ({storage.driver})")


async def no_storage(_managed_ledger: str) -> OffloadStorage | None:
    """Returns None, which means no tiered storage; for programs without policies."""
    return None
