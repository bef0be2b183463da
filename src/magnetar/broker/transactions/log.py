"""The log of a coordinator, or of the pending acknowledgements of a subscription: records in a managed ledger
with one cursor, in Pulsar's format.

An entry is one record. If the settings enable batching, an entry can also be the bytes :data:`_SEVERAL`
followed by several records. Both forms can be read under any settings.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar.broker.transactions import BatchedWrites
from magnetar.broker.transactions.figures import BatchFigures, Flush
from magnetar.broker.transactions.records_pb2 import (
    BatchedPendingAckMetadataEntry,
    BatchedTransactionMetadataEntry,
    PendingAckMetadataEntry,
    TransactionMetadataEntry,
)
from magnetar.io.interfaces import Cancellable, Io
from magnetar.io.slices import Slice
from magnetar.io.waiting import fail, settle
from magnetar.ledger.interface import EntryRun, LedgerError, Quorums
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.errors import ManagedLedgerClosed, ManagedLedgerError, ManagedLedgerFenced
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.managed_ledger.position import EARLIEST, Position, format_position
from magnetar.managed_ledger.settings import RetentionSettings
from magnetar.metadata.interface import MetadataError

if TYPE_CHECKING:
    from magnetar.io.interfaces import Future

R = TypeVar("R", bound=Message)

_SEVERAL = b"\x0e\x01\x00\x01"
"""The beginning of an entry of several records: a magic number and a version, 16 bits each."""
_FIRST_FIELD = b"\x0a"
"""The tag of the repeated field that holds the records of a batch; the message has no other field."""
_READ_ENTRIES, _READ_BYTES = 1000, 1 << 20


class LogDamaged(ManagedLedgerError):
    """An entry of a log cannot be parsed; the message names the entry."""


class RecordPosition(NamedTuple):
    """The position of a record: its entry, and the record's index in the entry."""

    ledger_id: int
    entry_id: int
    batch_index: int = 0
    """The index of the record in the entry."""
    batch_size: int = 1
    """The number of records in the entry."""


class LogFormat(Generic[R]):
    """How the entries of one kind of log are parsed."""

    def __init__(self, one: Callable[[bytes], R], several: Callable[[bytes], Sequence[R]]) -> None:
        """:param one: parses an entry of one record

        :param several: parses an entry of several records, without the bytes that mark such an entry
        """
        self._one = one
        self._several = several

    def parse(self, entry: bytes) -> Sequence[R]:
        """Returns the records of an entry.

        :raises DecodeError: ``entry`` is not an entry of such a log
        """
        if entry.startswith(_SEVERAL):
            return self._several(entry[len(_SEVERAL) :])
        return (self._one(entry),)


COORDINATOR_RECORDS = LogFormat(
    TransactionMetadataEntry.FromString,
    lambda data: BatchedTransactionMetadataEntry.FromString(data).transaction_logs,
)
PENDING_ACK_RECORDS = LogFormat(
    PendingAckMetadataEntry.FromString,
    lambda data: BatchedPendingAckMetadataEntry.FromString(data).pending_ack_logs,
)


def _together(records: Sequence[bytes]) -> bytes:
    """Returns one entry that contains several records."""
    pieces = [_SEVERAL]
    for record in records:
        pieces += (_FIRST_FIELD, _varint(len(record)), record)
    return b"".join(pieces)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


class TransactionLog(Generic[R]):
    """The log of a coordinator or of a subscription. It is opened by :func:`open_log`, and listens to its
    managed ledger."""

    def __init__(
        self,
        io: Io,
        ledgers: ManagedLedgerFactory,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        form: LogFormat[R],
        writes: BatchedWrites,
        lost: Callable[[BaseException], None],
        figures: BatchFigures | None,
    ) -> None:
        self._io = io
        self._figures = figures
        self._ledgers = ledgers
        self.managed_ledger = managed_ledger
        self.cursor = cursor
        self._form = form
        self._writes = writes
        self._tell_lost = lost
        self._error: BaseException | None = None
        """The error because of which the log accepts no more records; None: the log accepts records."""
        self._waiting: list[tuple[bytes, Future[RecordPosition]]] = []
        """Records that are not passed to the managed ledger yet."""
        self._waiting_bytes = 0
        self._waiting_since = 0.0
        self._flushing: Cancellable | None = None
        self._held: dict[Position, list[list[RecordPosition]]] = {}
        """By the position of an entry: the records of ended transactions that are acknowledged only after
        this entry is consumed, because the entry has an earlier record of the same transaction.
        """
        self.records_written = 0
        """Durable records since the log was opened."""
        self.batches_written = 0
        """The number of batched entries since the log was opened; such an entry can hold several records."""
        managed_ledger.listener = self

    @property
    def lost(self) -> bool:
        """Whether the log accepts no more records because it is closed, owned by another broker, or has
        failed."""
        return self._error is not None

    # Writing

    def begin(self, record: R) -> Future[RecordPosition]:
        """Writes a record after all earlier records; returns a future of its position, done when the record
        is durable.

        The future fails with a LedgerError, a ManagedLedgerError or a MetadataError. After
        :class:`~magnetar.managed_ledger.errors.ManagedLedgerFenced` the record may be stored nevertheless;
        after any other error, the record is not stored.
        """
        done: Future[RecordPosition] = self._io.loop.create_future()
        if self._error is not None:
            fail(done, self._error)
            return done
        data = record.SerializeToString()
        writes = self._writes
        if writes.enabled and self._waiting and self._waiting_bytes + len(data) > writes.max_bytes:
            self._flush(Flush.LARGE if len(data) >= writes.max_bytes else Flush.SIZE)
        if writes.enabled and not self._waiting:
            self._waiting_since = self._io.loop.time()
        self._waiting.append((data, done))
        self._waiting_bytes += len(data)
        if writes.enabled and len(self._waiting) >= writes.max_records:
            self._flush(Flush.RECORDS)
        elif writes.enabled and self._waiting_bytes >= writes.max_bytes:
            self._flush(Flush.SIZE)
        elif self._flushing is None:
            if writes.enabled:
                delay = writes.max_delay_seconds
                self._flushing = self._io.loop.call_later(delay, self._flush, Flush.DELAY)
            else:
                self._flushing = self._io.loop.call_soon(self._flush)
        return done

    async def append(self, record: R) -> RecordPosition:
        """Writes a record; it is durable when this returns. A cancelled call may still write it.

        :raises LedgerError: the record is not stored
        :raises MetadataError: the record is not stored
        :raises ManagedLedgerFenced: another broker owns the log; the record may be stored
        :raises ManagedLedgerError: the record is not stored
        """
        return await self.begin(record)

    def _flush(self, why: Flush | None = None) -> None:
        """Passes all waiting records to the managed ledger.

        :param why: the reason, for statistics; None: the log is being closed, or its records are not batched
        """
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        waiting, self._waiting = self._waiting, []
        size, self._waiting_bytes = self._waiting_bytes, 0
        if not waiting:
            return
        entries = [data for data, _done in waiting]
        futures = [[done] for _data, done in waiting]
        # Apache Pulsar writes a record that fills a batch by itself without the form of several.
        if self._writes.enabled and (len(entries) > 1 or size < self._writes.max_bytes):
            entries, futures = [_together(entries)], [[done for _data, done in waiting]]
            self.batches_written += 1
            if why is not None and self._figures is not None:
                waited = self._io.loop.time() - self._waiting_since
                self._figures.wrote(why, len(waiting), size, waited)
        starts, ends = array("q"), array("q")
        at = 0
        for entry in entries:
            starts.append(at)
            at += len(entry)
            ends.append(at)
        try:
            self.managed_ledger.append(b"".join(entries), starts, ends, len(entries), at, futures)
        except ManagedLedgerError as error:
            for _data, done in waiting:
                fail(done, error)

    def on_durable(self, appends: Sequence[Append]) -> None:
        for append in appends:
            entry_id = append.first_entry_id
            for futures in append.context[append.first : append.first + append.count]:
                count = len(futures)
                self.records_written += count
                for index, done in enumerate(futures):
                    settle(done, RecordPosition(append.ledger_id, entry_id, index, count))
                entry_id += 1

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        for append in appends:
            for futures in append.context[append.first : append.first + append.count]:
                for done in futures:
                    fail(done, error)

    def on_fenced(self) -> None:
        name = self.managed_ledger.name
        self._end(ManagedLedgerFenced(f"{name} is now owned by another broker: the record may be stored"))

    def fail(self, error: BaseException) -> None:
        self.managed_ledger.abandon()
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """Fails all waiting records, and notifies the owner of the log."""
        if self._error is not None:
            return
        self._error = error
        waiting, self._waiting = self._waiting, []
        for _data, done in waiting:
            fail(done, error)
        # The managed ledger reports no outcome of what was passed to a writer before it was fenced.
        for append in list(self.managed_ledger.appends):
            for futures in append.context[append.first : append.first + append.count]:
                for done in futures:
                    fail(done, error)
        self._tell_lost(error)

    # Reading

    async def replay(self, take: Callable[[RecordPosition, R], object]) -> None:
        """Calls ``take`` with each record that is not acknowledged, in order. Must be called before the first
        append.

        :raises LedgerError: an entry cannot be read
        :raises LogDamaged: an entry cannot be parsed
        """
        cursor = self.cursor
        cursor.rewind()
        running = Slice(self._io, "loading")
        while cursor.has_more():
            run = await cursor.read(_READ_ENTRIES, _READ_BYTES)
            if run is None:
                # Entries were lost, and the settings permit to go on after them.
                continue
            for first, end in cursor.unconsumed_parts(run):
                for index in range(first, end):
                    self._take(run, index, take)
                    await running.rest()
        running.end()

    def _take(self, run: EntryRun, index: int, take: Callable[[RecordPosition, R], object]) -> None:
        position = (run.ledger_id, run.first_entry_id + index)
        records = self._parsed(run.entry(index), position)
        left = self.cursor.remaining_bits(*position)
        for number, record in enumerate(records):
            if left is None or left >> number & 1:
                take(RecordPosition(*position, number, len(records)), record)

    def _parsed(self, entry: bytes, position: Position) -> Sequence[R]:
        try:
            return self._form.parse(entry)
        except DecodeError as error:
            where = f"{self.managed_ledger.name}, entry {format_position(position)}"
            raise LogDamaged(f"{where}: not a record of a transaction log") from error

    async def last_record(self) -> R | None:
        """Returns the last stored record, acknowledged or not; None if no entry is stored.

        :raises LedgerError: the record cannot be read
        :raises LogDamaged: the record cannot be parsed
        """
        position = self.managed_ledger.last_confirmed
        if not self.managed_ledger.ledgers.exists(position):
            return None
        run = await self.managed_ledger.reader.read_one(position)
        return self._parsed(run.entry(0), position)[-1]

    # Acknowledging

    def acknowledge(self, positions: Iterable[RecordPosition]) -> None:
        """Acknowledges all records of one transaction, in any order; not durable at once.

        An entry is consumed once all its records are acknowledged. The record of a transaction's end is kept
        until the entries with its earlier records are consumed: a replay that finds a transaction then also
        finds its end, even if the acknowledgements of single records were not stored.
        """
        ordered = sorted(positions)
        if not ordered:
            return
        last = ordered[-1]
        earlier = [each for each in ordered if each[:2] != last[:2]]
        for position in earlier:
            self._acknowledge(position)
        kept = [each for each in earlier if not self.cursor.is_consumed(*each[:2])]
        if kept:
            self._held.setdefault(kept[0][:2], []).append([*kept, last])
            return
        for position in ordered[len(earlier) :]:
            self._acknowledge(position)

    def _acknowledge(self, position: RecordPosition) -> None:
        ledger_id, entry_id, index, count = position
        if count == 1:
            self.cursor.delete(ledger_id, entry_id)
            return
        left = (1 << count) - 1 & ~(1 << index)
        _cleared, whole = self.cursor.consume_batch_indexes(ledger_id, entry_id, left, count)
        if whole:
            self._release((ledger_id, entry_id))

    def _release(self, consumed: Position) -> None:
        for positions in self._held.pop(consumed, ()):
            self.acknowledge(positions)

    def acknowledge_to(self, position: RecordPosition) -> None:
        """Acknowledges all entries before a record, and the record's entry if the record is the last one in
        it."""
        ledger_id, entry_id, index, count = position
        self.cursor.mark_delete_to((ledger_id, entry_id if index == count - 1 else entry_id - 1))
        for consumed in [each for each in self._held if self.cursor.is_consumed(*each)]:
            self._release(consumed)

    # Properties, and its end

    async def keep_properties(self, properties: Callable[[], Mapping[str, str]]) -> None:
        """Stores properties with the managed ledger now, and again with each new ledger.

        Consumed ledgers are kept until this method or :meth:`begin_trimming` was called.

        :raises ManagedLedgerFenced: another broker owns the log
        :raises MetadataError: the properties cannot be stored
        """
        ledger = self.managed_ledger
        now = properties()
        if any(ledger.properties.get(key) != value for key, value in now.items()):
            await ledger.set_properties(now)
        ledger.properties_with_ledgers = properties
        self.begin_trimming()

    def begin_trimming(self) -> None:
        """Permits the deletion of ledgers whose entries are all consumed."""
        self.managed_ledger.trimmer.begin()

    async def close(self) -> None:
        """Writes the waiting records and the cursor, and closes the managed ledger.

        :raises LedgerError: the last ledger cannot be closed; the next opening recovers it
        """
        self._flush()
        await self._ledgers.close(self.managed_ledger)
        self._close()

    async def delete(self) -> None:
        """Deletes the managed ledger.

        :raises ManagedLedgerFenced: another broker owns the log
        """
        self._flush()
        await self._ledgers.delete(self.managed_ledger)
        self._close()

    def _close(self) -> None:
        if self._error is None:
            self._error = ManagedLedgerClosed(f"{self.managed_ledger.name} is closed")


async def open_log(
    io: Io,
    ledgers: ManagedLedgerFactory,
    name: str,
    cursor: str,
    form: LogFormat[R],
    writes: BatchedWrites,
    lost: Callable[[BaseException], None],
    *,
    create: bool = True,
    properties: Mapping[str, str] | None = None,
    quorums: Quorums | None = None,
    tenure: Tenure | None = None,
    figures: BatchFigures | None = None,
) -> TransactionLog[R]:
    """Opens or creates a log; no other broker can write to it any more.

    Nothing is trimmed before :meth:`TransactionLog.keep_properties` or
    :meth:`TransactionLog.begin_trimming`.

    :param name: the name of the managed ledger
    :param lost: called once, on the event loop, if the log stops accepting records before it is closed:
        another broker owns it, or an internal error occurred. The owner must then close the log
    :param properties: the properties of the managed ledger if it is created
    :param quorums: quorums of new ledgers; None: the quorums in the settings
    :param tenure: the ownership of this broker, which may end at any time; None: the ownership cannot end
    :param figures: counts the batches; None: they are not counted
    :raises ManagedLedgerNotFound: the log does not exist and ``create`` is false
    :raises ManagedLedgerError: another broker opened it at the same time, or its record is damaged
    :raises LedgerError: its ledgers cannot be opened or created
    :raises MetadataError: its record cannot be read or written
    """
    managed_ledger = await ledgers.open(
        name,
        create=create,
        retention=RetentionSettings(),
        quorums=quorums,
        trims=False,
        tenure=tenure,
        properties=properties,
    )
    try:
        opened = await ledgers.open_cursor(managed_ledger, cursor, EARLIEST, {})
    except (LedgerError, ManagedLedgerError, MetadataError):
        await ledgers.close(managed_ledger)
        raise
    return TransactionLog(io, ledgers, managed_ledger, opened, form, writes, lost, figures)
