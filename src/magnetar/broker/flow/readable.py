"""Connections whose reading resumes: in the loop's next turn, never within the call that makes room for them.

Completed writes and sent answers are reported in the middle of other work: a ledger goes through all entries
of a commit then, a topic through its subscriptions. Handling input there would publish to the same ledgers
before they are done.
"""

from __future__ import annotations

from magnetar.broker.flow.connection import ClientConnection
from magnetar.io.interfaces import Loop
from magnetar.io.telling import report


class Readable:
    """The queue of those connections: one callback per turn serves all, in the order of arrival."""

    __slots__ = ("_loop", "_row")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._row: dict[ClientConnection, None] = {}

    def add(self, connection: ClientConnection) -> None:
        """Resumes a connection in the next turn; repeated calls have no effect."""
        if not self._row:
            self._loop.call_soon(self._serve)
        self._row[connection] = None

    def _serve(self) -> None:
        row, self._row = self._row, {}
        for connection in row:
            try:
                connection.read_on()
            except Exception as error:  # noqa: BLE001 - reported; the other connections are still read
                report(self._loop, connection.read_on, error)
