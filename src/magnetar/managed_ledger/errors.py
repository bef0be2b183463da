"""Errors of managed ledgers."""

from __future__ import annotations


class ManagedLedgerError(Exception):
    """An operation on a managed ledger or cursor failed; subclasses say how."""


class ManagedLedgerNotFound(ManagedLedgerError):
    """The managed ledger does not exist."""


class ManagedLedgerTerminated(ManagedLedgerError):
    """The managed ledger was terminated; nothing can be appended."""


class ManagedLedgerClosed(ManagedLedgerError):
    """The managed ledger is closed or closing."""


class ManagedLedgerFenced(ManagedLedgerError):
    """Another broker owns the managed ledger."""


class ManagedLedgerOvertaken(ManagedLedgerFenced):
    """Another broker owns the managed ledger; whether the record's last write came before is unknown."""


class ShadowReadOnly(ManagedLedgerError):
    """A shadow of another managed ledger: only that one can be appended to and terminated."""


class CursorNotFound(ManagedLedgerError):
    """The cursor does not exist."""


class MetadataDamaged(ManagedLedgerError):
    """A record in the metadata store cannot be parsed; names the path."""


class ManagedLedgerMoving(ManagedLedgerError):
    """The managed ledger is being exported: it is incomplete here, or was moved; says where."""


class NoOwnLedgers(ManagedLedgerError):
    """The managed ledger is a shadow, and its ledgers belong to its source."""


class OffloadInProgress(ManagedLedgerError):
    """An earlier request to offload ledgers is still in progress."""
