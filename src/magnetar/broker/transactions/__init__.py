"""Transactions in topics and subscriptions, and the log that coordinators and subscriptions keep.

This module has the settings; settings in configuration files have Pulsar's names.
"""

from __future__ import annotations

from dataclasses import field

from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True)
class BatchedWrites:
    """The limits at which the waiting records of a log are written together as one entry."""

    enabled: bool = False
    max_records: int = 512
    max_bytes: int = 4 << 20
    max_delay_seconds: float = 0.001
    """The maximum time that the first record waits for further records, in seconds."""


@dataclass(frozen=True)
class TransactionSettings:
    """Settings of transactions; clients can use transactions only if ``transactionCoordinatorEnabled`` is
    true."""

    snapshot_changes: int = 1000
    """``transactionBufferSnapshotMaxTransactionCount``: a topic's state is stored after this many changes."""
    snapshot_seconds: float = 5.0
    """``transactionBufferSnapshotMinTimeInMillis``: the maximum delay between a change and the next snapshot,
    in seconds."""
    segmented_snapshots: bool = False
    segment_bytes: int = 256 << 10
    """``transactionBufferSnapshotSegmentSize``: the maximum size of a segment of transaction ids, in
    bytes."""
    max_active: int = 0
    """``maxActiveTransactionsPerCoordinator``: the maximum number of open transactions; 0: no limit."""
    max_requests: int = 1000
    """``transactionBufferClientMaxConcurrentRequests``: the maximum number of requests in flight to
    topics and subscriptions."""
    request_seconds: float = 3.0
    """``transactionBufferClientOperationTimeoutInMills``: the timeout of a request to a topic or
    subscription, in seconds."""
    log_writes: BatchedWrites = field(default_factory=BatchedWrites)
    """Batching in the logs of coordinators."""
    pending_ack_writes: BatchedWrites = field(default_factory=BatchedWrites)
    """Batching in the pending-ack logs."""
    pending_ack_index_lag: int = 500
    """``transactionPendingAckLogIndexMinLag``: the number of records of ended transactions at which a
    subscription's log is trimmed."""


TxnId = tuple[int, int]
"""A transaction's most and least significant bits: the number of the coordinator, and the coordinator's
sequence number."""


def txn_text(txn: TxnId) -> str:
    """Returns a transaction id as text, in Pulsar's form."""
    return f"({txn[0]},{txn[1]})"
