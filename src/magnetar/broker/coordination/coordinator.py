"""A transaction coordinator: begins transactions, and commits or aborts them.

A commit is decided once the record COMMITTING is durable. The coordinator then notifies every topic and
subscription of the transaction; if this broker fails, the next owner of the log continues. Once all have
answered, the record COMMITTED is written, and the client gets the response to END_TXN.

Ended transactions are remembered for a while, also in the log, so that clients can repeat END_TXN.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from magnetar.broker.coordination.transaction import (
    ABORTED,
    ABORTING,
    COMMITTED,
    COMMITTING,
    OPEN,
    CoordinatedTransaction,
    Participant,
    coordinator_not_found,
    new_record,
    not_found,
    partitions_record,
    subscriptions_record,
    update_record,
)
from magnetar.broker.flow.rates import TRANSACTION_BOUNDS_MS, Distribution
from magnetar.broker.transactions import TxnId, txn_text
from magnetar.broker.transactions.log import RecordPosition, TransactionLog
from magnetar.broker.transactions.records_pb2 import TransactionMetadataEntry, TransactionStatus
from magnetar.broker.translation import to_broker_error
from magnetar.errors import BrokerError, NotAllowed, TooManyRequests, TransactionCoordinatorNotFound
from magnetar.invariants import must
from magnetar.io.interfaces import Io
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import fail, nobody_waits, outcome, settle, sleep
from magnetar.io.wheel import Timer, TimerWheel
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerClosed, ManagedLedgerError, ManagedLedgerFenced
from magnetar.metadata.interface import MetadataError
from magnetar.protocol.frames import signed

if TYPE_CHECKING:
    from magnetar.io.interfaces import Future

log = logging.getLogger(__name__)

MAX_LOCAL_TXN_ID = "max_local_txn_id"
"""The property of the log with the highest id assigned so far."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
"""The shortest and the longest pause in seconds before a participant is notified again."""
_RETRY_SECONDS = 1.0
_ROOM_SECONDS = 20.0
"""The longest wait of NEW_TXN, in seconds: less than the 30 s after which clients give up."""
_LONGEST_TIMER = 365 * 86400.0
_REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 10_000
_MOST_WAITING = 1000
"""The maximum number of NEW_TXN requests that wait until another transaction may begin."""
_MOST_WAITING_FOR_END = 100
"""The maximum number of END_TXN requests that wait for the end of one transaction; clients repeat END_TXN."""
_MOST_PARTICIPANTS = 10_000
"""The maximum number of topics and subscriptions of one transaction."""

Tell = Callable[[Participant, TxnId, bool, int], Awaitable[None]]
"""Notifies a participant that a transaction was committed (True) or aborted (False); the last argument is the
low-water mark. Returns when the participant has stored the end; at once if the participant does not exist.

:raises BrokerError: the participant must be notified again
"""


class Counts:
    """The numbers of transactions of a coordinator since it was loaded, by outcome."""

    __slots__ = ("aborted", "begun", "committed", "latency", "timed_out")

    def __init__(self) -> None:
        self.begun = 0
        self.committed = 0
        self.aborted = 0
        """The number of aborted transactions, including those that timed out."""
        self.timed_out = 0
        self.latency = Distribution(TRANSACTION_BOUNDS_MS)
        """Milliseconds from the beginning of a transaction to its end."""


class Ended(NamedTuple):
    """A transaction that ended a short time ago."""

    committed: bool
    owner: str | None
    positions: Sequence[RecordPosition]
    until: float
    """The time until which the transaction is remembered, in seconds of the loop's clock."""


class Coordinator:
    """The coordinator of the transactions whose ids begin with ``number``; no other broker writes its log."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        number: int,
        log_of_it: TransactionLog[TransactionMetadataEntry],
        tell: Tell,
        most_active: Callable[[], int],
        failed: Callable[[str, BaseException], object],
    ) -> None:
        """:param most_active: returns the maximum number of open transactions; 0: no limit

        :param failed: closes the coordinator after an internal error; called with the task's name and the
            error
        """
        self.number = number
        self.log = log_of_it
        self._io = io
        self._wheel = wheel
        self._tell = tell
        self._most_active = most_active
        self._tasks = TaskScope(io.loop, f"transaction coordinator {number}", failed)
        self.transactions: dict[int, CoordinatedTransaction] = {}
        """Transactions that have not ended, by number; the log may lack those that are just beginning."""
        self.ended: dict[int, Ended] = {}
        """Transactions that ended a short time ago, in the order of their ends."""
        self._forgetting: Timer | None = None
        self.last_id = -1
        """The highest id assigned so far."""
        self._oldest = 0
        """A lower bound of the ids of open transactions."""
        self._waiting: deque[Future[None]] = deque()
        """NEW_TXN requests that wait until another transaction may begin."""
        self._granted = 0
        """The number of NEW_TXN requests that need not wait any more, but have not continued yet."""
        self.closed = False
        self.counts = Counts()
        self.recovery_began_ms = self.recovery_ended_ms = 0

    # Recovery

    async def recover(self) -> None:
        """Reads the log, continues transactions that are ending, and starts the timers of open transactions.

        :raises LedgerError: the log cannot be read
        :raises ManagedLedgerError: a record cannot be parsed, or another broker owns the log
        :raises MetadataError: the highest id cannot be stored
        """
        self.recovery_began_ms = self._io.clock.wall_ms()
        stored = self.log.managed_ledger.properties.get(MAX_LOCAL_TXN_ID, "")
        self.last_id = int(stored) if stored.isascii() and stored.isdigit() else -1
        last = await self.log.last_record()
        if last is not None:
            self._saw(last)
        await self.log.replay(self._replayed)
        # Once the ledgers with the highest ids are trimmed, only this property says which ids were given.
        await self.log.keep_properties(self._properties)
        self._oldest = min(self.transactions, default=self.last_id + 1)
        for transaction in list(self.transactions.values()):
            if transaction.status == OPEN:
                self._set_deadline(transaction)
            else:
                transaction.ended = self._future()
                self._tasks.start(self._finish(transaction), f"ending {txn_text(transaction.id)}")
        self._forget_ended()
        self.recovery_ended_ms = self._io.clock.wall_ms()

    def _properties(self) -> Mapping[str, str]:
        return {MAX_LOCAL_TXN_ID: str(self.last_id)}

    def _saw(self, entry: TransactionMetadataEntry) -> None:
        self.last_id = max(self.last_id, entry.txnid_least_bits)
        if entry.HasField("max_local_txn_id"):
            # Apache Pulsar writes -1 as an unsigned number.
            self.last_id = max(self.last_id, signed(entry.max_local_txn_id))

    def _replayed(self, position: RecordPosition, entry: TransactionMetadataEntry) -> None:
        self._saw(entry)
        least = entry.txnid_least_bits
        if entry.metadata_op == TransactionMetadataEntry.NEW:
            owner = entry.owner if entry.HasField("owner") else None
            timeout_ms = signed(entry.timeout_ms)
            found = CoordinatedTransaction((self.number, least), entry.start_time, timeout_ms, owner)
            self.transactions[least] = found
        else:
            known = self.transactions.get(least)
            if known is None:
                # The records before it were acknowledged: the transaction has ended.
                self.log.acknowledge([position])
                return
            found = known
        found.positions.append(position)
        if entry.metadata_op == TransactionMetadataEntry.ADD_PARTITION:
            found.partitions.update(dict.fromkeys(entry.partitions))
        elif entry.metadata_op == TransactionMetadataEntry.ADD_SUBSCRIPTION:
            found.subscriptions.update(
                dict.fromkeys((each.topic, each.subscription) for each in entry.subscriptions)
            )
        elif entry.metadata_op == TransactionMetadataEntry.UPDATE:
            found.status = entry.new_status
            if found.status in (COMMITTED, ABORTED):
                del self.transactions[least]
                self._remember(found)

    # Requests

    async def begin(
        self, timeout_ms: int, owner: str | None, wanted: Callable[[], bool] = lambda: True
    ) -> TxnId:
        """Begins a transaction, durably; returns its id, which is never used again.

        If the maximum number of transactions is open, the call waits, in order, until a transaction ends.

        :param timeout_ms: the time in ms after which the transaction is aborted; 0 or less: at once
        :param owner: the role of the client; None: the client is not authenticated
        :param wanted: returns whether the client still waits for the answer
        :raises TooManyRequests: the maximum number of transactions stays open, or too many requests wait
        :raises TransactionCoordinatorNotFound: the coordinator moves to another broker
        :raises BrokerError: the transaction cannot be stored
        """
        await self._room()
        if not wanted():
            raise NotAllowed("The client has left")
        self.last_id += 1
        txn, now_ms = (self.number, self.last_id), self._io.clock.wall_ms()
        transaction = self.transactions[txn[1]] = CoordinatedTransaction(txn, now_ms, timeout_ms, owner)
        await self._append(transaction, new_record(transaction), self._begun)
        return transaction.id

    def _begun(self, transaction: CoordinatedTransaction, stored: bool) -> None:
        if not stored:
            del self.transactions[transaction.id[1]]
            self._let_in()
        elif not self.closed:
            self.counts.begun += 1
            self._set_deadline(transaction)

    async def add_partitions(self, least: int, topics: Sequence[str]) -> None:
        """Adds topics to an open transaction; durable when this returns.

        :raises TransactionNotFound: the transaction does not exist, or has ended
        :raises InvalidTransactionStatus: the transaction is ending
        :raises BrokerError: the record cannot be stored
        """
        transaction = self._open(least)
        self._check_room_for(transaction, len(topics))
        # At once: what is added before the end is decided must be told the end.
        transaction.partitions.update(dict.fromkeys(topics))
        await self._append(transaction, partitions_record(transaction, topics, self._io.clock.wall_ms()))

    async def add_subscriptions(self, least: int, subscriptions: Sequence[tuple[str, str]]) -> None:
        """Adds subscriptions, pairs of a topic and a name, like :meth:`add_partitions`."""
        transaction = self._open(least)
        self._check_room_for(transaction, len(subscriptions))
        transaction.subscriptions.update(dict.fromkeys(subscriptions))
        record = subscriptions_record(transaction, subscriptions, self._io.clock.wall_ms())
        await self._append(transaction, record)

    def end(self, least: int, *, commit: bool) -> Future[None]:
        """Begins to end a transaction; returns a future, done when all participants have stored the end.

        The call can be repeated with the same outcome while the transaction is ending, and for a while after
        its end. The future fails with a BrokerError if the decision cannot be stored, so that the transaction
        stays open, or if the coordinator moves to another broker.

        :raises TransactionNotFound: no such transaction, or it ended too long ago or with the other outcome
        :raises InvalidTransactionStatus: the transaction is ending with the other outcome
        :raises TooManyRequests: too many requests wait for the end of the transaction
        :raises TransactionCoordinatorNotFound: the coordinator moves to another broker
        """
        if self.closed:
            raise coordinator_not_found(self.number)
        ended = self.ended.get(least)
        if ended is not None and ended.committed == commit:
            over = self._future()
            settle(over)
            return over
        transaction = self.transaction(least)
        if transaction.status == OPEN:
            return self._begin_end(transaction, commit=commit)
        transaction.check(COMMITTING if commit else ABORTING)
        if transaction.waiting >= _MOST_WAITING_FOR_END or transaction.ended is None:
            raise TooManyRequests(f"Too many requests wait for the end of {txn_text(transaction.id)}")
        transaction.waiting += 1
        return transaction.ended

    def owner_of(self, least: int) -> str | None:
        """Returns the role that began a transaction; None if the client was not authenticated.

        :raises TransactionNotFound: the transaction does not exist, or ended too long ago
        """
        ended = self.ended.get(least)
        return self.transaction(least).owner if ended is None else ended.owner

    def transaction(self, least: int) -> CoordinatedTransaction:
        """Returns a transaction that has not ended.

        :raises TransactionNotFound: the transaction does not exist, or has ended
        """
        transaction = self.transactions.get(least)
        if transaction is None or not transaction.positions:
            # One without a record is just beginning: its client does not know it yet.
            raise not_found((self.number, least))
        return transaction

    def low_water_mark(self) -> int:
        """Returns the number up to which all transactions have ended; -1: the first has not ended."""
        while self._oldest <= self.last_id and self._oldest not in self.transactions:
            self._oldest += 1
        return self._oldest - 1

    def _open(self, least: int) -> CoordinatedTransaction:
        transaction = self.transaction(least)
        transaction.check(OPEN)
        return transaction

    def _check_room_for(self, transaction: CoordinatedTransaction, count: int) -> None:
        if len(transaction.partitions) + len(transaction.subscriptions) + count > _MOST_PARTICIPANTS:
            raise NotAllowed(
                f"Transaction {txn_text(transaction.id)} cannot have more than {_MOST_PARTICIPANTS} topics "
                "and subscriptions: divide the work among several transactions"
            )

    # Room

    @property
    def full(self) -> bool:
        """Whether the maximum number of transactions is open, so that the next transaction must wait."""
        most = self._most_active()
        return most > 0 and (bool(self._waiting) or len(self.transactions) + self._granted >= most)

    async def _room(self) -> None:
        if not self.full:
            return
        refusal = TooManyRequests(
            f"Coordinator {self.number} has {len(self.transactions)} transactions, as many as "
            "maxActiveTransactionsPerCoordinator permits: end some of them, or try again later"
        )
        if len(self._waiting) >= _MOST_WAITING:
            raise refusal
        turn: Future[None] = self._future()
        self._waiting.append(turn)
        timer = self._wheel.schedule(_ROOM_SECONDS, fail, turn, refusal)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._granted -= 1
                self._let_in()
            raise
        finally:
            timer.cancel()
            if turn in self._waiting:
                self._waiting.remove(turn)
        self._granted -= 1

    def _let_in(self) -> None:
        """Lets waiting NEW_TXN requests begin transactions while the maximum number permits it."""
        most = self._most_active()
        while self._waiting and (not most or len(self.transactions) + self._granted < most):
            turn = self._waiting.popleft()
            if not turn.done():
                self._granted += 1
                settle(turn)

    # Time-outs

    def _set_deadline(self, transaction: CoordinatedTransaction) -> None:
        # The clock may have jumped, or be another broker's: never longer than the whole time.
        passed = max(self._io.clock.wall_ms() - transaction.started_ms, 0)
        transaction.deadline = self._io.loop.time() + max(transaction.timeout_ms - passed, 0) / 1000
        self._start_timer(transaction)

    def _start_timer(self, transaction: CoordinatedTransaction, at_least: float = 0.0) -> None:
        """Starts the timer that aborts a transaction at its deadline, in ``at_least`` seconds or later."""
        left = max(transaction.deadline - self._io.loop.time(), at_least)
        transaction.timer = self._wheel.schedule(min(left, _LONGEST_TIMER), self._due, transaction)

    def _due(self, transaction: CoordinatedTransaction) -> None:
        transaction.timer = None
        if self._io.loop.time() < transaction.deadline:
            # Its time is longer than timers.
            self._start_timer(transaction)
            return
        log.info("transaction timed out", extra={"transaction": txn_text(transaction.id)})
        self.counts.timed_out += 1
        self._begin_end(transaction, commit=False)

    # Ends

    def _begin_end(self, transaction: CoordinatedTransaction, *, commit: bool) -> Future[None]:
        transaction.status = COMMITTING if commit else ABORTING
        if transaction.timer is not None:
            transaction.timer.cancel()
            transaction.timer = None
        ended = transaction.ended = self._future()
        transaction.waiting = 1
        self._tasks.start(self._decide(transaction), f"ending {txn_text(transaction.id)}")
        return ended

    async def _decide(self, transaction: CoordinatedTransaction) -> None:
        """Stores the decision to commit or abort, and carries it out."""
        record = update_record(transaction, OPEN, transaction.status, self._io.clock.wall_ms())
        try:
            await self._append(transaction, record)
        except BrokerError as error:
            ended, transaction.ended = transaction.ended, None
            transaction.status = OPEN
            if not self.closed:
                self._start_timer(transaction, _RETRY_SECONDS)
            if ended is not None:
                fail(ended, error)
            return
        await self._finish(transaction)

    async def _finish(self, transaction: CoordinatedTransaction) -> None:
        """Notifies all participants until each has answered, then stores the end."""
        left = transaction.participants()
        pause = _FIRST_PAUSE
        while left and (left := await self._tell_each(transaction, left)):
            await sleep(self._io.loop, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        transaction.unreached = None
        status = COMMITTED if transaction.status == COMMITTING else ABORTED
        while True:
            record = update_record(transaction, transaction.status, status, self._io.clock.wall_ms())
            try:
                await self._append(transaction, record)
            except TransactionCoordinatorNotFound:
                # The next owner of the log finds out that all were told, by telling them again.
                return
            except BrokerError as error:
                what = {"transaction": txn_text(transaction.id), "error": str(error)}
                log.warning("cannot store the end of the transaction; trying again", extra=what)
                await sleep(self._io.loop, _RETRY_SECONDS)
            else:
                break
        transaction.status = status
        self._over(transaction)

    async def _tell_each(
        self, transaction: CoordinatedTransaction, participants: Sequence[Participant]
    ) -> list[Participant]:
        """Notifies participants concurrently; returns those that must be notified again."""
        commit = transaction.status == COMMITTING
        first, *others = participants
        ending = transaction.id, commit, self.low_water_mark()
        told = [(each, self._tasks.answer(self._try(each, *ending))) for each in others]
        # Most transactions have one or two: the first needs no task.
        unreached: dict[Participant, str] = {}
        if (reason := await self._try(first, *ending)) is not None:
            unreached[first] = reason
        for participant, task in told:
            if (reason := await outcome(self._io.loop, task)) is not None:
                unreached[participant] = reason
        if unreached and transaction.unreached is None:
            log.warning(
                "participants of a transaction could not be notified of its end; trying again",
                extra={
                    "transaction": txn_text(transaction.id),
                    "status": TransactionStatus.Name(transaction.status),
                    "participants": [str(each) for each in unreached][:10],
                    "reason": next(iter(unreached.values())),
                },
            )
        transaction.unreached = unreached or transaction.unreached
        return list(unreached)

    async def _try(
        self, participant: Participant, transaction: TxnId, commit: bool, low_water: int
    ) -> str | None:
        """Returns the reason why the participant must be notified again; None if it was notified."""
        try:
            await self._tell(participant, transaction, commit, low_water)
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
            return str(error) or type(error).__name__
        return None

    def _over(self, transaction: CoordinatedTransaction) -> None:
        least = transaction.id[1]
        del self.transactions[least]
        if transaction.status == COMMITTED:
            self.counts.committed += 1
        else:
            self.counts.aborted += 1
        self.counts.latency.add(max(self._io.clock.wall_ms() - transaction.started_ms, 0))
        self._remember(transaction)
        self._forget_ended()
        if transaction.ended is not None:
            settle(transaction.ended)
        self._let_in()

    def _remember(self, transaction: CoordinatedTransaction) -> None:
        until = self._io.loop.time() + _REMEMBERED_SECONDS
        known = Ended(transaction.status == COMMITTED, transaction.owner, transaction.positions, until)
        self.ended[transaction.id[1]] = known

    def _forget_ended(self) -> None:
        """Acknowledges the records of ended transactions, except those that ended a short time ago."""
        now = self._io.loop.time()
        while self.ended:
            least, oldest = next(iter(self.ended.items()))
            if oldest.until > now and len(self.ended) <= _MOST_REMEMBERED:
                break
            del self.ended[least]
            self.log.acknowledge(oldest.positions)
        if self.ended and self._forgetting is None:
            pause = max(next(iter(self.ended.values())).until - now, _RETRY_SECONDS)
            self._forgetting = self._wheel.schedule(pause, self._forget_due)

    def _forget_due(self) -> None:
        self._forgetting = None
        self._forget_ended()

    # The log

    async def _append(
        self,
        transaction: CoordinatedTransaction,
        record: TransactionMetadataEntry,
        told: Callable[[CoordinatedTransaction, bool], None] | None = None,
    ) -> None:
        """Writes a record; it is durable when this returns. A cancelled call may still write it.

        :param told: called with the transaction and whether the record was stored, also after a cancellation
        :raises TransactionCoordinatorNotFound: another broker owns the log; the record may be stored
        :raises BrokerError: the record is not stored
        """

        def written(done: Future[RecordPosition]) -> None:
            stored = not done.cancelled() and done.exception() is None
            if stored:
                transaction.positions.append(done.result())
            if told is not None:
                told(transaction, stored)

        if self.closed:
            if told is not None:
                told(transaction, False)
            raise coordinator_not_found(self.number)
        record.max_local_txn_id = self.last_id
        writing = self.log.begin(record)
        writing.add_done_callback(written)
        try:
            await outcome(self._io.loop, writing)
        except (ManagedLedgerFenced, ManagedLedgerClosed) as error:
            raise coordinator_not_found(self.number) from error
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            raise to_broker_error(error) from error

    # Its end

    def stop(self) -> None:
        """Stops all work at once. Nothing more is written, and pending requests fail, so that clients look up
        the coordinator again."""
        if self.closed:
            return
        self.closed = True
        self._tasks.cancel()
        if self._forgetting is not None:
            self._forgetting.cancel()
        moved = coordinator_not_found(self.number)
        for transaction in self.transactions.values():
            if transaction.timer is not None:
                transaction.timer.cancel()
                transaction.timer = None
            if transaction.ended is not None:
                fail(transaction.ended, moved)
        waiting, self._waiting = self._waiting, deque()
        for turn in waiting:
            fail(turn, moved)

    async def close(self) -> None:
        """Stops the coordinator, and closes its log.

        :raises LedgerError: the last ledger cannot be closed; the next opening recovers it
        """
        self.stop()
        await self._tasks.close()
        await self.log.close()

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: an id is above the highest assigned id, or is both open and ended
        """
        for least in self.transactions:
            must(least <= self.last_id, "transaction", least, "is above", self.last_id)
            must(least not in self.ended, "transaction", least, "is open, and has ended")
        must(-1 <= self.low_water_mark() <= self.last_id, "low-water mark", self.low_water_mark())

    def _future(self) -> Future[None]:
        future: Future[None] = self._io.loop.create_future()
        future.add_done_callback(nobody_waits)
        return future
