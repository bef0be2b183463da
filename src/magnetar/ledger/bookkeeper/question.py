"""Reads of entries, from one bookie after the other until one has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.io.interfaces import Cancellable, Loop
from magnetar.io.waiting import outcome, settle
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.coverage import MISSING
from magnetar.ledger.bookkeeper.digests import Body, Digest
from magnetar.ledger.bookkeeper.frames import Flag, Status, status_name
from magnetar.ledger.bookkeeper.reading_memory import ReadingMemory
from magnetar.ledger.interface import DataDamaged

BATCH_OVERHEAD = 36
"""Bytes that a bookie counts for an answer to a batch read, whatever it contains…"""
BATCH_ENTRY_OVERHEAD = 4
"""… and for each entry's body."""


class StoredEntry(NamedTuple):
    """An entry as stored at a bookie; its digest was checked."""

    said: Body
    data: bytes
    """The payload begins at ``said.start``."""

    @property
    def payload_bytes(self) -> int:
        return len(self.data) - self.said.start


class RequestContext(NamedTuple):
    """What requests for one ledger have in common."""

    loop: Loop
    ledger_id: int
    digest: Digest
    bookie: Callable[[str], Bookie]
    memory: ReadingMemory
    flags: Flag = Flag.NONE
    key: bytes = b""
    """The master key, if the flags fence."""
    speculative_seconds: float = 0.0
    """The delay before the next bookie is asked as well; 0: only after an answer."""
    enough_missing: int = 0
    """This many bookies without the entry end the request; 0: all of them must answer."""


class Question:
    """Reads one entry, or several from one entry on.

    :param bookies: ids, in the order of reading
    :param count: more than one only if each of the bookies has all of them
    :param max_bytes: of an answer with more than one entry
    """

    def __init__(
        self, asking: RequestContext, bookies: Sequence[str], first: int, count: int = 1, max_bytes: int = 0
    ) -> None:
        self.first = first
        self.entries: list[StoredEntry] = []
        """Empty: no bookie had any."""
        self.refused: dict[str, int] = {}
        """The answers of bookies that did not have the entry; ``Status.OK`` for a damaged answer."""
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
        """Returns the outcome of each request, for an error."""
        told = (
            f"{bookie}: {'damaged' if status == Status.OK else status_name(status)}"
            for bookie, status in self.refused.items()
        )
        return ", ".join(told)

    def ask(self, ended: Callable[[], object]) -> None:
        """Calls ``ended`` once, later."""
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
        """Takes the entries up to the first damaged one."""
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
    """Sends the requests at the same time; returns when all have ended."""
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
