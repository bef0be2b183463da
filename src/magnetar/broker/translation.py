"""Translation of errors from the layers below the broker into errors for clients."""

from __future__ import annotations

from magnetar.errors import BrokerError, InternalError, InvalidRequest, MetadataFailure, PersistenceFailure
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError, NodeTooLarge


def to_broker_error(error: Exception) -> BrokerError:
    """Returns the error for clients that corresponds to an error of the layers below."""
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, NodeTooLarge):
        return InvalidRequest(str(error))
    if isinstance(error, MetadataError):
        return MetadataFailure(f"Metadata store: {error}")
    if isinstance(error, LedgerError | ManagedLedgerError):
        return PersistenceFailure(f"Storage: {error}")
    return InternalError(f"Internal error: {type(error).__name__}")
