"""Reads entries from one bookie after another, reads the last entries of ledgers, and remembers which bookies
did not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.io.interfaces import Cancellable, Clock, Loop
from magnetar.io.waiting import outcome, settle
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.digests import Body, Digest
from magnetar.ledger.bookkeeper.frames import Flag, Status, status_name
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.wire import Operation, read_lac_request
from magnetar.ledger.interface import DataDamaged, Quorums

BATCH_OVERHEAD = 36
"""The bytes that a bookie counts for each answer to a batch read."""
BATCH_ENTRY_OVERHEAD = 4
"""The bytes that a bookie counts for each entry in an answer to a batch read, besides the entry itself."""
KNOWN = (Status.OK, Status.NO_ENTRY, Status.NO_LEDGER)
"""Conclusive answers to a fencing read. After any other status, it is unknown which entries the bookie has,
and whether it accepts more entries.
"""
MISSING = (Status.NO_ENTRY, Status.NO_LEDGER)
_LAST = -1
_LAST_SECONDS = 10.0
"""The time in seconds for which a bookie that did not answer is asked after all others."""
_SINGLES_SECONDS = 60.0
"""The time in seconds for which a bookie that may have closed its connection because of a batch read gets
only reads of single entries."""
_UNKNOWN = (Status.LOST, Status.BAD_REQUEST, Status.BAD_VERSION)


class StoredEntry(NamedTuple):
    """An entry as stored by a bookie, with a verified digest."""

    said: Body
    data: bytes
    """The stored body; the payload begins at ``said.start``."""

    @property
    def payload_bytes(self) -> int:
        return len(self.data) - self.said.start


class RequestContext(NamedTuple):
    """The common parameters of requests for one ledger."""

    loop: Loop
    ledger_id: int
    digest: Digest
    bookie: Callable[[str], Bookie]
    memory: ReadingMemory
    flags: Flag = Flag.NONE
    key: bytes = b""
    """The ledger's master key, if the flags contain FENCE; otherwise empty."""
    speculative_seconds: float = 0.0
    """The delay in seconds before the next bookie is asked as well; 0: the next bookie is asked only after an
    answer."""
    enough_missing: int = 0
    """The number of bookies without the entry at which a read ends without a result; 0: a read ends only when
    all bookies have answered."""


class Question:
    """Reads one entry, or several consecutive ones.

    :param bookies: the ids of the bookies, in the order of reading
    :param count: the number of entries; more than one only if each bookie has all of them
    :param max_bytes: the maximum size of an answer with more than one entry
    """

    def __init__(
        self, asking: RequestContext, bookies: Sequence[str], first: int, count: int = 1, max_bytes: int = 0
    ) -> None:
        self.first = first
        self.entries: list[StoredEntry] = []
        """The entries that were read; empty: no bookie returned an entry."""
        self.refused: dict[str, int] = {}
        """By bookie id: the status of each bookie that did not return the first entry; ``Status.OK`` if the
        bookie returned a damaged entry."""
        self.damage: DataDamaged | None = None
        self._asking = asking
        self._left = list(bookies)
        self._count = count
        self._max_bytes = max_bytes
        self._under_way = 0
        self._timer: Cancellable | None = None
        self._ended: Callable[[], object] | None = None

    @property
    def missing(self) -> int:
        """The number of bookies that do not have the entry."""
        return sum(status in MISSING for status in self.refused.values())

    def story(self) -> str:
        """Returns the outcome of each request, for the text of an error."""
        told = (
            f"{bookie}: {'damaged' if status == Status.OK else status_name(status)}"
            for bookie, status in self.refused.items()
        )
        return ", ".join(told)

    def ask(self, ended: Callable[[], object]) -> None:
        """Starts the requests; ``ended`` is called once when the read has ended, never within this call."""
        self._ended = ended
        self._ask_next()

    def _ask_next(self) -> None:
        asking = self._asking
        bookie_id = self._left.pop(0)
        bookie = asking.bookie(bookie_id)
        self._under_way += 1
        batch = self._count > 1 and not bookie.wire.numbered and asking.memory.takes_batches(bookie_id)
        told = partial(self._told, bookie_id, batch)
        if batch:
            bookie.read_batch(asking.ledger_id, self.first, self._count, self._max_bytes, told)
        else:
            bookie.read(asking.ledger_id, self.first, told, asking.flags, asking.key)
        if asking.speculative_seconds and self._left:
            self._timer = asking.loop.call_later(asking.speculative_seconds, self._ask_too)

    def _ask_too(self) -> None:
        self._timer = None
        if self._ended is not None and self._left:
            self._ask_next()

    def _told(self, bookie_id: str, batch: bool, status: int, bodies: list[bytes]) -> None:
        self._under_way -= 1
        self._asking.memory.told(bookie_id, status, batch=batch)
        if self._ended is None:
            return
        if status == Status.OK:
            self._take(bookie_id, bodies)
        if self.entries:
            self._end()
            return
        self.refused[bookie_id] = status
        enough = self._asking.enough_missing
        if enough and self.missing >= enough:
            self._end()
        elif self._left:
            self._stop_timer()
            self._ask_next()
        elif not self._under_way:
            self._end()

    def _take(self, bookie_id: str, bodies: list[bytes]) -> None:
        """Takes the entries in an answer that come before the first damaged entry."""
        asking = self._asking
        try:
            for number, data in enumerate(bodies[: self._count]):
                said = asking.digest.check(asking.ledger_id, self.first + number, data)
                self.entries.append(StoredEntry(said, data))
        except DataDamaged as error:
            self.damage = DataDamaged(f"bookie {bookie_id}: {error}")

    def _end(self) -> None:
        self._stop_timer()
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def all_answered(loop: Loop, questions: Sequence[Question]) -> None:
    """Starts all questions at the same time; returns when all have ended."""
    left = len(questions)
    waiter = loop.create_future()

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            settle(waiter)

    for question in questions:
        question.ask(ended)
    if questions:
        await outcome(loop, waiter)


class Coverage:
    """The bookies of one ensemble that answered. A write set is covered when the bookies that have not
    answered are fewer than an ack quorum, because every acknowledged entry is then on a bookie that
    answered."""

    def __init__(self, quorums: Quorums) -> None:
        self._quorums = quorums
        self._unanswered = set(range(quorums.ensemble))

    def answered(self, index: int) -> None:
        self._unanswered.discard(index)

    @property
    def complete(self) -> bool:
        """Whether every write set is covered."""
        size = self._quorums.ensemble
        return all(self._unanswered_of(first) < self._quorums.ack for first in range(size))

    def _unanswered_of(self, first: int) -> int:
        quorums = self._quorums
        write_set = ((first + step) % quorums.ensemble for step in range(quorums.write))
        return sum(index in self._unanswered for index in write_set)


class LastEntries:
    """Reads the last entry from each bookie of the last segment; with ``Flag.FENCE`` this fences the bookies.

    Each entry contains the last-add-confirmed at the time of its sending. A writer may also report it
    separately when no further entry follows (``bookkeeperExplicitLacIntervalInMills``).
    """

    def __init__(self, asking: RequestContext, record: LedgerRecord) -> None:
        segment = record.segments[-1]
        self.confirmed = segment.first_entry_id - 1
        """All entries up to this one are known to be confirmed. Initially it is the entry before the segment,
        because a segment starts after the last confirmed entry."""
        self.confirmed_length: int | None = None
        """The total bytes of all entries up to ``confirmed``; None: no bookie returned this entry as its
        last."""
        self.highest = self.confirmed
        """The highest entry id that any bookie returned; initially :attr:`confirmed`."""
        self.last_of: dict[str, int] = {}
        """The last entry of each bookie that has entries."""
        self.answers: dict[str, int] = {}
        self._asking = asking
        self._ensemble = segment.ensemble
        self._coverage = Coverage(record.quorums)
        self._settled = asking.loop.create_future()
        self._lengths: dict[int, int] = {}

    @property
    def covered(self) -> bool:
        """Whether so many bookies answered that each acknowledged entry is known to one of them."""
        return self._coverage.complete

    def story(self) -> str:
        """Returns the outcome of each request, for the text of an error."""
        return ", ".join(f"{bookie}: {status_name(status)}" for bookie, status in self.answers.items())

    async def ask(self) -> None:
        """Asks all bookies; returns when enough have answered, or no more answers can come. Later answers
        still count."""
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


class ReadingMemory:
    """The bookies that answer batch reads; shared by all readers of a store.

    A bookie before 4.17 closes the connection at a batch read, but so does any bookie that stops. A bookie
    that never answered a batch read counts as old when it refuses a batch read, or closes the connection at a
    second batch read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_until: dict[str, float] = {}
        self._knows_batches: set[str] = set()
        self._singles_until: dict[str, float] = {}
        self._old: set[str] = set()

    def in_order(self, bookies: Sequence[str]) -> list[str]:
        """Returns the bookies in the order of reading: bookies that recently did not answer come last."""
        if not self._last_until:
            return list(bookies)
        now = self._clock.monotonic()
        return sorted(bookies, key=lambda bookie: self._last_until.get(bookie, now) > now)

    def takes_batches(self, bookie: str) -> bool:
        if bookie in self._knows_batches:
            return True
        until = self._singles_until.get(bookie, 0.0)
        return bookie not in self._old and until <= self._clock.monotonic()

    def told(self, bookie: str, status: int, *, batch: bool) -> None:
        """Records the outcome of a request."""
        now = self._clock.monotonic()
        if status in (Status.LOST, Status.TIMED_OUT):
            self._last_until[bookie] = now + _LAST_SECONDS
        else:
            self._last_until.pop(bookie, None)
        if not batch:
            return
        if status == Status.OK:
            self._knows_batches.add(bookie)
        elif status in _UNKNOWN and bookie not in self._knows_batches:
            if status != Status.LOST or 0 < self._singles_until.get(bookie, 0.0) <= now:
                self._old.add(bookie)
            self._singles_until[bookie] = now + _SINGLES_SECONDS
