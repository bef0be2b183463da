"""One transaction in its coordinator, and its records in the coordinator's log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from magnetar.broker.transactions import TxnId, txn_text
from magnetar.broker.transactions.log import RecordPosition
from magnetar.broker.transactions.records_pb2 import TransactionMetadataEntry, TransactionStatus
from magnetar.errors import (
    InvalidTransactionStatus,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
)

if TYPE_CHECKING:
    from magnetar.io.interfaces import Future
    from magnetar.io.wheel import Timer

OPEN = TransactionStatus.OPEN
COMMITTING = TransactionStatus.COMMITTING
COMMITTED = TransactionStatus.COMMITTED
ABORTING = TransactionStatus.ABORTING
ABORTED = TransactionStatus.ABORTED


def not_found(transaction: TxnId) -> TransactionNotFound:
    # Sic: Pulsar's text has no space in front of "not", and one at the end.
    return TransactionNotFound(f"The transaction with this txdID `{txn_text(transaction)}`not found ")


def coordinator_not_found(number: int) -> TransactionCoordinatorNotFound:
    return TransactionCoordinatorNotFound(f"Transaction coordinator with id {number} not found!")


class Participant(NamedTuple):
    """A topic or a subscription, which must be notified of the end of a transaction."""

    topic: str
    """The full name."""
    subscription: str | None = None
    """The name of the subscription; None if the participant is the topic itself, to which messages were
    sent."""

    def __str__(self) -> str:
        return self.topic if self.subscription is None else f"{self.topic}, subscription {self.subscription}"


class CoordinatedTransaction:
    """A transaction that has not ended."""

    __slots__ = (
        "deadline",
        "ended",
        "id",
        "owner",
        "partitions",
        "positions",
        "started_ms",
        "status",
        "subscriptions",
        "timeout_ms",
        "timer",
        "unreached",
        "waiting",
    )

    def __init__(self, transaction: TxnId, started_ms: int, timeout_ms: int, owner: str | None) -> None:
        """:param started_ms: when the transaction began, in ms since 1970

        :param timeout_ms: the time after which the transaction is aborted, in ms; 0 or less: at once
        :param owner: the role that began the transaction; None: the client was not authenticated
        """
        self.id = transaction
        self.started_ms = started_ms
        self.timeout_ms = timeout_ms
        self.owner = owner
        self.status: TransactionStatus = OPEN
        self.partitions: dict[str, None] = {}
        """Topics to which the transaction may have sent messages, in the order in which they were added."""
        self.subscriptions: dict[tuple[str, str], None] = {}
        """Topics and subscriptions in which the transaction may have acknowledged messages."""
        self.positions: list[RecordPosition] = []
        """The positions of the transaction's records in the log."""
        self.deadline = 0.0
        """The time of the timeout, in seconds of the loop's clock."""
        self.timer: Timer | None = None
        self.ended: Future[None] | None = None
        """A future that completes when the transaction has ended; None while it is open."""
        self.waiting = 0
        """The number of requests that wait for the end of the transaction."""
        self.unreached: dict[Participant, str] | None = None
        """While the transaction is ending, the participants that could not be notified yet, each with the
        reason; None: no attempt has failed."""

    def participants(self) -> list[Participant]:
        """Returns the topics and subscriptions that must be notified of the end."""
        subscriptions = [Participant(topic, name) for topic, name in self.subscriptions]
        return [*subscriptions, *(Participant(topic) for topic in self.partitions)]

    def described(self) -> dict[str, object]:
        """Returns ``TransactionMetadata``, without the fields that only topics and subscriptions know.

        Additional fields, not in Apache Pulsar, are ``owner``, if clients are authenticated, and
        ``unreached``, the participants of an ending transaction that cannot be notified, with the reasons.
        """
        acked: dict[str, dict[str, object]] = {}
        for topic, subscription in self.subscriptions:
            acked.setdefault(topic, {})[subscription] = {}
        found: dict[str, object] = {
            "txnId": txn_text(self.id),
            "status": TransactionStatus.Name(self.status),
            "openTimestamp": self.started_ms,
            "timeoutAt": self.timeout_ms,
            "producedPartitions": {topic: {} for topic in self.partitions},
            "ackedPartitions": acked,
        }
        if self.owner is not None:
            found["owner"] = self.owner
        if self.unreached:
            found["unreached"] = {str(each): reason for each, reason in self.unreached.items()}
        return found

    def check(self, expected: TransactionStatus) -> None:
        """Checks that the transaction has a status.

        :raises InvalidTransactionStatus: the transaction has another status
        """
        if self.status != expected:
            raise InvalidTransactionStatus(
                f"Expect Txn `{txn_text(self.id)}` to be in {TransactionStatus.Name(expected)} status "
                f"but it is in {TransactionStatus.Name(self.status)} status"
            )


def new_record(transaction: CoordinatedTransaction) -> TransactionMetadataEntry:
    """Returns the record of the beginning of a transaction."""
    entry = _record(transaction, TransactionMetadataEntry.NEW, transaction.started_ms)
    entry.timeout_ms = transaction.timeout_ms % 2**64
    entry.start_time = transaction.started_ms
    if transaction.owner is not None:
        entry.owner = transaction.owner
    return entry


def partitions_record(
    transaction: CoordinatedTransaction, topics: Iterable[str], now_ms: int
) -> TransactionMetadataEntry:
    entry = _record(transaction, TransactionMetadataEntry.ADD_PARTITION, now_ms)
    entry.partitions.extend(topics)
    return entry


def subscriptions_record(
    transaction: CoordinatedTransaction, subscriptions: Iterable[tuple[str, str]], now_ms: int
) -> TransactionMetadataEntry:
    entry = _record(transaction, TransactionMetadataEntry.ADD_SUBSCRIPTION, now_ms)
    for topic, name in subscriptions:
        entry.subscriptions.add(topic=topic, subscription=name)
    return entry


def update_record(
    transaction: CoordinatedTransaction, expected: TransactionStatus, new: TransactionStatus, now_ms: int
) -> TransactionMetadataEntry:
    """Returns the record of a change of a transaction's status."""
    entry = _record(transaction, TransactionMetadataEntry.UPDATE, now_ms)
    entry.expected_status = expected
    entry.new_status = new
    return entry


def _record(
    transaction: CoordinatedTransaction, operation: TransactionMetadataEntry.Operation, now_ms: int
) -> TransactionMetadataEntry:
    most, least = transaction.id
    return TransactionMetadataEntry(
        metadata_op=operation,
        txnid_least_bits=least,
        txnid_most_bits=most,
        last_modification_time=now_ms,
    )
