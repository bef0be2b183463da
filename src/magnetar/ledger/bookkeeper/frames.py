"""Version 2 of the bookies' protocol: requests to bytes, bytes to answers.

A frame is its length in four bytes and what follows. All begin with version, operation and flags; answers go
on with a status and the ids of what was asked for. There is no number to tell two questions for the same
entry apart.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum, IntFlag
from typing import NamedTuple

from magnetar.ledger.bookkeeper.digests import MASTER_KEY_BYTES
from magnetar.ledger.bookkeeper.hot_adds import AddedRun, read_added

_LENGTH = struct.Struct(">I")
_ADD = struct.Struct(">IBBH")
_ADD_PREFIX = struct.Struct(">BBH")
_READ = struct.Struct(">IBBHqq")
_BATCH = struct.Struct(">IBBHqqqiq")
_ANSWER = struct.Struct(">BBHiqq")
_BATCH_ANSWER = struct.Struct(">q")
_VERSION = 2

MAX_FRAME_BYTES = 5 * 1024 * 1024 + 10 * 1024
"""Largest frame with the default ``maxMessageSize``: that of Pulsar's brokers, and the default of bookies
(``nettyMaxFrameSizeBytes``)."""


class Operation(IntEnum):
    ADD = 1
    READ = 2
    AUTH = 3
    BATCH_READ = 7


class Flag(IntFlag):
    NONE = 0
    FENCE = 1
    """Of a read: nobody adds any more but for recovery."""
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4


class Status(IntEnum):
    """What a bookie answers; below 0: what becomes of questions that no bookie answers."""

    LOST = -1
    """The connection ended."""
    TIMED_OUT = -2
    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORIZED = 102
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107


def status_name(status: int) -> str:
    """For people, also of one that this release does not know."""
    return _NAMES.get(status, f"status {status}")


_NAMES = {status.value: status.name for status in Status}


class FrameError(Exception):
    """Bytes that no bookie sends."""


class Answer(NamedTuple):
    operation: int
    status: int
    ledger_id: int
    entry_id: int
    """That was asked for."""
    request_id: int
    """Of the question, where it has a number; else 0."""
    bodies: list[bytes]
    """One of a read that was good, some of a batch read, else none."""


def add_prefix(key: bytes, flags: Flag = Flag.NONE) -> bytes:
    """What all requests to add entries of one ledger have between their length and the entry's body."""
    return _ADD_PREFIX.pack(_VERSION, Operation.ADD, flags) + key


def add_head(key: bytes, body_bytes: int, flags: Flag = Flag.NONE) -> bytes:
    """What stands before an entry's body in a request to add it."""
    length = _ADD.size - _LENGTH.size + MASTER_KEY_BYTES + body_bytes
    return _ADD.pack(length, _VERSION, Operation.ADD, flags) + key


def read_request(ledger_id: int, entry_id: int, flags: Flag = Flag.NONE, key: bytes = b"") -> bytes:
    """:param entry_id: -1: the last one that the bookie has

    :param key: the master key, where flags fence
    """
    length = _READ.size - _LENGTH.size + len(key)
    return _READ.pack(length, _VERSION, Operation.READ, flags, ledger_id, entry_id) + key


def batch_read_request(ledger_id: int, first: int, request_id: int, entries: int, max_bytes: int) -> bytes:
    """At least one entry is answered, then as many as fit into ``max_bytes`` with what is around them."""
    length = _BATCH.size - _LENGTH.size
    numbers = (ledger_id, first, request_id, entries, max_bytes)
    return _BATCH.pack(length, _VERSION, Operation.BATCH_READ, Flag.NONE, *numbers)


class AnswerReader:
    """Cuts what a socket had into answers.

    :param limit: bytes of the largest frame, its length included
    :param added: told of good answers to adds, many at once; None: each is an answer like any other
    :param decode: the answer between two positions of bytes; of version 2 if nothing is said
    :param least: bytes of the shortest one
    """

    def __init__(
        self,
        limit: int = 2 * MAX_FRAME_BYTES,
        added: Callable[[AddedRun], None] | None = None,
        decode: Callable[[bytes, int, int], Answer] | None = None,
        least: int = _ANSWER.size,
    ) -> None:
        self._limit = limit
        self._added = added
        self._decode = decode or _answer
        self._least = least
        self._run = AddedRun()
        self._pieces: list[bytes] = []
        """The beginning of a frame; put together once, when all of it is there."""
        self._held = 0
        self._wanted = 0
        """Bytes that it takes to go on."""

    def feed(self, data: bytes) -> Iterator[Answer]:
        """The answers that are whole by now.

        :raises FrameError: this is no bookie, or one that speaks another version
        """
        if self._pieces:
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        at, end = 0, len(data)
        self._wanted = _LENGTH.size
        while end - at >= _LENGTH.size:
            if self._added is not None:
                at = read_added(data, at, end, self._run)
                if self._run.count:
                    self._added(self._run)
                    continue
            (length,) = _LENGTH.unpack_from(data, at)
            if not self._least <= length <= self._limit - _LENGTH.size:
                raise FrameError(f"a frame of {length} bytes")
            stop = at + _LENGTH.size + length
            if stop > end:
                self._wanted = stop - at
                break
            yield self._decode(data, at + _LENGTH.size, stop)
            at = stop
        if at < end:
            self._pieces.append(data[at:])
            self._held = end - at


def _answer(data: bytes, at: int, end: int) -> Answer:
    version, operation, _flags, status, ledger_id, entry_id = _ANSWER.unpack_from(data, at)
    if version != _VERSION:
        raise FrameError(f"an answer of version {version}")
    at += _ANSWER.size
    if operation == Operation.ADD:
        return Answer(operation, status, ledger_id, entry_id, 0, [])
    if operation == Operation.READ:
        bodies = [data[at:end]] if status == Status.OK else []
        return Answer(operation, status, ledger_id, entry_id, 0, bodies)
    if operation != Operation.BATCH_READ:
        raise FrameError(f"an answer to operation {operation}")
    if end - at < _BATCH_ANSWER.size:
        raise FrameError("an answer to a batch read without the number of its request")
    (request_id,) = _BATCH_ANSWER.unpack_from(data, at)
    bodies = list(_bodies(data, at + _BATCH_ANSWER.size, end))
    if status == Status.OK and not bodies:
        raise FrameError("a good answer to a batch read, without entries")
    return Answer(operation, status, ledger_id, entry_id, request_id, bodies)


def _bodies(data: bytes, at: int, end: int) -> Iterator[bytes]:
    while at < end:
        if end - at < _LENGTH.size:
            raise FrameError(f"{end - at} bytes behind the entries of a batch read")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > end - at:
            raise FrameError(f"an entry of {length} bytes in {end - at}")
        yield data[at : at + length]
        at += length
