"""Realistic bugs that can be planted into the broker, to show that the seeds find such.

Each is a context manager that changes the product's classes while it lasts; no product code knows of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.connections.connection import Connection
from magnetar.broker.coordination.coordinator import Coordinator
from magnetar.broker.coordination.transaction import CoordinatedTransaction
from magnetar.broker.delays.index import DelayIndex
from magnetar.broker.delays.tracker import DelayTracker
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.flow.outgoing import Outgoing
from magnetar.broker.publishing.deduplication import Deduplication
from magnetar.broker.publishing.exclusive_access import ExclusiveAccess
from magnetar.broker.publishing.producer import AccessMode, Producer
from magnetar.broker.transactions.buffer import TransactionBuffer
from magnetar.broker.transactions.pending_acks import PendingAcks
from magnetar.broker.transactions.records_pb2 import PendingAckMetadataEntry, PendingAckOperation
from magnetar.broker.upkeep.revocation import Revocation
from magnetar.ledger.embedded.ledger_table import LedgerTable
from magnetar.ledger.embedded.ledger_writer import EmbeddedWriter
from magnetar.ledger.embedded.log import CommitLog
from magnetar.ledger.embedded.segment_supply import LogSegment
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.journal.writing import MetadataJournal
from magnetar.managed_ledger.ending import Ending, State
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.ledgers_record import LedgersRecord
from magnetar.managed_ledger.offloading import Offloader
from magnetar.managed_ledger.records import Offload
from magnetar.managed_ledger.tiered_storage import TieredStorage
from magnetar.metadata.progress import Edits
from magnetar.protocol.hot_codec import AckRun
from magnetar.server import embedded_stores
from simulation import ending as story
from simulation.replacing import replaced


class _Unsynced:
    """A file of the log that is written and not synced."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        """Forgotten."""

    def write_durably(self, data: bytes, offset: int) -> None:
        """Written, and that is all."""
        self._file.write(data, offset)


def missing_fsync() -> AbstractContextManager[None]:
    """A commit is told to be durable when it is only written."""
    write = CommitLog._write

    def unsynced(self: CommitLog, commit: Any) -> None:
        file = commit.segment.file
        commit.segment.file = _Unsynced(file)
        write(self, commit)
        commit.segment.file = file

    return replaced(CommitLog, "_write", unsynced)


def trimming_off_by_one() -> AbstractContextManager[None]:
    """A ledger goes when its last entry but one is consumed."""
    consumed_through = LedgerList.consumed_through

    def one_too_far(self: LedgerList, position: tuple[int, int]) -> Any:
        return consumed_through(self, (position[0], position[1] + 1))

    return replaced(LedgerList, "consumed_through", one_too_far)


def ack_lost_on_redelivery() -> AbstractContextManager[None]:
    """An acknowledgement of what is to be delivered again takes it out of the list and nothing else."""
    let_go_run = ManyConsumersDispatcher.let_go_run

    def loses(self: SharedDispatcher, consumer: Any, run: AckRun) -> None:
        waiting = [(run.ledger_ids[i], run.entry_ids[i]) in self.replay for i in range(run.count)]
        let_go_run(self, consumer, run)
        kept = [i for i in range(run.count) if not waiting[i]]
        for to, index in enumerate(kept):
            run.ledger_ids[to], run.entry_ids[to] = run.ledger_ids[index], run.entry_ids[index]
        run.count = len(kept)

    return replaced(ManyConsumersDispatcher, "let_go_run", loses)


class _Reusing:
    """A transport that gets everything in one and the same buffer."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._buffer = bytearray(1 << 20)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if len(data) > len(self._buffer):
            self._transport.write(data)
            return
        self._buffer[: len(data)] = data
        self._transport.write(memoryview(self._buffer)[: len(data)])

    def writelines(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))


def reused_buffer() -> AbstractContextManager[None]:
    """A connection gathers what goes out in a buffer that its socket may not have taken yet."""
    use = Outgoing.use

    def reusing(self: Outgoing, transport: Any) -> None:
        use(self, _Reusing(transport) if transport is not None else None)

    return replaced(Outgoing, "use", reusing)


@contextmanager
def receipt_before_commit() -> Iterator[None]:
    """Whoever appended hears that it is durable as soon as it is queued."""
    append, durable = EmbeddedWriter.append, EmbeddedWriter.on_durable

    def told_early(
        self: EmbeddedWriter, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int
    ) -> int:
        entry_id = append(self, buffer, starts, ends, first, count)
        self._context.loop.call_soon(self.on_durable, entry_id + count - 1)
        return entry_id

    def once(self: EmbeddedWriter, last_entry_id: int) -> None:
        if last_entry_id > self._acknowledged:
            durable(self, last_entry_id)

    with replaced(EmbeddedWriter, "append", told_early), replaced(EmbeddedWriter, "on_durable", once):
        yield


def snapshot_in_a_commit() -> AbstractContextManager[None]:
    """Deduplication takes a snapshot while entries of the same commit are not counted yet."""
    counted = Deduplication.counted

    def too_early(self: Deduplication, entries: int) -> None:
        counted(self, entries)
        if self.full():
            self.snapshot(self._saved_at)

    return replaced(Deduplication, "counted", too_early)


def bytes_stay_counted() -> AbstractContextManager[None]:
    """A ledger that is deleted leaves what its segments hold of it counted: they never go."""

    def popped(self: LedgerTable, ledger_id: int) -> None:
        self.rows.pop(ledger_id, None)

    return replaced(LedgerTable, "delete", popped)


def empty_segment_stays() -> AbstractContextManager[None]:
    """Nobody hears that a segment came to hold nothing that is wanted."""
    drop = LedgerTable._drop

    def unheard(self: LedgerTable, segment_id: int, stored: int) -> None:
        drop(self, segment_id, stored)
        self.emptied.discard(segment_id)

    return replaced(LedgerTable, "_drop", unheard)


def closed_one_short() -> AbstractContextManager[None]:
    """A ledger that is fenced is closed before its last entry."""
    recovered = LedgerTable.close

    def short(self: LedgerTable, ledger_id: int, last_entry_id: int, length: int) -> None:
        row = self.rows.get(ledger_id)
        fenced = row is not None and row.recovering and last_entry_id > 0
        recovered(self, ledger_id, last_entry_id - fenced, length)

    return replaced(LedgerTable, "close", short)


def full_segment_forgotten() -> AbstractContextManager[None]:
    """The log goes on in a segment, and the one before it is not known to be full."""

    def forgotten(self: EmbeddedLedgerStore, segment: LogSegment, next_sequence: int) -> None:
        """Nothing is said."""

    return replaced(EmbeddedLedgerStore, "_filled", forgotten)


def banned_stays() -> AbstractContextManager[None]:
    """Nobody is asked again when somebody may no more."""

    def unheard(self: Revocation, touched: object) -> None:
        """Nothing is done."""

    return replaced(Revocation, "_permissions_changed", unheard)


def delivered_early() -> AbstractContextManager[None]:
    """What is due within two seconds is taken for due."""
    cutoff = DelayTracker._cutoff_ms
    return replaced(DelayTracker, "_cutoff_ms", lambda self: cutoff(self) + 2000)


def run_one_short() -> AbstractContextManager[None]:
    """The last of the delivery times that go to a ledger is not written."""
    write_run = DelayIndex.write_run

    async def short(self: DelayIndex, records: Sequence[int]) -> Any:
        return await write_run(self, records[:-1] or records)

    return replaced(DelayIndex, "write_run", short)


def horizon_too_far() -> AbstractContextManager[None]:
    """What is published while a topic is compacted is taken for compacted, too."""
    install = TopicCompaction._install

    async def too_far(self: TopicCompaction, cursor: Any, ledger: Any, _to: Any) -> None:
        await install(self, cursor, ledger, self._managed_ledger.max_read_position)

    return replaced(TopicCompaction, "_install", too_far)


def fenced_comes_back() -> AbstractContextManager[None]:
    """A leader that was fenced takes the topic back, as nobody looks at its epoch."""

    def unseen(self: ExclusiveAccess, producer: Producer, others: list[Producer]) -> None:
        """Any epoch will do."""

    return replaced(ExclusiveAccess, "_check_epoch", unseen)


def shared_overtake() -> AbstractContextManager[None]:
    """Shared producers are let in though another one waits for them to go."""
    enter = ExclusiveAccess._enter

    async def overtaking(self: ExclusiveAccess, producer: Producer) -> Any:
        if producer.access_mode is AccessMode.Shared and self.owner is None and not self._changing:
            return None
        return await enter(self, producer)

    return replaced(ExclusiveAccess, "_enter", overtaking)


@contextmanager
def terminated_all_the_same() -> Iterator[None]:
    """A topic whose end could not be written takes no more entries."""

    def ended(self: Ending) -> None:
        if self._owner.state is State.TERMINATING:
            self._owner.state = State.TERMINATED

    # Few of the stories have an end that could not be written.
    with replaced(story, "LOST_QUESTIONS", (20,)), replaced(Ending, "_go_on", ended):
        yield


def end_not_written() -> AbstractContextManager[None]:
    """The end of a topic is told to its administrator, and to nobody who loads the topic next."""

    async def untold(self: LedgersRecord, end: tuple[int, int]) -> None:
        await self.put()
        self.terminated = end

    return replaced(LedgersRecord, "terminate", untold)


def metadata_not_compared() -> AbstractContextManager[None]:
    """A start takes the metadata as it finds them, however old they are."""

    def unseen(*_: object, **__: object) -> None:
        """Whatever is there will do."""

    return replaced(embedded_stores, "_verify", unseen)


def change_not_journalled() -> AbstractContextManager[None]:
    """A change of the metadata now and then does not reach the copy in the ledgers."""
    edited = MetadataJournal._edited

    def forgetful(self: MetadataJournal, edits: Edits) -> None:
        if edits.progress.generation % 20:
            edited(self, edits)

    return replaced(MetadataJournal, "_edited", forgetful)


def debts_are_silence() -> AbstractContextManager[None]:
    """A client that is not read because of a rate is taken for dead."""
    return replaced(Connection, "throttled", property(lambda _self: False))


def complete_without_upload() -> AbstractContextManager[None]:
    """An offload counts as complete although its upload was not finished."""

    async def forgotten(self: TieredStorage, tier: Any, key: Any, times: Any) -> None:
        """Nothing is uploaded."""

    return replaced(TieredStorage, "_upload", forgotten)


def deleted_before_complete() -> AbstractContextManager[None]:
    """The local copy goes as soon as an upload has begun."""
    note = Offloader._note

    async def too_early(self: Offloader, summary: Any, offload: Offload) -> None:
        await note(self, summary, offload)
        if not offload.complete:
            await self._record.delete_local(summary.ledger_id)

    return replaced(Offloader, "_note", too_early)


_DECIDE = Coordinator._decide


async def told_too_early(self: Coordinator, transaction: CoordinatedTransaction) -> None:
    """Tells participants the end of a transaction before the decision is durable."""
    participants = transaction.participants()
    if participants:
        await self._tell_each(transaction, participants)
    await _DECIDE(self, transaction)


def marker_before_decision() -> AbstractContextManager[None]:
    """Topics and subscriptions are told of a commit before the decision is durable."""
    return replaced(Coordinator, "_decide", told_too_early)


def abort_forgotten() -> AbstractContextManager[None]:
    """Snapshots of topics have no aborted transactions."""
    return replaced(TransactionBuffer, "_live_aborts", lambda _self: {})


def id_given_twice() -> AbstractContextManager[None]:
    """A coordinator does not learn from its log which ids it has given."""
    return replaced(Coordinator, "_saw", lambda _self, _entry: None)


def commit_of_acks_not_stored() -> AbstractContextManager[None]:
    """What a transaction has acknowledged is acknowledged at the cursor, and the log does not say so."""
    append = PendingAcks._append

    async def forgotten(self: PendingAcks, txn: Any, record: PendingAckMetadataEntry) -> None:
        if record.pending_ack_op == PendingAckOperation.ACK:
            await append(self, txn, record)

    return replaced(PendingAcks, "_append", forgotten)


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "missing fsync": missing_fsync,
    "off by one in trimming": trimming_off_by_one,
    "ack lost on redelivery": ack_lost_on_redelivery,
    "reused buffer": reused_buffer,
    "receipt before the commit": receipt_before_commit,
    "snapshot in a commit": snapshot_in_a_commit,
    "bytes of a deleted ledger stay counted": bytes_stay_counted,
    "an empty segment stays": empty_segment_stays,
    "closed one short": closed_one_short,
    "a full segment is not sealed": full_segment_forgotten,
    "a banned client stays": banned_stays,
    "delivered early": delivered_early,
    "a run of delivery times is one short": run_one_short,
    "a horizon too far": horizon_too_far,
    "a fenced producer comes back": fenced_comes_back,
    "shared producers overtake": shared_overtake,
    "terminated all the same": terminated_all_the_same,
    "an end is not written": end_not_written,
    "debts are silence": debts_are_silence,
    "metadata are not compared": metadata_not_compared,
    "a change is not journalled": change_not_journalled,
    "complete without an upload": complete_without_upload,
    "deleted before the upload is complete": deleted_before_complete,
    "markers before the decision": marker_before_decision,
    "an abort is forgotten": abort_forgotten,
    "an id is given twice": id_given_twice,
    "the commit of acknowledgements is not stored": commit_of_acks_not_stored,
}
