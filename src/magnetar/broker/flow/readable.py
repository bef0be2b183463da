"""Connections that may be read on: they are, in the loop's next turn, never by whoever makes room for them.

What the disk has taken, or an answer that has gone out, is told in the middle of the work of others: a ledger
goes through all entries of a commit then, a topic through its subscriptions. Taking input apart there would
publish to the same ledgers before they are done.
"""

from __future__ import annotations

from magnetar.broker.flow.connection import ClientConnection
from magnetar.io.interfaces import Loop
from magnetar.io.telling import report


class Readable:
    """The row of those connections: one call of the loop a turn serves all, in the order they came."""

    __slots__ = ("_loop", "_row")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._row: dict[ClientConnection, None] = {}

    def add(self, connection: ClientConnection) -> None:
        """Has a connection read on in the next turn; once, however often it is said."""
        if not self._row:
            self._loop.call_soon(self._serve)
        self._row[connection] = None

    def _serve(self) -> None:
        row, self._row = self._row, {}
        for connection in row:
            try:
                connection.read_on()
            except Exception as error:  # noqa: BLE001 - reported; the others are read on all the same
                report(self._loop, connection.read_on, error)
