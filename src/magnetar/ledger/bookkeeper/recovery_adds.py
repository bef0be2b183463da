"""Adds again what recovery has found, so that an ack quorum has it before the ledger is closed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.io.interfaces import Future, Loop
from magnetar.io.waiting import outcome, settle
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.digests import Digest
from magnetar.ledger.bookkeeper.failures import BookiesUnavailable, WrongPassword
from magnetar.ledger.bookkeeper.frames import Flag, Status, status_name
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies, Placement
from magnetar.ledger.bookkeeper.question import StoredEntry
from magnetar.ledger.interface import DataDamaged, LedgerError

log = logging.getLogger(__name__)

_FLAGS = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY


class AddParts(NamedTuple):
    loop: Loop
    ledger_id: int
    key: bytes
    """The ledger's master key."""
    bookie: Callable[[str], Bookie]
    placement: Placement


class _Adding:
    """One entry in progress."""

    __slots__ = ("body_bytes", "entry", "stored")

    def __init__(self, entry: StoredEntry) -> None:
        self.entry = entry
        self.body_bytes = len(entry.data)
        self.stored: set[int] = set()
        """Indices of the bookies in the present ensemble that have stored it."""


class RecoveryAdds:
    """Adds entries in order, each to its whole write set; an entry counts when an ack quorum has it.

    A failed bookie is replaced for all entries that do not count yet, in :attr:`record` only. If there is no
    other bookie, the remaining ones suffice as long as they are an ack quorum.

    :param confirmed: the entry before the first that is added
    """

    def __init__(self, parts: AddParts, record: LedgerRecord, confirmed: int) -> None:
        self.record = record
        self._known = confirmed
        self.confirmed = confirmed
        """All entries up to this one count."""
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
        """The failures of bookies of the ensemble, by index."""
        self._failed: set[str] = set()
        """All bookies that failed."""
        self._given_up: set[int] = set()
        """Indices of failed bookies without a replacement."""
        self._sorrow = ""
        """Why there is no replacement."""
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
        """Returns when at most ``most_bytes`` do not count yet; -1: when all entries do.

        :raises LedgerError: they never will
        """
        self._most_bytes = most_bytes
        while self._error is None and self._adding and self._bytes > most_bytes:
            self._waiter = self._loop.create_future()
            await outcome(self._loop, self._waiter)
        if self._error is not None:
            raise self._error

    def _send(self, adding: _Adding, indexes: Sequence[int]) -> None:
        """Sends an entry with the last-add-confirmed of the start of the recovery. Later entries may count on
        bookies that no metadata names yet: if this recovery fails, another one might decide differently,
        after readers were told."""
        said, data = adding.entry
        payload = memoryview(data)[said.start :]
        head = self._digest.head(self._ledger_id, said.entry_id, self._known, said.length, payload)
        for index in indexes:
            if index in self._given_up:
                continue
            bookie_id = self._ensemble[index]
            told = partial(self._told, said.entry_id, index, bookie_id)
            bookie = self._bookie(bookie_id)
            bookie.add(self._ledger_id, said.entry_id, self._key, (head, payload), told, _FLAGS)

    def _told(self, entry_id: int, index: int, bookie_id: str, status: int, _bodies: list[bytes]) -> None:
        adding = self._adding.get(entry_id)
        if adding is None or self._error is not None or self._ensemble[index] != bookie_id:
            # It counts already, or the bookie was replaced.
            return
        if status == Status.OK:
            adding.stored.add(index)
            self._advance()
        elif status == Status.UNAUTHORIZED:
            self._fail(WrongPassword(f"ledger {self._ledger_id} has another password on bookie {bookie_id}"))
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
