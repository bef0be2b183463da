"""Reports to bookies what is confirmed of ledgers to which nothing is added for a while.

An entry carries the last-add-confirmed at the time of its sending, so readers of an open ledger learn that
the last entry is confirmed only from the next one, or from a separate request
(``bookkeeperExplicitLacIntervalInMills``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from magnetar.io.interfaces import Cancellable, Loop
from magnetar.ledger.bookkeeper.bookies import Bookies, Use
from magnetar.ledger.bookkeeper.digests import Digest, master_key
from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.bookkeeper.version3 import Operation, write_lac_request
from magnetar.ledger.bookkeeper.writer import BookKeeperWriter


class ExplicitLac:
    """Goes through all writers periodically, until it is stopped.

    :param seconds: the period
    """

    def __init__(
        self, loop: Loop, bookies: Bookies, writers: Callable[[], Iterable[BookKeeperWriter]], seconds: float
    ) -> None:
        self._loop = loop
        self._bookies = bookies
        self._writers = writers
        self._seconds = seconds
        self._told: dict[int, int] = {}
        """What was last reported, by ledger."""
        self._timer: Cancellable = loop.call_later(seconds, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._look)
        before, self._told = self._told, {}
        for writer in self._writers():
            known, confirmed = before.get(writer.ledger_id, -1), writer.last_add_confirmed
            self._told[writer.ledger_id] = confirmed
            if confirmed > known and confirmed == writer.last_appended:
                self._tell(writer, confirmed)

    def _tell(self, writer: BookKeeperWriter, confirmed: int) -> None:
        record, ledger_id = writer.record, writer.ledger_id
        request = partial(
            write_lac_request,
            ledger_id=ledger_id,
            confirmed=confirmed,
            key=master_key(record.password),
            body=Digest(record.digest, record.password).told(ledger_id, confirmed),
        )
        for bookie_id in record.segments[-1].ensemble:
            self._bookies.bookie(bookie_id, Use.ASKING).ask(
                Operation.WRITE_LAC, request, partial(self._answered, ledger_id, confirmed)
            )

    def _answered(self, ledger_id: int, confirmed: int, status: int, _bodies: list[bytes]) -> None:
        if status != Status.OK and self._told.get(ledger_id) == confirmed:
            # The next round tries again.
            del self._told[ledger_id]
