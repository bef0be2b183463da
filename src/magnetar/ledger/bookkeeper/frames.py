"""Version 2 of the bookies' protocol: encodes requests and decodes answers.

A frame is its length in four bytes, followed by its content. All frames begin with version, operation and
flags; answers continue with a status and the request's ledger id and entry id. There is no request id, so
answers to two requests for the same entry cannot be distinguished.
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
"""The maximum frame size with the default ``maxMessageSize``, as in Pulsar's brokers, and the default of
bookies (``nettyMaxFrameSizeBytes``)."""


class Operation(IntEnum):
    ADD = 1
    READ = 2
    AUTH = 3
    BATCH_READ = 7


class Flag(IntFlag):
    NONE = 0
    FENCE = 1
    """A flag of a read request, which fences the ledger: from then on, only recovery may add entries."""
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4


class Status(IntEnum):
    """The status in a bookie's answer; values below 0 mean that no answer arrived."""

    LOST = -1
    """The connection ended before the answer arrived."""
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
    """Returns the name of a status for messages, even if the status is unknown."""
    return _NAMES.get(status, f"status {status}")


_NAMES = {status.value: status.name for status in Status}


class FrameError(Exception):
    """Received bytes that are not an answer of a bookie."""


class Answer(NamedTuple):
    operation: int
    status: int
    ledger_id: int
    entry_id: int
    """The id of the requested entry."""
    request_id: int
    """The number of the request; 0 if the wire format has no numbers."""
    bodies: list[bytes]
    """The bodies of entries: one for a successful read, several for a batch read; empty for other answers."""


def add_prefix(key: bytes, flags: Flag = Flag.NONE) -> bytes:
    """Returns the part of an add request between the frame's length and the entry's body; it is the same for
    all add requests of a ledger."""
    return _ADD_PREFIX.pack(_VERSION, Operation.ADD, flags) + key


def add_head(key: bytes, body_bytes: int, flags: Flag = Flag.NONE) -> bytes:
    """Returns the bytes in front of an entry's body in an add request."""
    length = _ADD.size - _LENGTH.size + MASTER_KEY_BYTES + body_bytes
    return _ADD.pack(length, _VERSION, Operation.ADD, flags) + key


def read_request(ledger_id: int, entry_id: int, flags: Flag = Flag.NONE, key: bytes = b"") -> bytes:
    """Returns a request to read one entry.

    :param entry_id: the id of the entry; -1: the last entry that the bookie has
    :param key: the ledger's master key, if ``flags`` contains FENCE; otherwise empty
    """
    length = _READ.size - _LENGTH.size + len(key)
    return _READ.pack(length, _VERSION, Operation.READ, flags, ledger_id, entry_id) + key


def batch_read_request(ledger_id: int, first: int, request_id: int, entries: int, max_bytes: int) -> bytes:
    """Returns a request to read at most ``entries`` consecutive entries, from entry ``first`` on.

    The answer has at least one entry; further entries must fit into ``max_bytes``, framing included.
    """
    length = _BATCH.size - _LENGTH.size
    numbers = (ledger_id, first, request_id, entries, max_bytes)
    return _BATCH.pack(length, _VERSION, Operation.BATCH_READ, Flag.NONE, *numbers)


class AnswerReader:
    """Splits received data into answers.

    :param limit: the maximum size of a frame in bytes, including its length field
    :param added: called once for each run of consecutive successful answers to adds; None: :meth:`feed`
        yields these answers too
    :param decode: decodes an answer between two offsets; version 2 by default
    :param least: the minimum size of an answer in bytes
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
        """The pieces of an incomplete frame, which are joined once, when the frame is complete."""
        self._held = 0
        self._wanted = 0
        """The number of bytes that must have been received before decoding can continue."""

    def feed(self, data: bytes) -> Iterator[Answer]:
        """Yields the answers that are complete with ``data``.

        :raises FrameError: the peer is not a bookie, or speaks another version
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
                raise FrameError(f"a frame has the invalid length {length}")
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
        raise FrameError(f"an answer has the unsupported version {version}")
    at += _ANSWER.size
    if operation == Operation.ADD:
        return Answer(operation, status, ledger_id, entry_id, 0, [])
    if operation == Operation.READ:
        bodies = [data[at:end]] if status == Status.OK else []
        return Answer(operation, status, ledger_id, entry_id, 0, bodies)
    if operation != Operation.BATCH_READ:
        raise FrameError(f"an answer names the unexpected operation {operation}")
    if end - at < _BATCH_ANSWER.size:
        raise FrameError("the answer to a batch read lacks the request id")
    (request_id,) = _BATCH_ANSWER.unpack_from(data, at)
    bodies = list(_bodies(data, at + _BATCH_ANSWER.size, end))
    if status == Status.OK and not bodies:
        raise FrameError("the successful answer to a batch read has no entries")
    return Answer(operation, status, ledger_id, entry_id, request_id, bodies)


def _bodies(data: bytes, at: int, end: int) -> Iterator[bytes]:
    while at < end:
        if end - at < _LENGTH.size:
            raise FrameError(f"the answer to a batch read ends with {end - at} bytes that are not an entry")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > end - at:
            raise FrameError(f"an entry should have {length} bytes, but the answer has only {end - at} more")
        yield data[at : at + length]
        at += length
