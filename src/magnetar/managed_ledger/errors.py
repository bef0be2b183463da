"""Errors of managed ledgers."""

from __future__ import annotations


class ManagedLedgerError(Exception):
    """An operation on a managed ledger or cursor failed; subclasses give the reason."""


class ManagedLedgerNotFound(ManagedLedgerError):
    """The managed ledger does not exist."""


class ManagedLedgerTerminated(ManagedLedgerError):
    """The managed ledger was terminated; nothing can be appended."""


class ManagedLedgerClosed(ManagedLedgerError):
    """The managed ledger is closed or closing."""


class ManagedLedgerFenced(ManagedLedgerError):
    """Another broker owns the managed ledger."""


class ManagedLedgerOvertaken(ManagedLedgerFenced):
    """Another broker has taken over the managed ledger; it is unknown whether the last write of the record
    took effect before that."""


class ShadowReadOnly(ManagedLedgerError):
    """The managed ledger is a shadow; only its source accepts appends and can be terminated."""


class CursorNotFound(ManagedLedgerError):
    """The cursor does not exist."""


class MetadataDamaged(ManagedLedgerError):
    """A record in the metadata store cannot be parsed; the message names its path."""


class ManagedLedgerMoving(ManagedLedgerError):
    """The managed ledger is incompletely imported, or was exported; the message names the other stores."""


class NoOwnLedgers(ManagedLedgerError):
    """The managed ledger is a shadow, and its ledgers belong to its source."""


class OffloadInProgress(ManagedLedgerError):
    """An earlier request to offload ledgers is still in progress."""
