"""What the bookies of a ledger's last segment have last, and what that says was confirmed.

Whoever writes a ledger tells with each entry what was confirmed before, and, where it does so
(``bookkeeperExplicitLacIntervalInMills``), what was confirmed when no further entry came.
"""

from __future__ import annotations

from functools import partial

from magnetar.io.waiting import outcome, settle
from magnetar.ledger.bookkeeper.coverage import KNOWN, Coverage
from magnetar.ledger.bookkeeper.frames import Status, status_name
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.question import RequestContext
from magnetar.ledger.bookkeeper.version3 import Operation, read_lac_request
from magnetar.ledger.interface import DataDamaged

_LAST = -1


class LastEntries:
    """Asks each bookie of the last segment for its last entry; with ``Flag.FENCE`` that fences them."""

    def __init__(self, asking: RequestContext, record: LedgerRecord) -> None:
        segment = record.segments[-1]
        self.confirmed = segment.first_entry_id - 1
        """All entries up to this one had their ack quorum: an ensemble changes behind what is confirmed."""
        self.confirmed_length: int | None = None
        """Bytes of all entries up to that one, where a bookie had it as its last."""
        self.highest = self.confirmed
        """The last entry that any of them has."""
        self.last_of: dict[str, int] = {}
        """The last entry of each bookie that has any."""
        self.answers: dict[str, int] = {}
        self._asking = asking
        self._ensemble = segment.ensemble
        self._coverage = Coverage(record.quorums)
        self._settled = asking.loop.create_future()
        self._lengths: dict[int, int] = {}

    @property
    def covered(self) -> bool:
        """Whether so many answered that of each entry that was acknowledged one of them knows."""
        return self._coverage.complete

    def story(self) -> str:
        """What became of the questions, for an error."""
        return ", ".join(f"{bookie}: {status_name(status)}" for bookie, status in self.answers.items())

    async def ask(self) -> None:
        """Returns when enough have answered, or all have or never will; what comes later counts, too."""
        asking = self._asking
        for index, bookie_id in enumerate(self._ensemble):
            told = partial(self._told, index, bookie_id)
            bookie = asking.bookie(bookie_id)
            if bookie.wire.numbered and not asking.flags:
                request = partial(read_lac_request, ledger_id=asking.ledger_id)
                bookie.ask(Operation.READ_LAC, request, told)
            else:
                bookie.read(asking.ledger_id, _LAST, told, asking.flags, asking.key)
        await outcome(asking.loop, self._settled)
        self.confirmed_length = self._lengths.get(self.confirmed)

    def _told(self, index: int, bookie_id: str, status: int, bodies: list[bytes]) -> None:
        self.answers[bookie_id] = status
        self._asking.memory.told(bookie_id, status, batch=False)
        if status in KNOWN:
            # An entry that is damaged says nothing of what was confirmed. But whoever sent it is fenced, and
            # is asked for each entry.
            self._coverage.answered(index)
        if status == Status.OK:
            *apart, last = bodies
            for body in filter(None, apart):
                self._take_told(body)
            if last:
                self._take(bookie_id, last)
        if self.covered or len(self.answers) == len(self._ensemble):
            settle(self._settled)

    def _take_told(self, body: bytes) -> None:
        try:
            confirmed = self._asking.digest.check_told(self._asking.ledger_id, body)
        except DataDamaged:
            return
        self.confirmed = max(self.confirmed, confirmed)

    def _take(self, bookie_id: str, data: bytes) -> None:
        try:
            said = self._asking.digest.check(self._asking.ledger_id, _LAST, data)
        except DataDamaged:
            return
        self.last_of[bookie_id] = said.entry_id
        self._lengths[said.entry_id] = said.length
        self.confirmed = max(self.confirmed, said.last_add_confirmed)
        self.highest = max(self.highest, said.entry_id)
