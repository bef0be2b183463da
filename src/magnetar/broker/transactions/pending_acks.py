"""Acknowledgements of a subscription that wait for the end of their transaction.

A message that an open transaction acknowledges is not delivered again. A commit acknowledges the message; an
abort makes it available again. Each acknowledgement and each end is a record of a log in Apache Pulsar's
format (PIP-31). The log is read when the subscription is first used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from magnetar.broker.transactions import TransactionSettings, TxnId, txn_text
from magnetar.broker.transactions.figures import KEPT, BatchFigures
from magnetar.broker.transactions.log import PENDING_ACK_RECORDS, RecordPosition, TransactionLog, open_log
from magnetar.broker.transactions.records_pb2 import (
    PendingAckMetadata,
    PendingAckMetadataEntry,
    PendingAckOperation,
    PendingAckType,
)
from magnetar.errors import PersistenceFailure, ServiceNotReady, TransactionConflict
from magnetar.invariants import must
from magnetar.io.interfaces import Future, Io, Loop
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import settle
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerError, Quorums
from magnetar.managed_ledger.acknowledged import WHOLE
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerNotFound
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.measures import Timings
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.managed_ledger.position import Position, format_position
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import PENDING_ACK_SUFFIX, TopicName
from magnetar.protocol.frames import signed, unsigned

log = logging.getLogger(__name__)

CURSOR = "__pending_ack_state"
GivenBack = Callable[[Sequence[Position], bool], None]
"""Called with the positions that an abort makes available again. The second argument tells whether the
aborted transaction also had a cumulative acknowledgement."""
_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Acked:
    """The acknowledgement of one entry by a transaction."""

    position: Position
    remaining: int | None = None
    """The bits of the batch's messages that are not acknowledged; None: the whole entry is acknowledged."""
    batch_size: int = 0
    words: int = 0
    """The number of 64-bit words in which the client sent the bits."""

    @property
    def bits(self) -> int:
        """The bits of the messages that are acknowledged; :data:`WHOLE`: all."""
        if self.remaining is None:
            return WHOLE
        size = self.batch_size or max(self.remaining.bit_length(), 64 * self.words)
        return ((1 << size) - 1) & ~self.remaining


class PendingAcks:
    """The pending acknowledgements of one subscription, opened by :func:`open_pending_acks`."""

    def __init__(
        self, loop: Loop, topic: str, subscription: str, cursor: Cursor, settings: TransactionSettings
    ) -> None:
        self._loop = loop
        self._topic = topic
        self._subscription = subscription
        self._cursor = cursor
        self._settings = settings
        self.log: TransactionLog[PendingAckMetadataEntry]
        self.bits: dict[Position, int] = {}
        """For each entry, the bits of the messages that open transactions acknowledge; :data:`WHOLE`: all."""
        self.individual: dict[TxnId, dict[Position, Acked]] = {}
        self.cumulative: tuple[TxnId, Acked] | None = None
        """The transaction with a cumulative acknowledgement, and the last entry that it acknowledges."""
        self.low_water: dict[int, int] = {}
        self.committed_count = 0
        """The number of transactions that were committed since the subscription was first used;
        :attr:`aborted_count` is the number of aborted transactions.
        """
        self.aborted_count = 0
        self.failed_commits = 0
        """The number of commits that could not be stored, so that the coordinator tries again;
        :attr:`failed_aborts` is the number of such aborts."""
        self.failed_aborts = 0
        self.commit_latency = Timings(KEPT)
        self.recovery_ms = (0, 0)
        """When the reading of the log began and ended, in milliseconds since 1970."""
        self._records: dict[TxnId, list[RecordPosition]] = {}
        """The positions of the records of open transactions."""
        self._ended: list[list[RecordPosition]] = []
        """The positions of the records of ended transactions; the records are needed until the cursor is
        stored."""
        self._ended_count = 0
        self._trimming = False
        self._ending: dict[TxnId, Future[None]] = {}

    # Entries that are not to be delivered

    @property
    def any(self) -> bool:
        """Whether any acknowledgement is pending."""
        return bool(self.bits) or self.cumulative is not None

    def bits_of(self, ledger_id: int, entry_id: int) -> int:
        """Returns the bits of an entry's messages that are pending; 0: none, :data:`WHOLE`: all."""
        position = (ledger_id, entry_id)
        found = self.bits.get(position, 0)
        if self.cumulative is not None and found != WHOLE:
            upto = self.cumulative[1]
            if position < upto.position or (position == upto.position and upto.remaining is None):
                return WHOLE
            if position == upto.position:
                found |= upto.bits
        return found

    # Acknowledging

    async def acknowledge(self, txn: TxnId, acked: Sequence[Acked], accepted: Callable[[], None]) -> None:
        """Adds individual acknowledgements to a transaction; durable when this returns.

        :param accepted: called once the acknowledgements are pending, before the transaction can end
        :raises TransactionConflict: one of the messages is pending or acknowledged already; none is added
        :raises PersistenceFailure: the acknowledgements cannot be stored
        """
        asked: dict[Position, int] = {}
        for each in acked:
            self._check(txn, each, asked.get(each.position, 0))
            asked[each.position] = asked.get(each.position, 0) | each.bits
        self._add(txn, acked)
        accepted()
        record = PendingAckMetadataEntry(
            pending_ack_op=PendingAckOperation.ACK,
            ack_type=PendingAckType.Individual,
            txnid_most_bits=unsigned(txn[0]),
            txnid_least_bits=unsigned(txn[1]),
            pending_ack_metadata=[_metadata(each) for each in acked],
        )
        try:
            await self._append(txn, record)
        except PersistenceFailure:
            self._remove(txn, acked)
            raise

    def _check(self, txn: TxnId, acked: Acked, asked: int) -> None:
        """Checks that an acknowledgement can be added.

        :param asked: the bits of the entry that the same request has acknowledged so far
        :raises TransactionConflict: the entry was acknowledged, or is pending
        """
        if self._cursor.is_consumed(*acked.position):
            raise self._conflict(f"{_tries(txn, acked)} already acked before.")
        pending = self.bits.get(acked.position, 0) | asked
        if pending & acked.bits:
            raise self._conflict(f"{_tries(txn, acked)} in pending ack status.")

    def _conflict(self, text: str) -> TransactionConflict:
        # Apache Pulsar's text, with the name of the exception that clients may look for.
        return TransactionConflict(
            "org.apache.pulsar.transaction.common.exception.TransactionConflictException: "
            f"[{self._topic}][{self._subscription}] {text}"
        )

    def _add(self, txn: TxnId, acked: Iterable[Acked]) -> None:
        own = self.individual.setdefault(txn, {})
        for each in acked:
            known = own.get(each.position)
            own[each.position] = each if known is None else _both(known, each)
            self.bits[each.position] = self.bits.get(each.position, 0) | each.bits

    def _remove(self, txn: TxnId, acked: Iterable[Acked]) -> None:
        own = self.individual.get(txn, {})
        for each in acked:
            known = own.pop(each.position, None)
            if known is not None and known.bits != each.bits and each.remaining is not None:
                rest = known.bits & ~each.bits
                full = (1 << max(known.batch_size, known.bits.bit_length())) - 1
                own[each.position] = Acked(each.position, full & ~rest, known.batch_size, known.words)
            self._free(each)
        if not own:
            self.individual.pop(txn, None)

    def _free(self, acked: Acked) -> None:
        left = 0 if acked.remaining is None else self.bits.get(acked.position, 0) & ~acked.bits
        if left:
            self.bits[acked.position] = left
        else:
            self.bits.pop(acked.position, None)

    async def acknowledge_cumulative(self, txn: TxnId, upto: Acked) -> None:
        """Makes a cumulative acknowledgement part of a transaction; durable when this returns.

        :raises TransactionConflict: another transaction has a cumulative acknowledgement, or this transaction
            has acknowledged that far already
        :raises PersistenceFailure: the acknowledgement cannot be stored
        """
        known = self.cumulative
        if known is not None and (known[0] != txn or not _behind(upto, known[1])):
            raise self._conflict(
                f"Transaction:{txn_text(txn)} try to cumulative batch ack position: "
                f"{format_position(upto.position)} within range of current currentPosition: "
                f"{format_position(known[1].position)}"
            )
        if self._cursor.is_consumed(*upto.position) or upto.position <= self._cursor.mark_delete:
            raise self._conflict(
                f"Transaction:{txn_text(txn)} try to cumulative batch ack position: "
                f"{format_position(upto.position)} within range of current currentPosition: "
                f"{format_position(self._cursor.mark_delete)}"
            )
        self.cumulative = (txn, upto)
        record = PendingAckMetadataEntry(
            pending_ack_op=PendingAckOperation.ACK,
            ack_type=PendingAckType.Cumulative,
            txnid_most_bits=unsigned(txn[0]),
            txnid_least_bits=unsigned(txn[1]),
            pending_ack_metadata=[_metadata(upto, cumulative=True)],
        )
        try:
            await self._append(txn, record)
        except PersistenceFailure:
            self.cumulative = known
            raise

    async def _append(self, txn: TxnId, record: PendingAckMetadataEntry) -> None:
        try:
            position = await self.log.append(record)
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            raise PersistenceFailure(f"Cannot store the acknowledgement: {error}") from error
        self._records.setdefault(txn, []).append(position)

    # Ends of transactions

    async def end(self, txn: TxnId, *, commit: bool, low_water: int, given_back: GivenBack) -> None:
        """Ends a transaction in this subscription, durably: a commit acknowledges the messages of its pending
        acknowledgements, an abort releases these messages.

        :param low_water: the number up to which all transactions of the coordinator have ended; -1: no
            such number is known
        :param given_back: called with the acknowledgements that an abort releases
        :raises PersistenceFailure: the end cannot be stored; the coordinator tries again
        """
        await self._end(txn, commit, given_back)
        if low_water > self.low_water.get(txn[0], -1):
            self.low_water[txn[0]] = low_water
            for left in [each for each in self.open() if each[0] == txn[0] and each[1] <= low_water]:
                log.warning(
                    "aborting acknowledgements that a transaction added after its end",
                    extra={
                        "topic": self._topic,
                        "subscription": self._subscription,
                        "transaction": txn_text(left),
                    },
                )
                await self._end(left, False, given_back)

    def open(self) -> list[TxnId]:
        """Returns the transactions with pending acknowledgements, each once."""
        return list(
            dict.fromkeys((*self.individual, *(() if self.cumulative is None else self.cumulative[:1])))
        )

    async def _end(self, txn: TxnId, commit: bool, given_back: GivenBack) -> None:
        while (ending := self._ending.get(txn)) is not None:
            await ending
        if txn not in self.open():
            return
        ending = self._ending[txn] = self._loop.create_future()
        began = self._loop.time()
        try:
            kinds = [PendingAckType.Individual] if txn in self.individual else []
            if self.cumulative is not None and self.cumulative[0] == txn:
                kinds.append(PendingAckType.Cumulative)
            for kind in kinds:
                record = PendingAckMetadataEntry(
                    pending_ack_op=PendingAckOperation.COMMIT if commit else PendingAckOperation.ABORT,
                    ack_type=kind,
                    txnid_most_bits=unsigned(txn[0]),
                    txnid_least_bits=unsigned(txn[1]),
                )
                await self._append(txn, record)
            self._apply(txn, commit, given_back)
            if commit:
                self.committed_count += 1
                self.commit_latency.add((self._loop.time() - began) * 1000)
            else:
                self.aborted_count += 1
        except PersistenceFailure:
            if commit:
                self.failed_commits += 1
            else:
                self.failed_aborts += 1
            raise
        finally:
            del self._ending[txn]
            settle(ending)

    def _apply(self, txn: TxnId, commit: bool, given_back: GivenBack) -> None:
        own = self.individual.pop(txn, {})
        for each in own.values():
            self._free(each)
            if commit:
                self._consume(each)
        upto = None
        if self.cumulative is not None and self.cumulative[0] == txn:
            upto, self.cumulative = self.cumulative[1], None
            if commit:
                self._consume_up_to(upto)
        if not commit:
            given_back(list(own), upto is not None)
        records = self._records.pop(txn, [])
        self._ended.append(records)
        self._ended_count += len(records)

    def _consume(self, acked: Acked) -> None:
        ledger_id, entry_id = acked.position
        if acked.remaining is None:
            self._cursor.delete(ledger_id, entry_id)
        else:
            self._cursor.consume_batch_indexes(ledger_id, entry_id, acked.remaining, acked.batch_size)

    def _consume_up_to(self, acked: Acked) -> None:
        ledger_id, entry_id = acked.position
        if acked.remaining is None:
            self._cursor.mark_delete_to(acked.position)
        else:
            self._cursor.mark_delete_to((ledger_id, entry_id - 1))
            self._cursor.consume_batch_indexes(ledger_id, entry_id, acked.remaining, acked.batch_size)

    def trim(self, tasks: TaskScope) -> None:
        """Trims the records of ended transactions from the log, once there are enough of them."""
        if self._ended_count >= self._settings.pending_ack_index_lag and not self._trimming:
            self._trimming = True
            tasks.start(self._trim(), "trimming the pending-ack log")

    async def _trim(self) -> None:
        ended, self._ended, self._ended_count = self._ended, [], 0
        try:
            # A commit is in the log only, until the cursor is stored.
            await self._cursor.flush()
            for records in ended:
                self.log.acknowledge(records)
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            self._ended += ended
            log.warning(
                "cannot store the cursor; the pending-ack log is trimmed later",
                extra={"topic": self._topic, "subscription": self._subscription, "error": str(error)},
            )
        finally:
            self._trimming = False

    # Recovery

    async def replay(self) -> None:
        """Restores the pending acknowledgements from the log, and permits trimming it.

        :raises LedgerError: an entry cannot be read
        :raises ManagedLedgerError: an entry is not a record of pending acknowledgements
        """
        await self.log.replay(self._replay_one)
        self.log.begin_trimming()

    def _replay_one(self, position: RecordPosition, record: PendingAckMetadataEntry) -> None:
        txn = (signed(record.txnid_most_bits), signed(record.txnid_least_bits))
        self._records.setdefault(txn, []).append(position)
        if record.pending_ack_op != PendingAckOperation.ACK:
            commit = record.pending_ack_op == PendingAckOperation.COMMIT
            if txn in self.open():
                self._apply(txn, commit, lambda _positions, _cumulative: None)
            else:
                self._ended.append(self._records.pop(txn))
            return
        acked = [_acked(each) for each in record.pending_ack_metadata]
        if record.ack_type == PendingAckType.Cumulative:
            for each in acked:
                if self.cumulative is None or self.cumulative[0] == txn:
                    self.cumulative = (txn, each)
            return
        if any(self.bits.get(each.position, 0) & each.bits for each in acked):
            # Apache Pulsar stores an acknowledgement before it finds the conflict, and refuses it then.
            return
        # Another acknowledgement may have taken a part of them meanwhile; the rest stays pending.
        self._add(txn, [each for each in acked if not self._cursor.is_consumed(*each.position)])

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the bits of an entry are not the union of the transactions' bits
        """
        found: dict[Position, int] = {}
        for own in self.individual.values():
            for position, acked in own.items():
                must(
                    not found.get(position, 0) & acked.bits, self._subscription, position, "is pending twice"
                )
                found[position] = found.get(position, 0) | acked.bits
        must(found == self.bits, self._subscription, "counts pending", self.bits, "of", found)

    async def close(self) -> None:
        """Closes the log.

        :raises LedgerError: the last ledger cannot be closed; the next opening recovers it
        """
        await self.log.close()


def _tries(txn: TxnId, acked: Acked) -> str:
    where = format_position(acked.position)
    if acked.remaining is None:
        return f"Transaction:{txn_text(txn)} try to ack message:{where} (ackSet is null)"
    sets = f"ackSet with long[] size of {acked.words}"
    return f"Transaction:{txn_text(txn)} try to ack batch message:{where} ({sets})"


def _behind(upto: Acked, known: Acked) -> bool:
    """Whether the cumulative acknowledgement ``upto`` acknowledges more than ``known``."""
    if upto.position != known.position:
        return upto.position > known.position
    if known.remaining is None:
        return False
    return upto.remaining is None or upto.bits > known.bits


def _both(one: Acked, other: Acked) -> Acked:
    """Returns the union of two acknowledgements of the same entry."""
    if one.remaining is None or other.remaining is None:
        return Acked(one.position)
    size = max(one.batch_size, other.batch_size)
    return Acked(one.position, one.remaining & other.remaining, size, max(one.words, other.words))


def _metadata(acked: Acked, *, cumulative: bool = False) -> PendingAckMetadata:
    found = PendingAckMetadata(ledgerId=unsigned(acked.position[0]), entryId=unsigned(acked.position[1]))
    if acked.remaining is not None:
        words = max(acked.words, 1)
        found.ack_set.extend(signed(acked.remaining >> 64 * index & _WORD) for index in range(words))
    if acked.remaining is not None or not cumulative:
        found.batch_size = acked.batch_size
    return found


def _acked(record: PendingAckMetadata) -> Acked:
    position = (signed(record.ledgerId), signed(record.entryId))
    if not record.ack_set:
        return Acked(position)
    remaining = 0
    for index, word in enumerate(record.ack_set):
        remaining |= (word & _WORD) << 64 * index
    return Acked(position, remaining, record.batch_size, len(record.ack_set))


def pending_acks_of(topic: TopicName, subscription: str) -> str:
    """Returns the name of the managed ledger with the log of a subscription."""
    return TopicName(
        topic.domain, topic.namespace_name, f"{topic.local}-{subscription}{PENDING_ACK_SUFFIX}"
    ).path


async def open_pending_acks(
    io: Io,
    ledgers: ManagedLedgerFactory,
    topic: TopicName,
    cursor: Cursor,
    settings: TransactionSettings,
    quorums: Quorums | None,
    tenure: Tenure,
    lost: Callable[[BaseException], None],
    *,
    create: bool,
    figures: BatchFigures | None = None,
) -> PendingAcks | None:
    """Opens the pending acknowledgements of the subscription of a cursor.

    :param lost: called when the log accepts no more records
    :param figures: counts the batches; None: they are not counted
    :return: the pending acknowledgements; None if there have never been any, and ``create`` is false
    :raises ServiceNotReady: the pending acknowledgements cannot be opened now
    """
    name = pending_acks_of(topic, cursor.name)
    if not create and not await ledgers.exists(name):
        return None
    began_ms = io.clock.wall_ms()
    found = PendingAcks(io.loop, str(topic), cursor.name, cursor, settings)
    try:
        found.log = await open_log(
            io,
            ledgers,
            name,
            CURSOR,
            PENDING_ACK_RECORDS,
            settings.pending_ack_writes,
            lost,
            create=create,
            quorums=quorums,
            tenure=tenure,
            figures=figures,
        )
        await found.replay()
        found.recovery_ms = (began_ms, io.clock.wall_ms())
    except ManagedLedgerNotFound:
        return None
    except (LedgerError, ManagedLedgerError, MetadataError) as error:
        raise ServiceNotReady(
            f"The pending acknowledgements of {cursor.name} cannot be read: {error}"
        ) from error
    return found
