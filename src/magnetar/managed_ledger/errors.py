"""What can go wrong with a managed ledger."""

from __future__ import annotations


class ManagedLedgerError(Exception):
    """An operation on a managed ledger or cursor failed; subclasses say how."""


class ManagedLedgerNotFound(ManagedLedgerError):
    """There is no managed ledger of that name."""


class ManagedLedgerTerminated(ManagedLedgerError):
    """The managed ledger was ended for ever; nothing can be appended."""


class ManagedLedgerClosed(ManagedLedgerError):
    """It is closed, or closing."""


class ManagedLedgerFenced(ManagedLedgerError):
    """Somebody else has taken the managed ledger over."""


class ManagedLedgerOvertaken(ManagedLedgerFenced):
    """Likewise; and whether the last change of its record was made before is not known."""


class ShadowReadOnly(ManagedLedgerError):
    """It is the shadow of another managed ledger: only that one takes entries, and ends."""


class CursorNotFound(ManagedLedgerError):
    """There is no cursor of that name."""


class MetadataDamaged(ManagedLedgerError):
    """A record in the metadata store cannot be read; names the path."""


class ManagedLedgerMoving(ManagedLedgerError):
    """It is being exported: not whole yet, or somewhere else already; says where."""
