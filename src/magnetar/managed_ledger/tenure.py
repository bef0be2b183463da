"""The time in which one owner may write the records of a managed ledger and of its cursors.

A conditional write compares versions, and a record that is deleted and created again counts from 0: sooner or
later it has the version that a former owner read of the record before it. So each write is also bound to the
tenure of its owner, which begins before the record is read and ends before another broker can own the managed
ledger:

- A broker gives up a bundle when the tenures of all its topics are over and the metadata store has answered
  their writes. Only then, and in the same session, it deletes the node of the bundle.
- When a session ends, ZooKeeper deletes its nodes of bundles and refuses later requests of that session.
- After a deletion the owner's tenure is over, whichever broker creates the record next.
"""

from __future__ import annotations

from magnetar.io.in_progress import InProgress
from magnetar.io.interfaces import Loop
from magnetar.managed_ledger.errors import ManagedLedgerFenced


class Tenure:
    """The tenure of one owner, which ends once and for all."""

    def __init__(self, loop: Loop) -> None:
        self._writes = InProgress(loop)
        self.ended = False

    def end(self) -> None:
        """Ends it: no write begins any more. Idempotent."""
        self.ended = True

    async def over(self) -> None:
        """Ends it; returns when no write is in progress, so that the next owner may begin."""
        self.end()
        await self._writes.none()

    def writing(self) -> InProgress:
        """Returns the context manager for each write.

        :raises ManagedLedgerFenced: the tenure has ended
        """
        if self.ended:
            raise ManagedLedgerFenced("this broker may no longer write the record")
        return self._writes
