"""Ending a ledger in the place of its writer, so that everybody sees the same entries for ever.

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
"""How often somebody else may change the metadata meanwhile."""
_WINDOW = 16
"""Entries that are asked for at once, of those that some bookie is known to have."""
_MOST_BYTES = 32 << 20
"""Of entries that were added again and do not count yet, when others are read."""
_FLAGS = Flag.FENCE | Flag.HIGH_PRIORITY


class RecoveryParts(NamedTuple):
    """What recoveries of a store share."""

    loop: Loop
    records: LedgerRecords
    bookie: Callable[[str], Bookie]
    """A connection that fences: nobody asks anything over it that does not. Answers do not say which it was,
    and the one to a question that does not fence says nothing of the fence."""
    placement: Placement
    memory: ReadingMemory
    fencing: Callable[[int], object]
    """Told when the bookies of a ledger are going to be fenced: its writer may live here."""


async def recovered(ledger_id: int, parts: RecoveryParts) -> Versioned:
    """The metadata of the ledger, closed: by this, by its writer, or by another one that recovers it.

    Every entry that was acknowledged, or that a reader was told is confirmed, is in it. Others may be. A
    failure leaves it IN_RECOVERY, for the next who tries.

    :raises NoSuchLedger: it does not exist
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
            # Closed by another one, or moved on by one that is not done, or by AutoRecovery.
            continue
        log.info(
            "ledger recovered",
            extra={"ledger": ledger_id, "last_entry": closed.last_entry_id, "length": closed.length},
        )
        return ended
    raise LedgerError(f"ledger {ledger_id} cannot be recovered: its metadata keeps changing")


async def _begun(ledger_id: int, parts: RecoveryParts) -> Versioned:
    """In recovery, or closed."""
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
        """So many bookies of a write set without an entry: it never had an ack quorum."""
        self._last_of: dict[str, int] = {}
        """The last entry of each bookie that has any; it need not have all before that."""
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
        """The record with all that is to be kept, to be written.

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
            # What nobody is known to have is looked for one by one.
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
        """From here on the writer gets nothing acknowledged any more."""
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
        """Those up to the first entry that was never written.

        :raises LedgerError: nobody can tell whether one was
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
        """Of the ensemble that the entry was written to, whoever takes it now. First those that may have it:
        what one of them has had better be kept, though nobody needs it."""
        ensemble = self._record.ensemble_of(entry_id)
        bookies = [ensemble[index] for index in self._record.write_set(entry_id)]
        bookies.sort(key=lambda bookie_id: self._last_of.get(bookie_id, -1) < entry_id)
        return self._parts.memory.in_order(bookies)

    async def _length_of(self, entry_id: int) -> int:
        """Bytes of all entries up to one that was confirmed."""
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
