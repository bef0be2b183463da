"""A cursor whose last state was written before ledgers that it had consumed went."""

from __future__ import annotations

from typing import Any

from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import LedgerSummary


class Owner:
    """A managed ledger of which only ledger 10 is left."""

    def __init__(self, entries: int) -> None:
        self.ledgers = LedgerList([LedgerSummary(10, entries)])
        self.reader: Any = None
        self.last_confirmed: Position = (10, entries - 1)

    def mark_delete_moved(self, cursor: Cursor) -> None:
        """Nobody looks."""

    def read_position_moved(self, cursor: Cursor) -> None:
        """Nobody looks."""


def recovered(entries: int, *holes: tuple[int, int, int]) -> Cursor:
    state = AcknowledgedState((7, 0))
    for ledger_id, start, end in holes:
        state.add_range(ledger_id, start, end)
    return Cursor("s", Owner(entries), state, None, 0)


def test_what_it_had_consumed_of_them_counts_no_more() -> None:
    cursor = recovered(0, (7, 2, 3))
    cursor.check()
    assert cursor.backlog() == 0
    cursor = recovered(5, (7, 2, 4))
    cursor.check()
    assert (cursor.backlog(), cursor.read_position) == (5, (10, 0))


def test_what_it_had_consumed_of_others_still_counts() -> None:
    cursor = recovered(5, (7, 2, 4), (10, 1, 3))
    cursor.check()
    assert cursor.backlog() == 3
    assert cursor.is_consumed(10, 1)
    assert not cursor.is_consumed(10, 0)


def test_it_stands_where_it_had_consumed_last() -> None:
    """Who asks for its position is told that it has left a ledger with entries, not that it never began."""
    assert recovered(5, (7, 2, 4)).mark_delete == (7, 0)


def test_batches_of_them_that_were_consumed_in_part_are_gone() -> None:
    state = AcknowledgedState((7, 0))
    state.batches = {(7, 1): 3, (10, 2): 1}
    cursor = Cursor("s", Owner(5), state, None, 0)
    cursor.check()
    assert cursor.state.batches == {(10, 2): 1}
