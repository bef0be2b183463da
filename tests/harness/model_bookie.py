"""A model of a bookie: what it keeps, whom it lets add, and how it answers, in memory and in virtual time."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from magnetar.io.interfaces import Loop, Transport

OK, NO_LEDGER, NO_ENTRY, BAD_REQUEST, UNAUTHORIZED, FENCED, READ_ONLY = 0, 1, 2, 100, 102, 104, 105
ADD, READ, BATCH_READ = 1, 2, 7
FENCE, RECOVERY_ADD = 1, 2
MAX_BATCH_BYTES = 5 * 1024 * 1024


@dataclass
class ModelLedger:
    key: bytes
    fenced: bool = False
    entries: dict[int, bytes] = field(default_factory=dict)


class ModelBookie:
    """Keeps what it was given over connections, and over its own restarts."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.ledgers: dict[int, ModelLedger] = {}
        self.connections: list[ModelBookieConnection] = []
        self.read_only = False
        self.silent = False
        """Requests are not answered, now or later."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.requests = 0

    def factory(self) -> ModelBookieConnection:
        return ModelBookieConnection(self)

    def drop_connections(self) -> None:
        for connection in list(self.connections):
            connection.transport.abort()

    def add(self, flags: int, key: bytes, body: bytes) -> tuple[int, int, int]:
        """Status, ledger id, entry id."""
        ledger_id, entry_id = struct.unpack_from(">qq", body)
        if ledger_id < 0 or entry_id < 0 or len(body) == 16:
            return BAD_REQUEST, ledger_id, entry_id
        if self.read_only:
            return READ_ONLY, ledger_id, entry_id
        ledger = self.ledgers.setdefault(ledger_id, ModelLedger(key))
        if ledger.key != key:
            return UNAUTHORIZED, ledger_id, entry_id
        if ledger.fenced and not flags & RECOVERY_ADD:
            return FENCED, ledger_id, entry_id
        ledger.entries[entry_id] = body
        return OK, ledger_id, entry_id

    def read(self, flags: int, ledger_id: int, entry_id: int, key: bytes) -> tuple[int, bytes]:
        """Status, and the body."""
        if flags & FENCE:
            ledger = self.ledgers.setdefault(ledger_id, ModelLedger(key))
            if ledger.key != key:
                return UNAUTHORIZED, b""
            ledger.fenced = True
        elif ledger_id not in self.ledgers:
            return NO_LEDGER, b""
        entries = self.ledgers[ledger_id].entries
        found = entries.get(max(entries, default=-1) if entry_id == -1 else entry_id)
        return (NO_ENTRY, b"") if found is None else (OK, found)

    def read_batch(self, ledger_id: int, first: int, count: int, max_bytes: int) -> tuple[int, bytes]:
        if ledger_id not in self.ledgers:
            return NO_LEDGER, b""
        entries, out, used = self.ledgers[ledger_id].entries, bytearray(), 36
        entry_id = first
        while entry_id in entries and (count <= 0 or entry_id < first + count):
            body = entries[entry_id]
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
        self.transport: Any = None

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        self._bookie.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (length,) = struct.unpack_from(">I", self._received)
            if len(self._received) < 4 + length:
                return
            frame, self._received = self._received[4 : 4 + length], self._received[4 + length :]
            answer = self._answer(frame)
            self._bookie.requests += 1
            if self._bookie.silent:
                continue
            if self._bookie.delay:
                self._bookie.loop.call_later(self._bookie.delay, self._send, answer)
            else:
                self._send(answer)

    def _answer(self, frame: bytes) -> bytes:
        bookie = self._bookie
        _version, operation, flags = struct.unpack_from(">BBH", frame)
        if operation == ADD:
            status, ledger_id, entry_id = bookie.add(flags, frame[4:24], frame[24:])
            return struct.pack(">BBHiqq", 2, operation, 0, status, ledger_id, entry_id)
        ledger_id, entry_id = struct.unpack_from(">qq", frame, 4)
        if operation == READ:
            status, body = bookie.read(flags, ledger_id, entry_id, frame[20:])
            return struct.pack(">BBHiqq", 2, operation, 0, status, ledger_id, entry_id) + body
        assert operation == BATCH_READ
        request, count, max_bytes = struct.unpack_from(">qiq", frame, 20)
        status, bodies = bookie.read_batch(ledger_id, entry_id, count, max_bytes)
        return struct.pack(">BBHiqqq", 2, operation, 0, status, ledger_id, entry_id, request) + bodies

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
