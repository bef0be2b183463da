"""The wire format of a connection to a bookie, and version 3 of the protocol: requests and answers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.ledger.bookkeeper import bookie_protocol_pb2 as pb
from magnetar.ledger.bookkeeper import frames
from magnetar.ledger.bookkeeper.frames import MAX_FRAME_BYTES, Answer, AnswerReader, Flag, FrameError, Status
from magnetar.ledger.bookkeeper.hot_adds import AddedRun

_LENGTH = struct.Struct(">I")
_VERSION = 3
_HIGH_PRIORITY = 100
_FENCE = 1
_RECOVERY_ADD = 1
_TOTAL_AND_FREE = 3
_ADD_REQUEST = b"\xaa\x06"
"""The protobuf tag of the field ``addRequest`` (101) of a ``Request``."""
_BODY = b"\x22"
"""The protobuf tag of the field ``body`` (4) of an ``AddRequest``."""
_LEAST_ANSWER = 8


class Operation(IntEnum):
    """Operations of version 3 of the bookies' protocol, in which each request has a number.

    Version 3 has some requests that version 2 lacks, but no batch reads. Answers are converted to the names
    and numbers of version 2, so that callers need not know the version.
    """

    READ = 1
    ADD = 2
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8


_STATUS = {
    0: Status.OK,
    402: Status.NO_LEDGER,
    403: Status.NO_ENTRY,
    404: Status.BAD_REQUEST,
    501: Status.IO_ERROR,
    502: Status.UNAUTHORIZED,
    503: Status.BAD_VERSION,
    504: Status.FENCED,
    505: Status.READ_ONLY,
    506: Status.TOO_MANY_REQUESTS,
    507: Status.UNKNOWN_LEDGER_STATE,
}


class DiskSpace(NamedTuple):
    """The free and total disk space of a bookie, over all disks, in bytes."""

    total: int
    free: int


def add_head(ledger_id: int, entry_id: int, key: bytes, body_bytes: int, flags: Flag = Flag.NONE) -> bytes:
    """Returns the bytes in front of an entry's body in an add request, whose number is the entry id."""
    add = pb.AddRequest(ledgerId=ledger_id, entryId=entry_id, masterKey=key)
    if flags & Flag.RECOVERY_ADD:
        add.flag = _RECOVERY_ADD
    begun = add.SerializeToString() + _BODY + _varint(body_bytes)
    request = pb.Request(header=_header(Operation.ADD, entry_id, flags)).SerializeToString()
    request += _ADD_REQUEST + _varint(len(begun) + body_bytes) + begun
    return _LENGTH.pack(len(request) + body_bytes) + request


def read_request(
    number: int, ledger_id: int, entry_id: int, flags: Flag = Flag.NONE, key: bytes = b""
) -> bytes:
    """Returns a request to read one entry.

    :param entry_id: the id of the entry; -1: the last entry that the bookie has
    :param key: the ledger's master key, if ``flags`` contains FENCE; otherwise empty
    """
    read = pb.ReadRequest(ledgerId=ledger_id, entryId=entry_id)
    if flags & Flag.FENCE:
        read.flag = _FENCE
        read.masterKey = key
    return _framed(pb.Request(header=_header(Operation.READ, number, flags), readRequest=read))


def write_lac_request(number: int, ledger_id: int, confirmed: int, key: bytes, body: bytes) -> bytes:
    """Encodes an explicit last-add-confirmed: all entries up to ``confirmed`` have their ack quorum.

    :param body: the last-add-confirmed with its digest, for the readers of the ledger
    """
    told = pb.WriteLacRequest(ledgerId=ledger_id, lac=confirmed, masterKey=key, body=body)
    return _framed(pb.Request(header=_header(Operation.WRITE_LAC, number), writeLacRequest=told))


def read_lac_request(number: int, ledger_id: int) -> bytes:
    """Encodes a request for the last explicit last-add-confirmed and the last entry."""
    asked = pb.ReadLacRequest(ledgerId=ledger_id)
    return _framed(pb.Request(header=_header(Operation.READ_LAC, number), readLacRequest=asked))


def disk_space_request(number: int) -> bytes:
    asked = pb.GetBookieInfoRequest(requested=_TOTAL_AND_FREE)
    return _framed(pb.Request(header=_header(Operation.GET_BOOKIE_INFO, number), getBookieInfoRequest=asked))


def disk_space(bodies: list[bytes]) -> DiskSpace:
    """Decodes the answer of a bookie about its disks."""
    total, free = map(int, bodies)
    return DiskSpace(total, free)


def answer_reader(limit: int = 2 * MAX_FRAME_BYTES) -> AnswerReader:
    """Returns a reader of answers in this wire format.

    :param limit: the maximum size of a frame in bytes, including its length field
    """
    return AnswerReader(limit, decode=_answer, least=_LEAST_ANSWER)


def _header(operation: Operation, number: int, flags: Flag = Flag.NONE) -> pb.Header:
    header = pb.Header(version=_VERSION, operation=operation, txnId=number)
    if flags & Flag.HIGH_PRIORITY:
        header.priority = _HIGH_PRIORITY
    return header


def _framed(request: pb.Request) -> bytes:
    made = request.SerializeToString()
    return _LENGTH.pack(len(made)) + made


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _answer(data: bytes, at: int, end: int) -> Answer:
    try:
        said = pb.Response.FromString(data[at:end])
    except DecodeError as error:
        raise FrameError(f"an answer is not of version 3: {error}") from error
    operation, number = said.header.operation, said.header.txnId
    status = _STATUS.get(said.status, Status.IO_ERROR)
    good = status is Status.OK
    if operation == Operation.ADD and said.HasField("addResponse"):
        # Identified by ledger and entry, as in version 2: many bookies get the same bytes, number included.
        added = said.addResponse
        return Answer(frames.Operation.ADD, status, added.ledgerId, added.entryId, 0, [])
    if operation == Operation.READ and said.HasField("readResponse"):
        read = said.readResponse
        bodies = [read.body] if good else []
        return Answer(frames.Operation.READ, status, read.ledgerId, read.entryId, number, bodies)
    if operation == Operation.WRITE_LAC:
        return Answer(operation, status, said.writeLacResponse.ledgerId, -1, number, [])
    if operation == Operation.READ_LAC:
        found = said.readLacResponse
        bodies = [found.lacBody, found.lastEntryBody] if good else []
        return Answer(operation, status, found.ledgerId, -1, number, bodies)
    if operation == Operation.GET_BOOKIE_INFO:
        info = said.getBookieInfoResponse
        bodies = [b"%d" % info.totalDiskCapacity, b"%d" % info.freeDiskSpace] if good else []
        return Answer(operation, status, -1, -1, number, bodies)
    raise FrameError(f"an answer names the unexpected operation {operation}, status {said.status}")


class Wire(NamedTuple):
    add_head: Callable[[int, int, bytes, int, Flag], bytes]
    """Given ledger, entry, master key, bytes of the entry's body and flags, returns the bytes in front of the
    body."""
    read_request: Callable[[int, int, int, Flag, bytes], bytes]
    """Returns a request to read; arguments: request number, ledger, entry, flags, master key."""
    answers: Callable[[Callable[[AddedRun], None], int], AnswerReader]
    """Returns a reader of answers; arguments: a listener for successful answers to adds, the maximum size of
    a frame in bytes."""
    numbered: bool
    """Whether answers contain the number of the request. Such a wire format has additional requests (explicit
    last-add-confirmed, disk space). Without numbers, many adds can be sent and answered together, and many
    entries read at once."""


def _add_head(_ledger_id: int, _entry_id: int, key: bytes, body_bytes: int, flags: Flag) -> bytes:
    return frames.add_head(key, body_bytes, flags)


def _read_request(_number: int, ledger_id: int, entry_id: int, flags: Flag, key: bytes) -> bytes:
    return frames.read_request(ledger_id, entry_id, flags, key)


def _answers(added: Callable[[AddedRun], None], limit: int) -> AnswerReader:
    return AnswerReader(limit, added)


VERSION_2 = Wire(_add_head, _read_request, _answers, numbered=False)
VERSION_3 = Wire(
    add_head,
    read_request,
    lambda _added, limit: answer_reader(limit),
    numbered=True,
)
