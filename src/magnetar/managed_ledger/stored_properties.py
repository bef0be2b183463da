"""Reads the state in a cursor's ledger without owning the cursor."""

from __future__ import annotations

from magnetar.ledger.interface import LedgerStore, NoSuchLedger
from magnetar.managed_ledger.records import decode_position


async def stored_properties(store: LedgerStore, ledger_id: int, path: str) -> dict[str, int] | None:
    """Returns the properties in the newest state in a cursor's ledger; None if the ledger does not exist.

    The ledger is not fenced. A ledger without a state has no properties.

    :raises LedgerError: it cannot be read
    """
    try:
        reader = await store.open(ledger_id, recover=False)
    except NoSuchLedger:
        return None
    try:
        last = await reader.last_add_confirmed()
        runs = await reader.read(last, last, 1) if last >= 0 else []
    except NoSuchLedger:
        return None
    finally:
        reader.close()
    return decode_position(runs[0].entry(0), f"{path} ledger {ledger_id}:{last}")[1] if runs else {}
