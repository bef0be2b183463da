"""Recovery: ends a ledger in place of its writer, so that all readers see the same entries forever.

https://bookkeeper.apache.org/docs/development/protocol
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from magnetar.io.interfaces import Loop
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.digests import Digest, master_key
from magnetar.ledger.bookkeeper.failures import BookiesUnavailable, WrongPassword
from magnetar.ledger.bookkeeper.frames import Flag, Status
from magnetar.ledger.bookkeeper.last_entries import LastEntries
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, Versioned
from magnetar.ledger.bookkeeper.placement import Placement
from magnetar.ledger.bookkeeper.question import Question, RequestContext, all_answered
from magnetar.ledger.bookkeeper.reading_memory import ReadingMemory
from magnetar.ledger.bookkeeper.recovery_adds import AddParts, RecoveryAdds
from magnetar.ledger.interface import EntryLost, LedgerError, LedgerState
from magnetar.metadata.interface import BadVersion

log = logging.getLogger(__name__)

_TRIES = 20
"""How often the metadata may change during a recovery."""
_WINDOW = 16
"""Entries that are read at the same time, while a bookie is known to have them."""
_MOST_BYTES = 32 << 20
"""Bytes of entries that were added again and have no ack quorum yet, when further entries are read."""
_FLAGS = Flag.FENCE | Flag.HIGH_PRIORITY


class RecoveryParts(NamedTuple):
    """What recoveries of a store share."""

    loop: Loop
    records: LedgerRecords
    bookie: Callable[[str], Bookie]
    """A connection for fencing requests only. Answers do not name their request, and the answer to one that
    does not fence would not prove the fencing."""
    placement: Placement
    memory: ReadingMemory
    fencing: Callable[[int], object]
    """Called before the bookies of a ledger are fenced: its writer may be in this process."""


async def recovered(ledger_id: int, parts: RecoveryParts) -> Versioned:
    """Returns the metadata of the ledger, closed by this recovery, by its writer, or by another recovery.

    The ledger then has every entry that was acknowledged, or that a reader was told is confirmed, and
    possibly more. After a failure it stays IN_RECOVERY, until the next attempt.

    :raises NoSuchLedger: the ledger does not exist
    :raises LedgerError: too few bookies answer
    """
    for _ in range(_TRIES):
        begun = await _begun(ledger_id, parts)
        if begun.record.state is LedgerState.CLOSED:
            return begun
        parts.fencing(ledger_id)
        closed = await _Recovery(ledger_id, begun.record, parts).closed()
        try:
            ended = await parts.records.write(ledger_id, closed, begun.version)
        except BadVersion:
            # Closed by another recovery, changed by an unfinished one, or by AutoRecovery.
            continue
        log.info(
            "ledger recovered",
            extra={"ledger": ledger_id, "last_entry": closed.last_entry_id, "length": closed.length},
        )
        return ended
    raise LedgerError(f"ledger {ledger_id} cannot be recovered: its metadata keeps changing")


async def _begun(ledger_id: int, parts: RecoveryParts) -> Versioned:
    """Returns the metadata, in recovery or closed."""
    for _ in range(_TRIES):
        found = await parts.records.read(ledger_id)
        if found.record.state is not LedgerState.OPEN:
            return found
        try:
            return await parts.records.write(ledger_id, found.record.in_recovery(), found.version)
        except BadVersion:
            continue
    raise LedgerError(f"ledger {ledger_id} cannot be recovered: its metadata keeps changing")


class _Recovery:
    """One attempt, on one version of the metadata."""

    def __init__(self, ledger_id: int, record: LedgerRecord, parts: RecoveryParts) -> None:
        self._ledger_id = ledger_id
        self._record = record
        self._parts = parts
        quorums = record.quorums
        self._enough_missing = quorums.write - quorums.ack + 1
        """If this many bookies of a write set lack an entry, it never had an ack quorum."""
        self._last_of: dict[str, int] = {}
        """The last entry of each bookie that has any; earlier ones may be missing there."""
        self._asking = RequestContext(
            parts.loop,
            ledger_id,
            Digest(record.digest, record.password),
            parts.bookie,
            parts.memory,
            _FLAGS,
            master_key(record.password),
            enough_missing=self._enough_missing,
        )

    async def closed(self) -> LedgerRecord:
        """Returns the record that closes the ledger, with all entries to keep; the caller writes it.

        :raises LedgerError: too few bookies answer
        """
        parts = self._parts
        last = await self._fence()
        # Bookies that answer later may know of more; they are asked for each entry.
        self._last_of = last.last_of
        confirmed, length = last.confirmed, last.confirmed_length
        add_parts = AddParts(parts.loop, self._ledger_id, self._asking.key, parts.bookie, parts.placement)
        adds = RecoveryAdds(add_parts, self._record, confirmed)
        following = confirmed + 1
        while True:
            # Entries that no bookie is known to have are looked for one by one.
            count = min(_WINDOW, last.highest - following + 1) if following <= last.highest else 1
            found = await self._read(following, count)
            for question in found:
                [entry] = question.entries
                adds.add(entry)
                length = entry.said.length
            following += len(found)
            if len(found) < count:
                break
            await adds.settled(_MOST_BYTES)
        await adds.settled()
        if length is None:
            length = await self._length_of(confirmed)
        return adds.record.closed(adds.confirmed, length)

    async def _fence(self) -> LastEntries:
        """Fences the bookies: from here on the writer gets no acknowledgements."""
        asking = self._asking._replace(flags=Flag.FENCE)
        last = LastEntries(asking, self._record)
        await last.ask()
        if Status.UNAUTHORIZED in last.answers.values():
            raise WrongPassword(
                f"ledger {self._ledger_id} has another password on its bookies: {last.story()}"
            )
        if not last.covered:
            raise BookiesUnavailable(
                f"ledger {self._ledger_id} cannot be fenced: too few of its bookies answer: {last.story()}"
            )
        return last

    async def _read(self, first: int, count: int) -> list[Question]:
        """Reads entries up to the first one that was never written.

        :raises LedgerError: it cannot be determined whether an entry was written
        """
        questions = [
            Question(self._asking, self._bookies(entry_id), entry_id)
            for entry_id in range(first, first + count)
        ]
        await all_answered(self._parts.loop, questions)
        for number, question in enumerate(questions):
            if not question.entries:
                if question.missing < self._enough_missing:
                    self._give_up(question)
                return questions[:number]
        return questions

    def _bookies(self, entry_id: int) -> list[str]:
        """Returns the bookies of the ensemble that the entry was written to, whichever has their place now.
        Those that may have the entry come first: an entry that one of them has is better kept, although it
        need not be."""
        ensemble = self._record.ensemble_of(entry_id)
        bookies = [ensemble[index] for index in self._record.write_set(entry_id)]
        bookies.sort(key=lambda bookie_id: self._last_of.get(bookie_id, -1) < entry_id)
        return self._parts.memory.in_order(bookies)

    async def _length_of(self, entry_id: int) -> int:
        """Returns the bytes of all entries up to a confirmed one."""
        if entry_id < 0:
            return 0
        asking = self._asking._replace(enough_missing=0)
        question = Question(asking, self._bookies(entry_id), entry_id)
        await all_answered(self._parts.loop, [question])
        if not question.entries:
            self._give_up(question)
        return question.entries[0].said.length

    def _give_up(self, question: Question) -> None:
        reason = (
            f"ledger {self._ledger_id} cannot be recovered: it is unknown whether entry {question.first} "
            f"was written: {question.story()}"
        )
        if question.missing == len(question.refused):
            raise EntryLost(reason)
        raise question.damage if question.damage is not None else BookiesUnavailable(reason)
