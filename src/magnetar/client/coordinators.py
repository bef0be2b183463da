"""The transaction coordinators of a client's cluster; the client looks the coordinators up for its first
transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from magnetar.client.connection import Connection
from magnetar.client.exceptions import (
    AuthenticationError,
    AuthorizationError,
    InvalidTxnStatusError,
    NotAllowedError,
    PulsarException,
    TopicNotFound,
    TransactionCoordinatorNotFoundError,
    TransactionNotFound,
    TransactionOutcomeUnknown,
    is_retryable,
    server_exception,
)
from magnetar.io.tasks import KeyedTasks, TaskScope
from magnetar.io.waiting import outcome, sleep
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, TxnAction

if TYPE_CHECKING:
    from magnetar.client.attachment import Services

ASSIGN_TOPIC = "persistent://pulsar/system/transaction_coordinator_assign"
"""A system topic: the broker that owns its partition n runs coordinator n."""
_NO_COORDINATORS = (
    "the cluster has no coordinators of transactions; its brokers need transactionCoordinatorEnabled=true"
)
_REFUSALS = (
    AuthenticationError,
    AuthorizationError,
    InvalidTxnStatusError,
    NotAllowedError,
    TransactionNotFound,
)
"""Errors that prove that the coordinator has not carried out the request."""


class TransactionId(NamedTuple):
    """The id of a transaction; its string form is ``(most,least)``."""

    most: int
    """Id of the coordinator."""
    least: int
    """Sequence number at the coordinator, from 0."""

    def __str__(self) -> str:
        return f"({self.most},{self.least})"


class TransactionCoordinators:
    """The transaction coordinators of the client's cluster; the coordinators begin new transactions in
    turn.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = services.io.loop
        self._count = 0
        """The number of coordinators; 0: not looked up yet."""
        self._turn = -1
        self._connections: dict[int, Connection] = {}
        """By coordinator: the connection on which its broker has answered TC_CLIENT_CONNECT."""
        self._connecting: KeyedTasks[int, Connection] = KeyedTasks(
            TaskScope(self._loop, "coordinators of transactions")
        )
        self._left: PulsarException | None = None
        self.leaving: dict[Callable[[PulsarException], object], None] = {}
        """The keys are callbacks, which are called with an error when the client changes to another cluster;
        the values have no meaning.
        """

    def leave(self, error: PulsarException) -> None:
        """Refuses all further requests, because the client uses another cluster now, where the same ids
        belong to other transactions.
        """
        self._left = error
        leaving, self.leaving = self.leaving, {}
        for left in leaving:
            left(error)

    async def new(self, milliseconds: int) -> TransactionId:
        """Begins a transaction at the next coordinator.

        :param milliseconds: the time after which the coordinator aborts the transaction
        :raises TransactionCoordinatorNotFoundError: the cluster has no coordinators, or the coordinator was
            not found within the operation time-out
        :raises PulsarException: the coordinator refused, or did not answer within the operation time-out
        """
        if not self._count:
            self._count = await self._services.retrying(self._find)
            self._turn = self._services.io.randomness.below(self._count) if self._turn < 0 else self._turn
        self._turn = number = (self._turn + 1) % self._count
        command = BaseCommand(type=BaseCommand.NEW_TXN)
        command.newTxn.tc_id = number
        # The field is named after seconds, and brokers take it as milliseconds.
        command.newTxn.txn_ttl_seconds = milliseconds
        answer = (await self._request(number, command)).newTxnResponse
        return TransactionId(answer.txnid_most_bits, answer.txnid_least_bits)

    async def add_topic(self, transaction: TransactionId, topic: str) -> None:
        """Registers a partition or a topic without partitions at the coordinator, before the transaction
        publishes to this topic.
        """
        command = BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN)
        added = command.addPartitionToTxn
        added.txnid_most_bits, added.txnid_least_bits = transaction
        added.partitions.append(topic)
        await self._request(transaction.most, command)

    async def add_subscription(self, transaction: TransactionId, topic: str, subscription: str) -> None:
        """Registers a subscription at the coordinator, before the transaction acknowledges messages of this
        subscription.
        """
        command = BaseCommand(type=BaseCommand.ADD_SUBSCRIPTION_TO_TXN)
        added = command.addSubscriptionToTxn
        added.txnid_most_bits, added.txnid_least_bits = transaction
        added.subscription.add(topic=topic, subscription=subscription)
        await self._request(transaction.most, command)

    async def end(self, transaction: TransactionId, *, commit: bool) -> None:
        """Commits or aborts a transaction; returns when the outcome is effective on all its topics and
        subscriptions.

        :raises TransactionNotFound: the transaction has already been aborted (not committed, because only
            this client commits it)
        :raises InvalidTxnStatusError: the transaction cannot be committed because the coordinator is already
            aborting it, or the reverse
        :raises TransactionOutcomeUnknown: a commit was sent, but no answer arrived
        """
        command = BaseCommand(type=BaseCommand.END_TXN)
        ended = command.endTxn
        ended.txnid_most_bits, ended.txnid_least_bits = transaction
        ended.txn_action = TxnAction.COMMIT if commit else TxnAction.ABORT
        await self._request(transaction.most, command, decided=str(transaction) if commit else "")

    async def _find(self) -> int:
        """Looks up the number of coordinators in the cluster."""
        try:
            count = await self._services.lookup.partitions(ASSIGN_TOPIC, makes_topic=False)
        except TopicNotFound as error:
            raise TransactionCoordinatorNotFoundError(_NO_COORDINATORS) from error
        if not count:
            raise TransactionCoordinatorNotFoundError(_NO_COORDINATORS)
        return count

    async def _request(self, coordinator: int, command: BaseCommand, *, decided: str = "") -> BaseCommand:
        """Sends a request to a coordinator; repeats it after temporary errors, within the operation time-out.

        :param decided: the id of the transaction that the request commits; empty: the request is not a commit
        """
        end = self._loop.time() + self._services.operation_timeout
        backoff = self._services.backoff()
        may_be_done = False
        while True:
            was_sent = False
            try:
                if self._left is not None:
                    raise self._left
                connection = await self._connected(coordinator)
                was_sent = True
                return await self._ask(connection, command, max(end - self._loop.time(), 0.001))
            except TransactionCoordinatorNotFoundError as error:
                # The coordinator has moved to another broker, or is being loaded.
                self._connections.pop(coordinator, None)
                failure: PulsarException = error
            except _REFUSALS as error:
                if decided and may_be_done and isinstance(error, TransactionNotFound):
                    # The transaction may have been committed and forgotten before this request.
                    raise _unknown(decided, error) from error
                raise
            except PulsarException as error:
                may_be_done = may_be_done or was_sent
                failure = error
            delay = backoff.next()
            may_help = is_retryable(failure) or isinstance(failure, TransactionCoordinatorNotFoundError)
            if not may_help or self._loop.time() + delay >= end:
                if decided and may_be_done:
                    raise _unknown(decided, failure) from failure
                raise failure
            await sleep(self._loop, delay)

    async def _connected(self, coordinator: int) -> Connection:
        """Returns a connection to the broker that has loaded the coordinator."""
        known = self._connections.get(coordinator)
        if known is not None and not known.closed:
            return known
        return await outcome(
            self._loop, self._connecting.answer(coordinator, lambda: self._connect(coordinator))
        )

    async def _connect(self, coordinator: int) -> Connection:
        owner = await self._services.lookup.owner(f"{ASSIGN_TOPIC}-partition-{coordinator}")
        connection = await self._services.pool.get(owner.broker, owner.through)
        command = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_REQUEST)
        command.tcClientConnectRequest.tc_id = coordinator
        await self._ask(connection, command, self._services.operation_timeout)
        self._connections[coordinator] = connection
        return connection

    async def _ask(self, connection: Connection, command: BaseCommand, seconds: float) -> BaseCommand:
        """Sends a request once; returns the answer.

        :raises PulsarException: the error in the answer, Timeout, or the end of the connection
        """
        number = connection.wire.new_request_id()
        for kind, said in command.ListFields():
            if kind.name != "type":
                said.request_id = number
        answered = await connection.ask(number, command, seconds)
        for kind, answer in answered.ListFields():
            if kind.name != "type" and answer.HasField("error"):
                raise server_exception(answer.error, answer.message)
        return answered


def _unknown(transaction: str, why: PulsarException) -> TransactionOutcomeUnknown:
    return TransactionOutcomeUnknown(
        f"transaction {transaction}: the commit was sent, and whether it took effect is not known; call "
        f"commit() again, or look at the topics: {why}"
    )
