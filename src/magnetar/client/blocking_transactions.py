"""Transactions of the blocking interface."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from magnetar.client.transactions import AnyTransaction, leave
from magnetar.client.transactions import Transaction as AsyncTransaction
from magnetar.io.real.loop_thread import LoopThread


class Transaction(AnyTransaction):
    """A transaction; see :meth:`Client.transaction`.

    Leaving its block commits it; leaving the block by an exception aborts it.
    """

    def __init__(self, transaction: AsyncTransaction, thread: LoopThread) -> None:
        super().__init__()
        self._transaction = transaction
        self._thread = thread

    def begin(self) -> Self:
        """Begins the transaction, for use without a block, and returns it.

        :raises InvalidTxnStatusError: it has begun before
        :raises TransactionCoordinatorNotFoundError: the cluster has no transactions
        :raises PulsarException: no coordinator answered within the operation time-out
        """
        self._thread.run(self._transaction.begin())
        self._open = self._transaction.begun()
        return self

    def commit(self) -> None:
        """Commits: waits for the transaction's messages and acknowledgements, and makes them take effect.

        When it returns, each topic and subscription of the transaction has been told.

        :raises TransactionHasOperationFailed: one of them failed; the transaction was aborted
        :raises InvalidTxnStatusError: the transaction has timed out or has ended; it is not committed now
        :raises TransactionNotFound: the coordinator has aborted it
        :raises TransactionOutcomeUnknown: the answer did not arrive within the operation time-out; a second
            call asks again
        :raises PulsarException: the commit could not be sent
        """
        self._thread.run(self._transaction.commit())

    def abort(self) -> None:
        """Aborts: the transaction's messages are never delivered, and the acknowledged ones again.

        :raises InvalidTxnStatusError: the transaction has ended
        :raises PulsarException: the coordinator did not answer; it aborts the transaction after its time-out
        """
        self._thread.run(self._transaction.abort())

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(leave(self.begun(), failed=kind is not None))
