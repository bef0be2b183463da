"""The custom metadata of a ledger: the names of its managed ledger and cursor."""

from __future__ import annotations


def custom_metadata(managed_ledger: str, cursor: str | None = None) -> dict[str, bytes]:
    """Returns the custom metadata of a ledger of the managed ledger, or of one of its cursors."""
    custom = {
        "component": b"managed-ledger",
        "application": b"pulsar",
        "pulsar/managed-ledger": managed_ledger.encode(),
    }
    if cursor is not None:
        custom["pulsar/cursor"] = cursor.encode()
    return custom
