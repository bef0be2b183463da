"""Ledgers on the bookies of a cluster, which other clients write, read and repair at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from magnetar.io.interfaces import Cancellable, ConnectingNetwork, Io, Loop, Task
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import InProgress, outcome, together
from magnetar.ledger.bookkeeper import ledger_record
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.bookies import Bookies, BookiesSettings, Use
from magnetar.ledger.bookkeeper.digests import Digest, DigestType, master_key
from magnetar.ledger.bookkeeper.frames import Flag, Status
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, MetadataFailed, Segment
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, holders_of, used_before
from magnetar.ledger.bookkeeper.placement import (
    DiskSpaces,
    DiskSpaceSettings,
    Placement,
    RandomPlacement,
    Weights,
    alike,
)
from magnetar.ledger.bookkeeper.rack_placement import PlacementSettings, RackPlacement
from magnetar.ledger.bookkeeper.racks import RackTable
from magnetar.ledger.bookkeeper.reader import LedgerOpening, OpeningParts, ReadSettings
from magnetar.ledger.bookkeeper.wire import Operation, write_lac_request
from magnetar.ledger.bookkeeper.writer import BookKeeperWriter, WriterCounts, WriterParts
from magnetar.ledger.interface import LedgerReader, LedgerWriter, NoSuchLedger, Quorums, StoreClosed
from magnetar.metadata.interface import MetadataError, MetadataStore

if TYPE_CHECKING:
    from magnetar.ledger.embedded.ledger_reader import EmbeddedReadPlans


class BookKeeperSettings(NamedTuple):
    root: str = "/ledgers"
    """The path below which the metadata store has the metadata of ledgers and bookies."""
    digest: DigestType = DigestType.CRC32C
    """The digest type of new ledgers (managedLedgerDigestType)."""
    password: bytes = b""
    """The password of all ledgers (managedLedgerPassword)."""
    bookies: BookiesSettings = BookiesSettings()
    reading: ReadSettings = ReadSettings()
    placement: PlacementSettings | None = None
    """The placement rules; None: bookies are chosen at random, without groups."""
    disk_space: DiskSpaceSettings | None = None
    """The queries of free disk space; None: the free space of bookies is not considered."""
    explicit_lac_seconds: float = 0.0
    """The interval in seconds at which the last-add-confirmed of idle ledgers is reported; 0: never
    (bookkeeperExplicitLacIntervalInMills)."""
    max_pending_bytes: int = 64 << 20
    """The maximum number of bytes that one bookie has not answered. While a bookie has more, no further
    entries of its ledgers are confirmed, even if the other bookies have stored the entries."""


_IDS_CHECKED = 200
_CHECKED_AT_ONCE = 50


class ClientFigures(NamedTuple):
    """The current statistics of this BookKeeper client."""

    writable: int
    """The number of bookies that accept entries."""
    read_only: int
    quarantined: int
    """The number of bookies that get no new ledgers because of errors."""
    writers: int
    """The number of open ledgers with a writer in this process."""
    pending_bytes: int
    """The bytes of unanswered adds, over all bookies."""
    replaced: int
    """The number of bookies replaced in ensembles since the store was opened."""
    fenced: int
    """The number of writers ended since the store was opened because their ledger was being recovered."""
    failed: int
    """The number of writers ended for other reasons, before they were closed, since the store was opened."""


class BookKeeperLedgerStore:
    """A ``LedgerStore`` on bookies, opened by :meth:`open_store`.

    Closing the store leaves open ledgers open: the next client that opens them recovers them.
    """

    cursor_write_interval: float | None = None

    def __init__(
        self,
        io: Io,
        metadata: MetadataStore,
        settings: BookKeeperSettings,
        network: ConnectingNetwork | None,
        racks: RackTable | None,
    ) -> None:
        self._io = io
        self._settings = settings
        self.records = LedgerRecords(metadata, io.loop, settings.root)
        self.bookies = Bookies(io, metadata, settings.root, settings.bookies, network)
        self._racks = racks
        self._spaces: DiskSpaces | None = None
        weights: Weights = alike
        if settings.disk_space is not None:
            self._spaces = DiskSpaces(io.loop, io.clock, self.bookies, settings.disk_space)
            weights = self._spaces.weights
        self.placement: Placement = RandomPlacement(self.bookies, io.randomness, weights)
        if racks is not None and settings.placement is not None:
            self.placement = RackPlacement(self.bookies, racks, settings.placement, io.randomness, weights)
        self._writers: dict[int, BookKeeperWriter] = {}
        self._writer_parts = WriterParts(
            io.loop,
            self.records,
            self.bookies,
            self.placement,
            settings.max_pending_bytes,
            self._writer_ended,
            WriterCounts(),
        )
        self._opening = LedgerOpening(
            OpeningParts(
                io.loop,
                io.clock,
                self.records,
                self._reading,
                lambda bookie_id: self.bookies.bookie(bookie_id, Use.RECOVERING),
                self.placement,
                self._writers.get,
                self._fencing,
                settings.password,
                settings.reading,
            )
        )
        self._explicit_lac: ExplicitLac | None = None
        self._working = InProgress(io.loop)
        self._closed = False
        self._tasks = TaskScope(io.loop, "ledgers on bookies", owner_goes_on)
        self._closing: Task[None] | None = None

    @classmethod
    async def open_store(
        cls,
        io: Io,
        metadata: MetadataStore,
        settings: BookKeeperSettings | None = None,
        network: ConnectingNetwork | None = None,
        racks_in: MetadataStore | None = None,
    ) -> BookKeeperLedgerStore:
        """Opens the store.

        :param metadata: a store that finds out the outcome of each unanswered change (``ResolvingStore``);
            the caller closes this store after the ledger store
        :param network: the network for connections to bookies; None: the network of ``io``
        :param racks_in: the store with the table of racks; None: ``metadata``
        :raises UnknownLayout: the metadata of ledgers has a layout that this release does not know
        :raises MetadataFailed: the metadata cannot be read
        """
        settings = settings or BookKeeperSettings()
        racks = None if settings.placement is None else RackTable(io, racks_in or metadata)
        store = cls(io, metadata, settings, network, racks)
        await store.records.check_layout()
        try:
            await store.bookies.start()
            if racks is not None:
                await racks.start()
        except MetadataError as error:
            raise MetadataFailed(f"the list of bookies cannot be read: {error}") from error
        store.records.listen(store._metadata_changed)
        store._begin_asking()
        return store

    @property
    def read_plans(self) -> EmbeddedReadPlans | None:
        return None

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> LedgerWriter:
        """Creates a ledger; see ``LedgerStore.create``.

        :raises NotEnoughBookies: too few bookies accept entries
        :raises LedgerIdUsed: the metadata is older than the bookies' data
        :raises ValueError: the quorums contradict each other
        """
        if not 0 < quorums.ack <= quorums.write <= quorums.ensemble:
            raise ValueError(f"invalid quorums of a ledger: {quorums}")
        with self._operation():
            settings = self._settings
            placed = dict(custom)
            if quorums.groups is not None:
                placed[ledger_record.CUSTOM] = ledger_record.written(quorums.groups)
            record = LedgerRecord(
                replace(quorums, groups=None),
                (Segment(0, self.placement.ensemble(quorums)),),
                digest=settings.digest,
                password=settings.password,
                ctime_ms=self._io.clock.wall_ms(),
                custom=placed,
            )
            ledger_id, made = await self.records.make(record)
            await self._check_unused(ledger_id, record.segments[0].ensemble)
            flags = Flag.HIGH_PRIORITY if high_priority else Flag.NONE
            writer = BookKeeperWriter(ledger_id, made, self._writer_parts, flags)
            if self._closed:
                writer.refuse(StoreClosed("the ledger store is closed"))
            self._writers[ledger_id] = writer
            return writer

    async def check_ids(self) -> None:
        """Asks all writable bookies whether they have entries under the next ledger ids; uses up the first of
        these ids.

        :raises LedgerIdUsed: a bookie has such entries, because the metadata is older than the bookies' data
        """
        first, bookies = await self.records.new_id(), self.bookies.writable

        async def check(ledger_id: int) -> None:
            holders = await holders_of(self._io.loop, ledger_id, bookies, self._reading)
            if holders:
                raise used_before(ledger_id, holders)

        # A ledger without entries is unknown to all bookies.
        await together(self._io.loop, range(first, first + _IDS_CHECKED), check, _CHECKED_AT_ONCE)

    async def _check_unused(self, ledger_id: int, ensemble: Sequence[str]) -> None:
        """Checks that bookies have no entries of a ledger that was just created.

        :raises LedgerIdUsed: a bookie has entries under its id
        """
        holders = await holders_of(self._io.loop, ledger_id, ensemble, self._reading)
        if holders:
            # Restores the previous state: a ledger without metadata.
            await self.records.delete(ledger_id)
            raise used_before(ledger_id, holders)

    def _reading(self, bookie_id: str) -> Bookie:
        return self.bookies.bookie(bookie_id, Use.READING)

    async def open(self, ledger_id: int, *, recover: bool) -> LedgerReader:
        self._still_open()
        return await self._opening.open(ledger_id, recover=recover)

    def may_be_written(self, ledger_id: int) -> bool:
        return True

    async def delete(self, ledger_id: int) -> None:
        """Deletes the metadata; bookies notice this and delete the entries."""
        with self._operation():
            await self.records.delete(ledger_id)
            self._opening.deleted(ledger_id)
            writer = self._writers.get(ledger_id)
            if writer is not None:
                writer.end(NoSuchLedger(ledger_id))

    async def ledger_ids(self) -> Sequence[int]:
        """Returns the ids of the ledgers of all clients of the cluster; check the owner of a ledger before
        you delete the ledger."""
        with self._operation():
            return await self.records.ledger_ids()

    def figures(self) -> ClientFigures:
        bookies, counts = self.bookies, self._writer_parts.counts
        return ClientFigures(
            len(bookies.writable),
            len(bookies.read_only),
            len(bookies.quarantined()),
            len(self._writers),
            bookies.pending_bytes,
            counts.replaced,
            counts.fenced,
            counts.failed,
        )

    async def close(self) -> None:
        if self._closing is None:
            self._closed = True
            self._closing = self._tasks.answer(self._close())
        await outcome(self._io.loop, self._closing)

    async def _close(self) -> None:
        for writer in list(self._writers.values()):
            writer.refuse(StoreClosed("the ledger store is closed"))
        await self._working.none()
        for writer in list(self._writers.values()):
            await writer.settled()
            writer.stop()
        await self._opening.close()
        await self.records.close()
        if self._racks is not None:
            self._racks.close()
        if self._spaces is not None:
            self._spaces.stop()
        if self._explicit_lac is not None:
            self._explicit_lac.stop()
        self.bookies.close()

    def _begin_asking(self) -> None:
        """Starts the periodic queries of free disk space, and the periodic reports of the last-add-confirmed,
        as configured."""
        if self._spaces is not None:
            self._spaces.start()
        seconds = self._settings.explicit_lac_seconds
        if seconds:
            writers = self._writers
            self._explicit_lac = ExplicitLac(
                self._io.loop, self.bookies, lambda: list(writers.values()), seconds
            )

    def _operation(self) -> InProgress:
        """Returns a context manager for an operation; closing the store waits for the operation's end.

        :raises StoreClosed: the store is closing
        """
        self._still_open()
        return self._working

    def _still_open(self) -> None:
        if self._closed:
            raise StoreClosed("the ledger store is closed")

    def _writer_ended(self, ledger_id: int) -> None:
        self._writers.pop(ledger_id, None)

    def _fencing(self, ledger_id: int) -> None:
        writer = self._writers.get(ledger_id)
        if writer is not None:
            writer.fenced()

    def _metadata_changed(self, ledger_id: int) -> None:
        writer = self._writers.get(ledger_id)
        if writer is not None:
            self._tasks.start(writer.look(), "reading the changed metadata of a ledger")


class ExplicitLac:
    """Reports the last-add-confirmed of all writers periodically, until it is stopped.

    An entry contains the last-add-confirmed at the time of its sending. So readers of an open ledger learn
    that the last entry is confirmed only from the next entry, or from a separate request
    (``bookkeeperExplicitLacIntervalInMills``).

    :param seconds: the interval between two reports
    """

    def __init__(
        self, loop: Loop, bookies: Bookies, writers: Callable[[], Iterable[BookKeeperWriter]], seconds: float
    ) -> None:
        self._loop = loop
        self._bookies = bookies
        self._writers = writers
        self._seconds = seconds
        self._told: dict[int, int] = {}
        """By ledger: the id of the last confirmed entry in the latest report to bookies."""
        self._timer: Cancellable = loop.call_later(seconds, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._look)
        before, self._told = self._told, {}
        for writer in self._writers():
            known, confirmed = before.get(writer.ledger_id, -1), writer.last_add_confirmed
            self._told[writer.ledger_id] = confirmed
            if confirmed > known and confirmed == writer.last_appended:
                self._tell(writer, confirmed)

    def _tell(self, writer: BookKeeperWriter, confirmed: int) -> None:
        record, ledger_id = writer.record, writer.ledger_id
        request = partial(
            write_lac_request,
            ledger_id=ledger_id,
            confirmed=confirmed,
            key=master_key(record.password),
            body=Digest(record.digest, record.password).told(ledger_id, confirmed),
        )
        for bookie_id in record.segments[-1].ensemble:
            self._bookies.bookie(bookie_id, Use.ASKING).ask(
                Operation.WRITE_LAC, request, partial(self._answered, ledger_id, confirmed)
            )

    def _answered(self, ledger_id: int, confirmed: int, status: int, _bodies: list[bytes]) -> None:
        if status != Status.OK and self._told.get(ledger_id) == confirmed:
            # The next round tries again.
            del self._told[ledger_id]
