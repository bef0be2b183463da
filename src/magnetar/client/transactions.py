"""Transactions: messages and acknowledgements on several topics that take effect together or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from magnetar.client.coordinators import TransactionCoordinators, TransactionId
from magnetar.client.enums import TransactionState
from magnetar.client.exceptions import (
    InvalidConfiguration,
    InvalidTxnStatusError,
    PulsarException,
    TransactionHasOperationFailed,
    TransactionNotFound,
)
from magnetar.io.interfaces import Future, Loop
from magnetar.io.tasks import KeyedTasks, TaskScope
from magnetar.io.waiting import outcome, settle

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)
_MOST_SECONDS = 2**63 // 1000


class OpenTransaction:
    """A transaction that has begun, as producers and consumers use it; all methods must be called in the
    event loop.
    """

    def __init__(
        self, loop: Loop, coordinators: TransactionCoordinators, transaction_id: TransactionId, seconds: float
    ) -> None:
        """:param seconds: the time-out of the transaction, in seconds"""
        self.id = transaction_id
        self.state = TransactionState.OPEN
        self.coordinators = coordinators
        self._loop = loop
        self._seconds = seconds
        self._timer = loop.call_later(seconds, self._expired)
        self._ends_at = loop.time() + seconds
        scope = TaskScope(loop, f"transaction {transaction_id}")
        self._adding: KeyedTasks[tuple[str, str | None], None] = KeyedTasks(scope)
        self._ending: KeyedTasks[bool, None] = KeyedTasks(scope)
        self._known: set[tuple[str, str | None]] = set()
        """Topics, as (topic, None), and subscriptions, as (topic, name), that the coordinator has
        registered.
        """
        self._underway = 0
        self._failure: PulsarException | None = None
        self._idle: Future[None] | None = None
        self._listeners: list[Callable[[bool], object]] = []
        coordinators.leaving[self._lost] = None

    def check_open(self) -> None:
        """Checks that messages and acknowledgements can be added.

        :raises InvalidTxnStatusError: the transaction is no longer open
        """
        if self._loop.time() >= self._ends_at:
            # The timer is late, because the loop was busy.
            self._expired()
        if self.state is not TransactionState.OPEN:
            raise InvalidTxnStatusError(self._not("be used"))

    @property
    def is_over(self) -> bool:
        """Whether the transaction has ended or timed out. Then its unsent messages must not be sent any more,
        because the topic would wait forever for their commit or abort.
        """
        ended = self.state not in (
            TransactionState.OPEN,
            TransactionState.COMMITTING,
            TransactionState.ABORTING,
        )
        return ended or self._loop.time() >= self._ends_at

    # Operations: messages and acknowledgements

    def begin_operation(self) -> None:
        """Called when a message or an acknowledgement is sent; commit and abort wait for
        :meth:`end_operation`.
        """
        self._underway += 1

    def end_operation(self, error: PulsarException | None) -> None:
        """Called with the outcome of an operation.

        :param error: the reason for a failure, after which the transaction cannot be committed; None: success
        """
        self._underway -= 1
        if error is not None:
            self.fail(error)
        if not self._underway and self._idle is not None:
            settle(self._idle)

    def fail(self, error: PulsarException) -> None:
        """Records that an operation failed, so that the transaction cannot be committed."""
        if self._failure is None:
            self._failure = error

    def knows(self, topic: str) -> bool:
        """Whether the topic is registered at the coordinator as a topic that the transaction publishes to."""
        return (topic, None) in self._known

    async def add_topic(self, topic: str) -> None:
        """Registers a topic at the coordinator, once, before the transaction publishes to it.

        :raises PulsarException: the coordinator refused, or did not answer
        """
        await self._add(topic, None)

    async def add_subscription(self, topic: str, subscription: str) -> None:
        """Registers a subscription at the coordinator, once, before the transaction acknowledges messages of
        the subscription.

        :raises PulsarException: the coordinator refused, or did not answer
        """
        await self._add(topic, subscription)

    async def _add(self, topic: str, subscription: str | None) -> None:
        key = (topic, subscription)
        if key not in self._known:
            await outcome(self._loop, self._adding.answer(key, lambda: self._tell(topic, subscription)))

    async def _tell(self, topic: str, subscription: str | None) -> None:
        if subscription is None:
            await self.coordinators.add_topic(self.id, topic)
        else:
            await self.coordinators.add_subscription(self.id, topic, subscription)
        self._known.add((topic, subscription))

    def when_ended(self, listener: Callable[[bool], object]) -> None:
        """Registers ``listener`` to be called when the transaction has ended, with True if it was
        committed.
        """
        self._listeners.append(listener)

    # The end

    async def commit(self) -> None:
        """See :meth:`Transaction.commit`. If the caller is cancelled, the commit continues."""
        await outcome(self._loop, self._ending.answer(True, self._commit))

    async def abort(self) -> None:
        """See :meth:`Transaction.abort`. If the caller is cancelled, the abort continues."""
        await outcome(self._loop, self._ending.answer(False, self._abort))

    async def _commit(self) -> None:
        if self.state is TransactionState.OPEN:
            self.state = TransactionState.COMMITTING
            await self._operations(TransactionState.COMMITTING)
            if self._failure is not None:
                failure = TransactionHasOperationFailed(
                    f"transaction {self.id} was aborted instead of committed, as one of its messages or "
                    f"acknowledgements failed: {self._failure}"
                )
                self.state = TransactionState.ABORTING
                await self.abort_quietly()
                raise failure from self._failure
        elif self.state is not TransactionState.COMMITTING:
            raise InvalidTxnStatusError(self._not("be committed"))
        try:
            await self.coordinators.end(self.id, commit=True)
        except (TransactionNotFound, InvalidTxnStatusError) as error:
            late = self._loop.time() >= self._ends_at
            self._end(TransactionState.TIME_OUT if late else TransactionState.ERROR)
            raise type(error)(
                f"transaction {self.id} was not committed: the coordinator has aborted it"
                f"{f', after its time-out of {self._seconds:g} s' if late else ''}: {error}"
            ) from error
        self._end(TransactionState.COMMITTED)

    async def _abort(self) -> None:
        if self.state not in (TransactionState.OPEN, TransactionState.ABORTING):
            raise InvalidTxnStatusError(self._not("be aborted"))
        self.state = TransactionState.ABORTING
        # A message that arrives after the abort would belong to a transaction that nobody ends.
        await self._operations(TransactionState.ABORTING)
        try:
            await self.coordinators.end(self.id, commit=False)
        except TransactionNotFound:
            log.debug("transaction %s had been aborted already", self.id)
        self._end(TransactionState.ABORTED)

    async def abort_quietly(self) -> None:
        """Aborts the transaction; a failure is only logged, because the coordinator then aborts the
        transaction after its time-out.
        """
        try:
            await self._abort()
        except PulsarException as error:
            log.warning(
                "cannot abort transaction %s; the coordinator aborts it at most %g s after its begin: %s",
                self.id,
                self._seconds,
                error,
            )

    async def _operations(self, state: TransactionState) -> None:
        """Waits until no operation is in progress, at most until the transaction's time-out.

        :param state: the state of the transaction meanwhile
        :raises InvalidTxnStatusError: the transaction has ended meanwhile
        """
        while self._underway and self.state is state and self._loop.time() < self._ends_at:
            self._idle = self._loop.create_future()
            limit = self._loop.call_at(self._ends_at, settle, self._idle)
            try:
                await self._idle
            finally:
                limit.cancel()
                self._idle = None
        if self._underway and self.state is state:
            self._end(TransactionState.TIME_OUT)
        if self.state is not state:
            raise InvalidTxnStatusError(self._not("be ended")) from self._failure

    def _expired(self) -> None:
        if self.state is TransactionState.OPEN:
            self._end(TransactionState.TIME_OUT)

    def _lost(self, error: PulsarException) -> None:
        self.fail(error)
        self._end(TransactionState.ERROR)

    def _end(self, state: TransactionState) -> None:
        self.state = state
        self._timer.cancel()
        self.coordinators.leaving.pop(self._lost, None)
        if self._idle is not None:
            settle(self._idle)
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(state is TransactionState.COMMITTED)

    def _not(self, what: str) -> str:
        why = f"transaction {self.id} cannot {what}: its state is {self.state.name}"
        if self.state is TransactionState.TIME_OUT:
            return f"{why}, after its time-out of {self._seconds:g} s; begin a new one"
        return why if self._failure is None else f"{why}, because of: {self._failure}"


class AnyTransaction:
    """The common interface of asynchronous and blocking transactions."""

    def __init__(self) -> None:
        self._open: OpenTransaction | None = None

    @property
    def id(self) -> TransactionId:
        """The transaction id, as assigned by the coordinator.

        :raises InvalidTxnStatusError: the transaction has not begun
        """
        return self.begun().id

    @property
    def state(self) -> TransactionState:
        """The state, as far as the client knows."""
        return TransactionState.NEW if self._open is None else self._open.state

    def begun(self) -> OpenTransaction:
        """Returns the object that producers and consumers use for this transaction.

        :raises InvalidTxnStatusError: the transaction has not begun
        """
        if self._open is None:
            raise InvalidTxnStatusError("the transaction has not begun; use a with block, or call begin()")
        return self._open

    def __repr__(self) -> str:
        where = "" if self._open is None else f"{self._open.id}, "
        return f"Transaction({where}{self.state.name})"


class Transaction(AnyTransaction):
    """A transaction; see :meth:`Client.transaction`.

    The end of its ``async with`` block commits the transaction; an exception in the block aborts it.
    """

    def __init__(self, loop: Loop, coordinators: TransactionCoordinators, timeout: float) -> None:
        """:param timeout: the time-out of the transaction, in seconds

        :raises InvalidConfiguration: the time-out is below 1 ms, or does not fit into 64 bits
        """
        if not 0.001 <= timeout < _MOST_SECONDS:
            raise InvalidConfiguration(f"a transaction's time-out must be 0.001 s or more, not {timeout}")
        super().__init__()
        self._loop = loop
        self._coordinators = coordinators
        self._timeout = timeout

    async def begin(self) -> Self:
        """Begins the transaction and returns it; for use without a ``with`` block.

        :raises InvalidTxnStatusError: the transaction has already begun
        :raises TransactionCoordinatorNotFoundError: the cluster has no transactions
        :raises PulsarException: no coordinator answered within the operation time-out
        """
        if self._open is not None:
            raise InvalidTxnStatusError(
                f"transaction {self._open.id} has already begun; create a new transaction for each use"
            )
        found = await self._coordinators.new(round(self._timeout * 1000))
        self._open = OpenTransaction(self._loop, self._coordinators, found, self._timeout)
        return self

    async def commit(self) -> None:
        """Commits: waits for the transaction's messages and acknowledgements, and makes them effective on all
        topics and subscriptions before it returns.

        :raises TransactionHasOperationFailed: a message or an acknowledgement failed; the transaction was
            aborted
        :raises InvalidTxnStatusError: the transaction has timed out or ended, and this call did not commit it
        :raises TransactionNotFound: the coordinator has already aborted the transaction
        :raises TransactionOutcomeUnknown: the answer did not arrive within the operation time-out; call again
            to learn the outcome
        :raises PulsarException: the commit could not be sent
        """
        await self.begun().commit()

    async def abort(self) -> None:
        """Aborts: the transaction's messages are never delivered, and the messages that it acknowledged are
        delivered again.

        :raises InvalidTxnStatusError: the transaction has ended, or is being committed
        :raises PulsarException: the coordinator did not answer; it aborts the transaction after its time-out
        """
        await self.begun().abort()

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave(self.begun(), failed=kind is not None)


async def leave(transaction: OpenTransaction, *, failed: bool) -> None:
    """Called at the end of a ``with`` block: commits the transaction, or aborts it after an exception, unless
    the block has already done so.

    :param failed: whether an exception ended the block
    """
    state = transaction.state
    if failed:
        if state in (TransactionState.OPEN, TransactionState.ABORTING):
            await transaction.abort_quietly()
    elif state not in (TransactionState.COMMITTED, TransactionState.ABORTED):
        await transaction.commit()
