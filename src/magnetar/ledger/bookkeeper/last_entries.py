"""The last entries on the bookies of a ledger's last segment, and what they say was confirmed.

Each entry carries the last-add-confirmed at its sending. A writer may also report it separately when no
further entry follows (``bookkeeperExplicitLacIntervalInMills``).
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
    """Reads the last entry from each bookie of the last segment; with ``Flag.FENCE`` this fences
    the bookies."""

    def __init__(self, asking: RequestContext, record: LedgerRecord) -> None:
        segment = record.segments[-1]
        self.confirmed = segment.first_entry_id - 1
        """All entries up to this one had their ack quorum: a new segment starts behind the last confirmed
        entry."""
        self.confirmed_length: int | None = None
        """Bytes of all entries up to that one, if it is the last entry of a bookie."""
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
        """Whether enough bookies answered that every acknowledged entry is known to one of them."""
        return self._coverage.complete

    def story(self) -> str:
        """Returns the outcome of each request, for an error."""
        return ", ".join(f"{bookie}: {status_name(status)}" for bookie, status in self.answers.items())

    async def ask(self) -> None:
        """Returns when enough bookies have answered, or no more answers can come; later answers count as
        well."""
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
            # A damaged entry does not show what was confirmed. But its bookie is fenced, and will be asked
            # for each entry.
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
