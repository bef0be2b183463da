"""Recovery: fences a ledger and closes it in place of its writer. All readers then see the same entries.

https://bookkeeper.apache.org/docs/development/protocol
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.io.interfaces import Future, Loop
from magnetar.io.waiting import outcome, settle
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.digests import Digest, master_key
from magnetar.ledger.bookkeeper.frames import Flag, Status, status_name
from magnetar.ledger.bookkeeper.ledger_record import BookiesUnavailable, LedgerRecord, WrongPassword
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, Versioned
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies, Placement
from magnetar.ledger.bookkeeper.question import (
    LastEntries,
    Question,
    ReadingMemory,
    RequestContext,
    StoredEntry,
    all_answered,
)
from magnetar.ledger.interface import DataDamaged, EntryLost, LedgerError, LedgerState
from magnetar.metadata.interface import BadVersion

log = logging.getLogger(__name__)
_TRIES = 20
"""The number of changes of the metadata by other clients after which a recovery fails."""
_WINDOW = 16
"""The number of entries that are read at the same time while a bookie is known to have them."""
_MOST_BYTES = 32 << 20
"""The bytes of entries without an ack quorum at which no further entries are read."""
_FLAGS = Flag.FENCE | Flag.HIGH_PRIORITY
_ADD_FLAGS = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY


class RecoveryParts(NamedTuple):
    """The objects that all recoveries of a store share."""

    loop: Loop
    records: LedgerRecords
    bookie: Callable[[str], Bookie]
    """Returns the connection to a bookie that only recoveries use, for reads that fence, and for adds.
    Answers do not say which request they answer, and the answer to a read that does not fence would not
    prove the fencing."""
    placement: Placement
    memory: ReadingMemory
    fencing: Callable[[int], object]
    """Called before the bookies of a ledger are fenced, because its writer may be in this process."""


async def recovered(ledger_id: int, parts: RecoveryParts) -> Versioned:
    """Returns the metadata of the ledger, closed by this recovery, by its writer, or by another recovery.

    The ledger then has all acknowledged entries, all entries that readers got as confirmed, and
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
    """Sets an open ledger's state to IN_RECOVERY; returns the metadata, which is IN_RECOVERY or CLOSED."""
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
    """One attempt at a recovery, on one version of the metadata."""

    def __init__(self, ledger_id: int, record: LedgerRecord, parts: RecoveryParts) -> None:
        self._ledger_id = ledger_id
        self._record = record
        self._parts = parts
        quorums = record.quorums
        self._enough_missing = quorums.write - quorums.ack + 1
        """If this many bookies of an entry's write set lack the entry, it never had an ack quorum."""
        self._last_of: dict[str, int] = {}
        """The last entry of each bookie that has entries; earlier entries may be missing there."""
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
        """Fences the bookies: from now on the writer gets no acknowledgements."""
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
        """Returns the bookies to which an entry was written, even if they were replaced in the ensemble.

        Bookies that probably have the entry come first: if any bookie has it, it is kept, even if it never
        had an ack quorum.
        """
        ensemble = self._record.ensemble_of(entry_id)
        bookies = [ensemble[index] for index in self._record.write_set(entry_id)]
        bookies.sort(key=lambda bookie_id: self._last_of.get(bookie_id, -1) < entry_id)
        return self._parts.memory.in_order(bookies)

    async def _length_of(self, entry_id: int) -> int:
        """Returns the total payload bytes of all entries up to and including a confirmed one."""
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


class AddParts(NamedTuple):
    """The parameters for adding recovered entries again, so that an ack quorum has every entry before the
    ledger is closed."""

    loop: Loop
    ledger_id: int
    key: bytes
    """The ledger's master key."""
    bookie: Callable[[str], Bookie]
    placement: Placement


class _Adding:
    """An entry that is being added."""

    __slots__ = ("body_bytes", "entry", "stored")

    def __init__(self, entry: StoredEntry) -> None:
        self.entry = entry
        self.body_bytes = len(entry.data)
        self.stored: set[int] = set()
        """The indexes in the current ensemble of bookies that have stored the entry."""


class RecoveryAdds:
    """Adds entries in order, each to its whole write set; an entry counts when an ack quorum has it.

    A failed bookie is replaced for all entries that do not count yet; the change is made in :attr:`record`,
    not in the stored metadata. If no other bookie is available, the remaining bookies suffice while they are
    an ack quorum.

    :param confirmed: the id of the entry before the first entry that is added
    """

    def __init__(self, parts: AddParts, record: LedgerRecord, confirmed: int) -> None:
        self.record = record
        self._known = confirmed
        self.confirmed = confirmed
        """The last entry up to which an ack quorum has all entries."""
        self._loop = parts.loop
        self._ledger_id = parts.ledger_id
        self._key = parts.key
        self._bookie = parts.bookie
        self._placement = parts.placement
        self._digest = Digest(record.digest, record.password)
        self._ensemble = record.segments[-1].ensemble
        self._adding: dict[int, _Adding] = {}
        self._bytes = 0
        self._lost: dict[int, str] = {}
        """By index in the ensemble: the failed bookie, with its status, until it is replaced or given up."""
        self._failed: set[str] = set()
        """All bookies that failed."""
        self._given_up: set[int] = set()
        """The indexes of failed bookies without a replacement."""
        self._sorrow = ""
        """The reason why a failed bookie has no replacement; empty: no search for a replacement has
        failed."""
        self._changing = False
        self._error: LedgerError | None = None
        self._waiter: Future[None] | None = None
        self._most_bytes = 0

    def add(self, entry: StoredEntry) -> None:
        adding = self._adding[entry.said.entry_id] = _Adding(entry)
        self._bytes += adding.body_bytes
        if not self._may_count(adding):
            self._fail(BookiesUnavailable(f"ledger {self._ledger_id} cannot be recovered: {self._sorrow}"))
            return
        self._send(adding, self.record.write_set(entry.said.entry_id))

    async def settled(self, most_bytes: int = -1) -> None:
        """Waits until at most ``most_bytes`` of entries lack an ack quorum; -1: until every entry has its ack
        quorum.

        :raises LedgerError: the entries will never have an ack quorum
        """
        self._most_bytes = most_bytes
        while self._error is None and self._adding and self._bytes > most_bytes:
            self._waiter = self._loop.create_future()
            await outcome(self._loop, self._waiter)
        if self._error is not None:
            raise self._error

    def _send(self, adding: _Adding, indexes: Sequence[int]) -> None:
        """Sends an entry with the last-add-confirmed from the start of the recovery. A later
        last-add-confirmed would be unsafe: it may cover entries on bookies that the stored metadata does not
        name yet. If this recovery failed, the next one might not find entries that readers already got as
        confirmed.
        """
        said, data = adding.entry
        payload = memoryview(data)[said.start :]
        head = self._digest.head(self._ledger_id, said.entry_id, self._known, said.length, payload)
        for index in indexes:
            if index in self._given_up:
                continue
            bookie_id = self._ensemble[index]
            told = partial(self._told, said.entry_id, index, bookie_id)
            bookie = self._bookie(bookie_id)
            bookie.add(self._ledger_id, said.entry_id, self._key, (head, payload), told, _ADD_FLAGS)

    def _told(self, entry_id: int, index: int, bookie_id: str, status: int, _bodies: list[bytes]) -> None:
        adding = self._adding.get(entry_id)
        if adding is None or self._error is not None or self._ensemble[index] != bookie_id:
            # The entry counts already, or the bookie was replaced.
            return
        if status == Status.OK:
            adding.stored.add(index)
            self._advance()
        elif status == Status.UNAUTHORIZED:
            self._fail(
                WrongPassword(
                    f"ledger {self._ledger_id} has another password on bookie {bookie_id}; "
                    "set managedLedgerPassword to it"
                )
            )
        elif index not in self._given_up:
            self._failed.add(bookie_id)
            self._lost[index] = f"{bookie_id}: {status_name(status)}"
            if not self._changing:
                self._changing = True
                # Bookies that fail in the same turn are replaced together.
                self._loop.call_soon(self._change)

    def _advance(self) -> None:
        while self._changing is False:
            following = self._adding.get(self.confirmed + 1)
            if following is None or len(following.stored) < self.record.quorums.ack:
                break
            del self._adding[self.confirmed + 1]
            self._bytes -= following.body_bytes
            self.confirmed += 1
        if self._waiter is not None and (not self._adding or self._bytes <= self._most_bytes):
            settle(self._waiter)

    def _change(self) -> None:
        self._changing = False
        lost, self._lost = self._lost, {}
        if not self._adding or self._error is not None:
            return
        story = ", ".join(lost.values())
        try:
            ensemble = self._placement.replaced(self._ensemble, lost.keys(), self.record.placed, self._failed)
        except NotEnoughBookies as error:
            self._do_without(lost, story, error)
            return
        except DataDamaged as error:
            self._fail(error)
            return
        changed = [index for index, old in enumerate(self._ensemble) if ensemble[index] != old]
        log.warning(
            "bookies replaced in recovery",
            extra={"ledger": self._ledger_id, "first_entry": self.confirmed + 1, "lost": story},
        )
        self._ensemble = ensemble
        self.record = self.record.with_ensemble(self.confirmed + 1, ensemble)
        for entry_id, adding in list(self._adding.items()):
            again = [index for index in self.record.write_set(entry_id) if index in changed]
            adding.stored.difference_update(again)
            self._send(adding, again)
        self._advance()

    def _do_without(self, lost: dict[int, str], story: str, error: NotEnoughBookies) -> None:
        self._given_up |= lost.keys()
        self._sorrow = f"{story}; {error}"
        if not all(self._may_count(adding) for adding in self._adding.values()):
            self._fail(BookiesUnavailable(f"ledger {self._ledger_id} cannot be recovered: {self._sorrow}"))
            return
        log.warning(
            "bookies failed in recovery; no replacements are available",
            extra={"ledger": self._ledger_id, "first_entry": self.confirmed + 1, "lost": story},
        )
        self._advance()

    def _may_count(self, adding: _Adding) -> bool:
        left = set(self.record.write_set(adding.entry.said.entry_id)) - self._given_up
        return len(left | adding.stored) >= self.record.quorums.ack

    def _fail(self, error: LedgerError) -> None:
        self._error = error
        if self._waiter is not None:
            settle(self._waiter)
