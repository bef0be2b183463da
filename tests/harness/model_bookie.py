"""A model of a bookie: what it keeps, whom it lets add, and how it answers, in memory and in virtual time.

With a journal that takes its time, what it was told is read by others at once, as of a real one, but answered
when it is durable; a crash takes the rest.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import model_bookie_version3

from magnetar.io.interfaces import Loop, Transport

OK, NO_LEDGER, NO_ENTRY, BAD_REQUEST, UNAUTHORIZED, FENCED, READ_ONLY = 0, 1, 2, 100, 102, 104, 105
BAD_VERSION = 103
NEWEST_VERSION = 2
ADD, READ, BATCH_READ = 1, 2, 7
_SHORTEST = 4
_LEAST = {ADD: 40, READ: 20, BATCH_READ: 40}
"""Bytes of a request, without its length."""
FENCE, RECOVERY_ADD = 1, 2
MAX_BATCH_BYTES = 5 * 1024 * 1024


@dataclass
class ModelLedger:
    key: bytes
    fenced: bool = False
    entries: dict[int, bytes] = field(default_factory=dict)


class Write(NamedTuple):
    """What goes into the journal: an entry, or that a ledger is fenced."""

    ledger_id: int
    key: bytes
    entry_id: int = -1
    body: bytes | None = None

    def apply(self, ledgers: dict[int, ModelLedger]) -> None:
        ledger = ledgers.setdefault(self.ledger_id, ModelLedger(self.key))
        if self.body is None:
            ledger.fenced = True
        else:
            ledger.entries[self.entry_id] = self.body


class ModelBookie:
    """Keeps what it was given over connections, and over its own restarts."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.ledgers: dict[int, ModelLedger] = {}
        self.journal_delay: Callable[[], float] | None = None
        """Draws the seconds that a write to the journal takes; None: none, and it is never lost."""
        self._journal: deque[tuple[Write, Callable[[], None]]] = deque()
        self._durable: dict[int, ModelLedger] = {}
        self._idle_at = 0.0
        self.connections: list[ModelBookieConnection] = []
        self.read_only = False
        self.silent = False
        """Requests are not answered, now or later."""
        self.knows_batches = True
        """Else a batch read ends the connection, as before BookKeeper 4.17."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.told: dict[int, bytes] = {}
        """What was confirmed last of each ledger, as it was told apart from entries."""
        self.disk = (1 << 40, 1 << 39)
        """Bytes it has, and bytes that are free."""
        self.requests = 0

    def factory(self) -> ModelBookieConnection:
        return ModelBookieConnection(self)

    def drop_connections(self) -> None:
        for connection in list(self.connections):
            connection.transport.abort()

    def crash(self, loop: Loop, written: int = 0) -> None:
        """Lives on in another loop, with what was durable.

        :param written: so many of the writes that were under way are durable all the same, unanswered
        """
        if self.journal_delay is not None:
            for write, _ in list(self._journal)[:written]:
                write.apply(self._durable)
            self.ledgers = {
                number: ModelLedger(ledger.key, ledger.fenced, dict(ledger.entries))
                for number, ledger in self._durable.items()
            }
        self._journal.clear()
        self.connections.clear()
        self.loop, self._idle_at = loop, 0.0

    @property
    def unwritten(self) -> int:
        """Writes to the journal that are under way."""
        return len(self._journal)

    def has_durably(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a crash would leave it an entry."""
        ledger = (self.ledgers if self.journal_delay is None else self._durable).get(ledger_id)
        return ledger is not None and entry_id in ledger.entries

    def drop(self, ledger_id: int) -> bool:
        """Forgets a ledger, unless something of it is yet to be written; whether it had it."""
        if any(write.ledger_id == ledger_id for write, _ in self._journal):
            return False
        self._durable.pop(ledger_id, None)
        return self.ledgers.pop(ledger_id, None) is not None

    def write(self, write: Write, done: Callable[[], None]) -> None:
        """Calls ``done`` when it is durable; writes come to their end in order."""
        write.apply(self.ledgers)
        if self.journal_delay is None:
            done()
            return
        self._journal.append((write, done))
        self._idle_at = max(self._idle_at, self.loop.time() + self.journal_delay())
        self.loop.call_at(self._idle_at, self._written)

    def _written(self) -> None:
        write, done = self._journal.popleft()
        write.apply(self._durable)
        done()

    def add(self, flags: int, key: bytes, body: bytes) -> tuple[int, int, int]:
        """Status, ledger id, entry id; what is good has yet to be written."""
        ledger_id, entry_id = struct.unpack_from(">qq", body)
        if ledger_id >= 0 and (entry_id < 0 or len(body) == 16):
            # It knows the ledger from now on.
            self.ledgers.setdefault(ledger_id, ModelLedger(key))
        if ledger_id < 0 or entry_id < 0 or len(body) == 16:
            return BAD_REQUEST, ledger_id, entry_id
        if self.read_only:
            return READ_ONLY, ledger_id, entry_id
        ledger = self.ledgers.get(ledger_id, ModelLedger(key))
        if ledger.key != key:
            return UNAUTHORIZED, ledger_id, entry_id
        if ledger.fenced and not flags & RECOVERY_ADD:
            return FENCED, ledger_id, entry_id
        return OK, ledger_id, entry_id

    def read(self, flags: int, ledger_id: int, entry_id: int, key: bytes) -> tuple[int, bytes]:
        """Status, and the body; the fence has yet to be written."""
        if ledger_id < 0:
            return BAD_REQUEST, b""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            return (NO_ENTRY if flags & FENCE else NO_LEDGER), b""
        if flags & FENCE and ledger.key != key:
            return UNAUTHORIZED, b""
        entries = ledger.entries
        found = entries.get(max(entries, default=-1) if entry_id == -1 else entry_id)
        return (NO_ENTRY, b"") if found is None else (OK, found)

    def read_batch(self, ledger_id: int, first: int, count: int, max_bytes: int) -> tuple[int, bytes]:
        if ledger_id not in self.ledgers:
            return NO_LEDGER, b""
        entries, out, used = self.ledgers[ledger_id].entries, bytearray(), 36
        entry_id = first
        while count <= 0 or entry_id < first + count:
            # As it reads single ones: -1 is the last; it goes on with 0 behind it.
            body = entries.get(max(entries, default=-1) if entry_id == -1 else entry_id)
            if body is None:
                break
            used += 4 + len(body)
            if out and used > min(max_bytes, MAX_BATCH_BYTES):
                break
            out += struct.pack(">I", len(body)) + body
            entry_id += 1
        return (OK, bytes(out)) if out else (NO_ENTRY, b"")


class ModelBookieConnection:
    """A ``StreamProtocol``: the bookie's end."""

    def __init__(self, bookie: ModelBookie) -> None:
        self._bookie = bookie
        self._received = b""
        self._only_version_2 = False
        self.transport: Any = None

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        self._bookie.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (length,) = struct.unpack_from(">i", self._received)
            if length < _SHORTEST:
                self._close()
                return
            if len(self._received) < 4 + length:
                return
            frame, self._received = self._received[4 : 4 + length], self._received[4 + length :]
            self._bookie.requests += 1
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        bookie = self._bookie
        if frame[0] == model_bookie_version3.FIRST_BYTE:
            if self._only_version_2 or not model_bookie_version3.take(bookie, frame, self._answer):
                self._close()
            return
        self._only_version_2 = True
        version, operation, flags = struct.unpack_from(">BBH", frame)
        known = (ADD, READ, BATCH_READ) if bookie.knows_batches else (ADD, READ)
        keyless = operation == READ and flags & FENCE and len(frame) < 40
        if not version or operation not in known or keyless or len(frame) < _LEAST[operation]:
            self._close()
            return
        if version > NEWEST_VERSION:
            ids = struct.unpack_from(">qq", frame, 24 if operation == ADD else 4)
            self._answer(struct.pack(">BBHiqq", version, operation, 0, BAD_VERSION, *ids))
            return
        if operation == ADD:
            key, body = frame[4:24], frame[24:]
            status, ledger_id, entry_id = bookie.add(flags, key, body)
            answer = struct.pack(">BBHiqq", version, operation, 0, status, ledger_id, entry_id)
            if status == OK:
                bookie.write(Write(ledger_id, key, entry_id, body), lambda: self._answer(answer))
                return
        else:
            ledger_id, entry_id = struct.unpack_from(">qq", frame, 4)
            if operation == READ:
                status, body = bookie.read(flags, ledger_id, entry_id, frame[20:])
                answer = struct.pack(">BBHiqq", version, operation, 0, status, ledger_id, entry_id) + body
                if flags & FENCE and status != UNAUTHORIZED:
                    bookie.write(Write(ledger_id, frame[20:]), lambda: self._answer(answer))
                    return
            else:
                assert operation == BATCH_READ
                request, count, max_bytes = struct.unpack_from(">qiq", frame, 20)
                status, bodies = bookie.read_batch(ledger_id, entry_id, count, max_bytes)
                numbers = (status, ledger_id, entry_id, request)
                answer = struct.pack(">BBHiqqq", version, operation, 0, *numbers) + bodies
        self._answer(answer)

    def _close(self) -> None:
        """It says nothing to what it does not understand."""
        self._received = b""
        self.transport.close()

    def _answer(self, answer: bytes) -> None:
        if self._bookie.silent:
            return
        if self._bookie.delay:
            self._bookie.loop.call_later(self._bookie.delay, self._send, answer)
        else:
            self._send(answer)

    def _send(self, answer: bytes) -> None:
        if self in self._bookie.connections:
            self.transport.write(struct.pack(">I", len(answer)) + answer)

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._bookie.connections:
            self._bookie.connections.remove(self)

    def pause_writing(self) -> None:
        """Tests ask for little at once."""

    def resume_writing(self) -> None:
        """See :meth:`pause_writing`."""
