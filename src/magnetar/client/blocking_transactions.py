"""Transactions of the blocking interface."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from magnetar.client.transactions import AnyTransaction, leave
from magnetar.client.transactions import Transaction as AsyncTransaction
from magnetar.io.real.loop_thread import LoopThread


class Transaction(AnyTransaction):
    """A transaction; see :meth:`Client.transaction`.

    The end of its ``with`` block commits the transaction; an exception in the block aborts it.
    """

    def __init__(self, transaction: AsyncTransaction, thread: LoopThread) -> None:
        super().__init__()
        self._transaction = transaction
        self._thread = thread

    def begin(self) -> Self:
        """Begins the transaction and returns it; for use without a ``with`` block.

        :raises InvalidTxnStatusError: the transaction has already begun
        :raises TransactionCoordinatorNotFoundError: the cluster has no transactions
        :raises PulsarException: no coordinator answered within the operation time-out
        """
        self._thread.run(self._transaction.begin())
        self._open = self._transaction.begun()
        return self

    def commit(self) -> None:
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
        self._thread.run(self._transaction.commit())

    def abort(self) -> None:
        """Aborts: the transaction's messages are never delivered, and the messages that it acknowledged are
        delivered again.

        :raises InvalidTxnStatusError: the transaction has ended, or is being committed
        :raises PulsarException: the coordinator did not answer; it aborts the transaction after its time-out
        """
        self._thread.run(self._transaction.abort())

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(leave(self.begun(), failed=kind is not None))
