"""The transaction buffer: which messages of a topic consumers may see.

Messages of a transaction are stored where they were sent. An open transaction hides all messages of the topic
from its first message on; its end is a marker in the topic. Entries of aborted transactions stay in the
topic, but no consumer gets them.

The markers in the topic determine the state. Snapshots of the state are stored, so that a load of the topic
need not read the whole topic; the first snapshot is stored before the first message of a transaction (PIP-31,
PIP-160).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from array import array
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import accumulate

from magnetar.broker.transactions import TransactionSettings, TxnId, txn_text
from magnetar.errors import BrokerError, NotAllowed, ServiceNotReady, TopicTerminated
from magnetar.invariants import must
from magnetar.io.crc32c import crc32c
from magnetar.io.interfaces import Cancellable, Future, Loop
from magnetar.io.locks import Mutex
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import settle
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.hot_codec import MARKED, TRANSACTIONAL, batch_sizes, transaction_of
from magnetar.protocol.metadata import broker_metadata_size, build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

log = logging.getLogger(__name__)

COMMITTED, ABORTED = 21, 22
"""The values of ``marker_type`` of the two markers that end a transaction."""
MARKER_PRODUCER = "pulsar.txn.marker"
_MOST_REMEMBERED = 10_000
"""The maximum number of ended transactions above the low-water mark that are remembered, to refuse late
messages."""
_READ_ENTRIES = 1_000
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BufferSnapshot:
    """The state of a topic's transactions up to a position."""

    max_read: Position
    """The position up to which the snapshot is complete; later entries must be read again."""
    aborted: Mapping[TxnId, Position]
    """Aborted transactions, with the positions of their markers."""


Json = dict[str, object]
Store = Callable[[BufferSnapshot], Awaitable[None]]
"""Stores the snapshot of a topic.

:raises BrokerError: the snapshot cannot be stored now
"""
WriteMarker = Callable[[TxnId, bool], Awaitable[Position]]
"""Publishes the marker that commits a transaction (if the second argument is true) or aborts it. Returns the
marker's position when the marker is durable and :meth:`TransactionBuffer.ended` was called.

:raises BrokerError: the topic does not store the marker
"""


class SnapshotStore(ABC):
    """The store of the snapshots of all topics."""

    @abstractmethod
    async def load(self, topic: TopicName) -> BufferSnapshot | None:
        """Returns a topic's latest snapshot; None if the topic has never had transactions.

        :raises BrokerError: the snapshots of the namespace cannot be read now
        :raises LedgerError: the snapshots of the namespace cannot be read now
        """

    @abstractmethod
    async def store(self, topic: TopicName, snapshot: BufferSnapshot) -> None:
        """Stores a snapshot of a topic.

        :raises BrokerError: the snapshot cannot be stored now
        """

    @abstractmethod
    async def delete(self, topic: TopicName) -> None:
        """Deletes the snapshots of a deleted topic.

        :raises BrokerError: a topic with snapshots cannot be written now
        """

    @abstractmethod
    def system_topics(self, namespace: NamespaceName) -> Mapping[str, TopicName]:
        """Returns the topics that new snapshots are written to, by their fields in
        ``TransactionBufferInternalStats``."""

    @abstractmethod
    def segments(self, topic: TopicName, aborted: Collection[TxnId], *, each: bool) -> Json | None:
        """Returns ``SegmentsStats`` of a loaded topic; None if its snapshots are not segmented.

        :param aborted: the topic's aborted transactions
        :param each: whether to describe each segment, too
        """

    @abstractmethod
    def forget(self, namespace: NamespaceName) -> None:
        """Reports that the namespace was deleted."""


class TransactionBuffer:
    """The transactions of one topic. All methods run on the loop.

    :param write_marker: publishes a marker to the topic
    :param visible: called when messages may have become visible
    """

    def __init__(
        self,
        topic: str,
        ledger: ManagedLedger,
        loop: Loop,
        wheel: TimerWheel,
        tasks: TaskScope,
        wall_ms: Callable[[], int],
        settings: TransactionSettings,
        store: Store,
        write_marker: WriteMarker,
        visible: Callable[[], None],
    ) -> None:
        self._topic = topic
        self._ledger = ledger
        self._loop = loop
        self._wheel = wheel
        self._tasks = tasks
        self._wall_ms = wall_ms
        self._settings = settings
        self._store_snapshot = store
        self._write_marker = write_marker
        self._visible = visible
        self.open: dict[TxnId, Position] = {}
        """Transactions with stored messages, each with the position of its first message, in the order of
        these positions."""
        self.aborted: dict[TxnId, Position] = {}
        """Aborted transactions, each with the position of its marker."""
        self.low_water: dict[int, int] = {}
        """For each coordinator, the number up to which all of its transactions have ended everywhere."""
        self.committed_count = 0
        """The number of transactions that were committed since the topic was loaded; :attr:`aborted_count` is
        the number of aborted transactions.
        """
        self.aborted_count = 0
        self.ready = False
        """Whether a snapshot is stored, so that messages of transactions may follow."""
        self.snapshot_ms = 0
        """The time of the last snapshot, in milliseconds since 1970; 0: none since the topic was loaded."""
        self.recovery_ms = (0, 0)
        """The times when recovery began and ended, in milliseconds since 1970; both 0: nothing had to be
        recovered."""
        self._over: dict[TxnId, None] = {}
        """Ended transactions that are not in :attr:`aborted`: committed transactions, and transactions
        without messages."""
        self._writing: dict[TxnId, int] = {}
        """The number of entries of each transaction that were passed to the ledger and are not durable
        yet."""
        self._ending: dict[TxnId, Future[None]] = {}
        self._decided: dict[TxnId, bool] = {}
        """For a terminated topic, which accepts no markers: whether each ended transaction was committed."""
        self._starting = Mutex(loop)
        self._saving = Mutex(loop)
        self._changes = 0
        self._dirty = False
        self._timer: Cancellable | None = None
        self._closed = False
        self._draining = 0
        self._waiting: list[Future[None]] = []
        """Futures that are completed when a transaction has ended or the topic closes."""
        self._sizes = array("i", bytes(4 * _READ_ENTRIES))
        ledger.leave_out_aborted = self.leave_out_aborted

    # Messages of transactions

    async def start(self) -> None:
        """Stores the first snapshot, before the first message of a transaction.

        :raises BrokerError: the snapshot cannot be stored now
        """
        async with self._starting:
            if not self.ready:
                await self._store()
                self.ready = True

    def refusal(self, txn: TxnId) -> BrokerError | None:
        """Returns the error if a transaction may no longer publish to the topic; None if it may."""
        if min(txn) < 0:
            return NotAllowed(f"{txn_text(txn)} is not a transaction id: both numbers must be below 2^63")
        if self._draining and txn not in self.open:
            return TopicTerminated("Topic is being terminated")
        low = self.low_water.get(txn[0], -1)
        if txn[1] <= low or txn in self.aborted or txn in self._over or txn in self._ending:
            return NotAllowed(
                f"Transaction [{txn_text(txn)}] has been ended. Please use a new transaction to send message."
            )
        return None

    def writing(self, txn: TxnId, count: int) -> None:
        """Counts entries of a transaction that were passed to the ledger."""
        self._writing[txn] = self._writing.get(txn, 0) + count

    async def drained(self) -> None:
        """Waits until no transaction is open, before the topic is terminated; meanwhile, only open
        transactions may publish."""
        self._draining += 1
        try:
            while (self.open or self._writing) and not self._closed:
                waiting: Future[None] = self._loop.create_future()
                self._waiting.append(waiting)
                await waiting
        finally:
            self._draining -= 1

    def stored(self, txn: TxnId, position: Position, count: int) -> None:
        """Counts entries of a transaction that became durable; the first of these entries is at
        ``position``.
        """
        self.not_stored(txn, count)
        if txn not in self.open:
            self.open[txn] = position
            self._hide()

    def not_stored(self, txn: TxnId, count: int) -> None:
        """Counts entries of a transaction that will not be stored."""
        left = self._writing[txn] - count
        if left:
            self._writing[txn] = left
        else:
            del self._writing[txn]
            self._wake()

    def advanced(self) -> None:
        """Reports that entries outside transactions were stored; a snapshot may be due, so that the next load
        reads fewer entries."""
        if not self.ready:
            # The topic has no messages of transactions: it is loaded without a snapshot.
            return
        self._dirty = True
        if self._timer is None and not self._closed:
            self._timer = self._wheel.schedule(self._settings.snapshot_seconds, self._save_soon)

    def ended(self, txn: TxnId, marker: Position, *, commit: bool) -> None:
        """Reports that the marker of a transaction is durable."""
        self.open.pop(txn, None)
        if commit:
            self.committed_count += 1
            self._remember(txn)
        else:
            self.aborted_count += 1
            self.aborted[txn] = marker
        self._hide()
        self._wake()
        self._changes += 1
        self.advanced()
        if self._changes >= self._settings.snapshot_changes:
            self._save_soon()

    def _remember(self, txn: TxnId) -> None:
        self._over[txn] = None
        if len(self._over) > _MOST_REMEMBERED:
            del self._over[next(iter(self._over))]

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            settle(each)

    def _hide(self) -> None:
        self._ledger.hidden_from = next(iter(self.open.values()), None)

    def mask(self, run: EntryRun, first: int, count: int, sizes: array[int]) -> bool:
        """Sets the sizes of entries of aborted transactions to 0; returns whether there were such entries.

        :param sizes: the number of messages of each entry; index 0 is entry ``first``
        """
        aborted = self.aborted
        if not aborted:
            return False
        masked = False
        for place in range(count):
            index = first + place
            found = transaction_of(run.buffer, run.starts[index], run.ends[index])
            if found is not None and found in aborted and sizes[place]:
                sizes[place], masked = 0, True
        return masked

    def leave_out_aborted(self, run: EntryRun) -> EntryRun:
        """Returns the run with the entries of aborted transactions replaced by markers."""
        if not self.aborted or not self._look(run) & TRANSACTIONAL:
            return run
        return _rewritten(run, lambda entry: _ABORTED_ENTRY if self.hides(entry) else entry)

    def for_replication(self, run: EntryRun) -> EntryRun:
        """Returns the run for another cluster, where its messages belong to no transaction: without ids of
        transactions, and with entries of aborted transactions replaced by markers.
        """
        if not self._look(run) & TRANSACTIONAL:
            return run
        return _rewritten(run, lambda entry: _ABORTED_ENTRY if self.hides(entry) else _without_id(entry))

    def _look(self, run: EntryRun) -> int:
        """Returns the kinds of entries in a run as bits, and writes their sizes to :attr:`_sizes`."""
        if len(self._sizes) < run.count:
            self._sizes = array("i", bytes(4 * run.count))
        return batch_sizes(run.buffer, run.starts, run.ends, 0, run.count, self._sizes)

    def hides(self, entry: bytes) -> bool:
        """Whether an entry belongs to an aborted transaction."""
        found = transaction_of(entry, 0, len(entry)) if self.aborted else None
        return found is not None and found in self.aborted

    # Ends of transactions

    async def end(self, txn: TxnId, *, commit: bool, low_water: int) -> None:
        """Ends a transaction in this topic, durably: a commit makes the transaction's messages visible, an
        abort hides these messages for ever.

        If the transaction has no messages in the topic, or has ended, the call succeeds and stores nothing.

        :param low_water: the number up to which all transactions of the coordinator have ended; -1: no
            such number is known
        :raises BrokerError: the end cannot be stored now; the coordinator tries again
        """
        coordinator = txn[0]
        if low_water > self.low_water.get(coordinator, -1):
            self.low_water[coordinator] = low_water
            for known in [each for each in self._over if each[0] == coordinator and each[1] <= low_water]:
                del self._over[known]
        await self._end(txn, commit=commit)
        for left in [each for each in self.open if each[0] == coordinator and each[1] <= low_water]:
            await self.abort_late(left)

    async def abort_late(self, txn: TxnId) -> None:
        """Aborts a transaction that has ended everywhere else, but whose late message opened it again in this
        topic.

        :raises BrokerError: the end cannot be stored now
        """
        log.warning(
            "aborting messages that a transaction published after its end",
            extra={"topic": self._topic, "transaction": txn_text(txn)},
        )
        await self._end(txn, commit=False)

    async def _end(self, txn: TxnId, *, commit: bool) -> None:
        while (ending := self._ending.get(txn)) is not None:
            await ending
        if txn not in self.open and txn not in self._writing:
            if txn not in self.aborted:
                # What a client has sent before its transaction timed out may arrive now.
                self._remember(txn)
            return
        ending = self._ending[txn] = self._loop.create_future()
        try:
            await self._write_marker(txn, commit)
        except TopicTerminated:
            await self._end_terminated(txn, commit=commit)
        finally:
            del self._ending[txn]
            settle(ending)

    async def _end_terminated(self, txn: TxnId, *, commit: bool) -> None:
        """Ends a transaction in a topic that Apache Pulsar terminated while the transaction was open.

        The topic accepts no marker, so a snapshot stores the end. The snapshot can only store the ends of all
        open transactions together, because their messages may lie before and after the messages of this
        transaction.
        """
        self._decided[txn] = commit
        waiting = [each for each in self.open if each not in self._decided]
        if waiting:
            raise ServiceNotReady(
                f"The topic is terminated: the end of {txn_text(txn)} can only be stored after "
                f"these transactions have ended: {', '.join(map(txn_text, waiting))}"
            )
        last = self._ledger.last_confirmed
        aborted = {each: last for each in self.open if not self._decided[each]}
        await self._store_snapshot(BufferSnapshot(last, {**self._live_aborts(), **aborted}))
        for each in list(self.open):
            self.ended(each, last, commit=self._decided.pop(each))
        self._visible()

    # Snapshots

    def _live_aborts(self) -> dict[TxnId, Position]:
        """Forgets the aborted transactions whose markers are trimmed, and returns the other ones."""
        first = self._ledger.ledgers.first_id()
        if any(marker[0] < first for marker in self.aborted.values()):
            self.aborted = {txn: at for txn, at in self.aborted.items() if at[0] >= first}
        return dict(self.aborted)

    async def _store(self) -> None:
        async with self._saving:
            self._changes, self._dirty = 0, False
            try:
                await self._store_snapshot(
                    BufferSnapshot(self._ledger.max_read_position, self._live_aborts())
                )
            except BrokerError:
                self._dirty = True
                raise
            self.snapshot_ms = self._wall_ms()

    def _save_soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tasks.start(self._save(), "storing a snapshot of transactions")

    async def _save(self) -> None:
        if not self._dirty or self._closed:
            return
        try:
            await self._store()
        except BrokerError as error:
            log.warning(
                "cannot store the state of transactions; trying again",
                extra={"topic": self._topic, "error": str(error)},
            )
            self.advanced()

    async def recover(self, snapshot: BufferSnapshot) -> None:
        """Restores the state from a snapshot and the entries after it.

        :raises LedgerError: an entry cannot be read
        """
        began_ms = self._wall_ms()
        self.ready = True
        self.aborted = dict(snapshot.aborted)
        ledgers, last = self._ledger.ledgers, self._ledger.last_confirmed
        position = ledgers.first_at_or_after((snapshot.max_read[0], snapshot.max_read[1] + 1))
        while position <= last:
            run = await self._ledger.reader.read(position, last, _READ_ENTRIES, _READ_BYTES)
            self._recover_run(run)
            position = ledgers.first_at_or_after((run.ledger_id, run.first_entry_id + run.count))
        self._hide()
        self._live_aborts()
        self.recovery_ms = (began_ms, self._wall_ms())

    def _recover_run(self, run: EntryRun) -> None:
        if not self._look(run) & (MARKED | TRANSACTIONAL):
            return
        for index in range(run.count):
            txn = transaction_of(run.buffer, run.starts[index], run.ends[index])
            if txn is None:
                continue
            position = (run.ledger_id, run.first_entry_id + index)
            if self._sizes[index]:
                if txn not in self.aborted:
                    self.open.setdefault(txn, position)
                continue
            kind = parse_entry(run.entry(index), verify_checksum=False).metadata.marker_type
            if kind in (COMMITTED, ABORTED):
                self.open.pop(txn, None)
                if kind == ABORTED:
                    self.aborted[txn] = position

    def close(self) -> None:
        """Stops storing snapshots."""
        self._closed = True
        self._ledger.leave_out_aborted = None
        self._wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the hidden entries are not those of open transactions
        """
        first = min(self.open.values(), default=None)
        must(
            self._ledger.hidden_from == first,
            self._topic,
            "hides from",
            self._ledger.hidden_from,
            "not",
            first,
        )
        for txn in self.open:
            must(txn not in self.aborted, self._topic, txn, "is open and aborted")


def marker_entry(txn: TxnId, publish_time_ms: int, *, commit: bool) -> bytes:
    """Returns the marker that ends a transaction, as Apache Pulsar writes it."""
    metadata = MessageMetadata(
        producer_name=MARKER_PRODUCER,
        sequence_id=2**64 - 1,
        publish_time=publish_time_ms,
        marker_type=COMMITTED if commit else ABORTED,
        txnid_most_bits=txn[0],
        txnid_least_bits=txn[1],
    )
    return build_entry(metadata, b"")


_ABORTED_ENTRY = marker_entry((0, 0), 0, commit=False)
"""The marker that replaces each entry of an aborted transaction."""


def _rewritten(run: EntryRun, change: Callable[[bytes], bytes]) -> EntryRun:
    entries = [change(run.entry(index)) for index in range(run.count)]
    ends = array("q", accumulate(map(len, entries)))
    starts = array("q", (0, *ends[:-1]))
    return EntryRun(run.ledger_id, run.first_entry_id, run.count, b"".join(entries), starts, ends)


def _without_id(entry: bytes) -> bytes:
    """Returns an entry without the id of its transaction."""
    if transaction_of(entry, 0, len(entry)) is None:
        return entry
    parsed = parse_entry(entry, verify_checksum=False)
    metadata = parsed.metadata
    if metadata.HasField("marker_type"):
        return entry
    metadata.ClearField("txnid_most_bits")
    metadata.ClearField("txnid_least_bits")
    front = entry[: broker_metadata_size(entry, 0)]
    return front + build_entry(metadata, bytes(parsed.payload))


def with_ids(
    txn: TxnId, buffer: bytes, starts: array[int], ends: array[int]
) -> tuple[bytes, array[int], array[int]] | None:
    """Returns entries with the transaction's id in their metadata; None if all have it already.

    Not every client writes the id. Without the id, messages of an aborted transaction could not be
    distinguished from other messages.

    :raises NotAllowed: the metadata of an entry names another transaction, or an entry is a marker
    """
    count = len(starts)
    if batch_sizes(buffer, starts, ends, 0, count, array("i", bytes(4 * count))) & MARKED:
        raise NotAllowed(f"An entry of transaction {txn_text(txn)} is a marker, which only brokers write")
    own = [transaction_of(buffer, start, end) for start, end in zip(starts, ends, strict=True)]
    if all(each == txn for each in own):
        return None
    for each in own:
        if each is not None and each != txn:
            raise NotAllowed(
                f"The metadata of the entry has transaction {txn_text(each)}, but SEND has "
                f"transaction {txn_text(txn)}"
            )
    entries = [
        buffer[start:end] if each == txn else _with_id(txn, buffer[start:end])
        for start, end, each in zip(starts, ends, own, strict=True)
    ]
    new_ends = array("q")
    at = 0
    for entry in entries:
        at += len(entry)
        new_ends.append(at)
    return b"".join(entries), array("q", (0, *new_ends[:-1])), new_ends


def _with_id(txn: TxnId, entry: bytes) -> bytes:
    """Returns an entry that a client sent, with the transaction's id added to its metadata."""
    front = broker_metadata_size(entry, 0)
    summed = entry[front : front + 2] == b"\x0e\x01"
    at = front + (6 if summed else 0)
    size = int.from_bytes(entry[at : at + 4], "big")
    ids = MessageMetadata(txnid_most_bits=txn[0], txnid_least_bits=txn[1]).SerializePartialToString()
    metadata = entry[at + 4 : at + 4 + size] + ids
    rest = len(metadata).to_bytes(4, "big") + metadata + entry[at + 4 + size :]
    if not summed:
        return entry[:front] + rest
    return entry[: front + 2] + crc32c(rest).to_bytes(4, "big") + rest
