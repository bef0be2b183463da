"""Transactions as topics and subscriptions see them, and the log that coordinators and subscriptions keep.

Here are their names and settings; the names of settings in configuration files are Pulsar's.
"""

from __future__ import annotations

from dataclasses import field

from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True)
class BatchedWrites:
    """How many records of a log become one entry."""

    enabled: bool = False
    max_records: int = 512
    max_bytes: int = 4 << 20
    max_delay_seconds: float = 0.001
    """How long the first record waits for others."""


@dataclass(frozen=True)
class TransactionSettings:
    """``transactionCoordinatorEnabled`` is true; otherwise a broker has no such settings."""

    snapshot_changes: int = 1000
    """``transactionBufferSnapshotMaxTransactionCount``: a topic's state is stored after this many changes."""
    snapshot_seconds: float = 5.0
    """``transactionBufferSnapshotMinTimeInMillis``: it is stored at the latest this long after a change."""
    segmented_snapshots: bool = False
    segment_bytes: int = 256 << 10
    """``transactionBufferSnapshotSegmentSize``: the size of the ids in a segment."""
    max_active: int = 0
    """``maxActiveTransactionsPerCoordinator``; 0: no limit."""
    max_requests: int = 1000
    """``transactionBufferClientMaxConcurrentRequests``: requests to topics and subscriptions in flight."""
    request_seconds: float = 3.0
    """``transactionBufferClientOperationTimeoutInMills``"""
    log_writes: BatchedWrites = field(default_factory=BatchedWrites)
    """Of the logs of coordinators."""
    pending_ack_writes: BatchedWrites = field(default_factory=BatchedWrites)
    """Of the pending acknowledgements of subscriptions."""
    pending_ack_index_lag: int = 500
    """``transactionPendingAckLogIndexMinLag``"""


TxnId = tuple[int, int]
"""Most and least significant bits: the number of the coordinator, and the number there."""


def txn_text(txn: TxnId) -> str:
    """Returns a transaction as Pulsar writes it."""
    return f"({txn[0]},{txn[1]})"
