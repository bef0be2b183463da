"""What a model bookie understands of version 3 of the protocol."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.ledger.bookkeeper import bookie_protocol_pb2 as pb

if TYPE_CHECKING:
    from model_bookie import ModelBookie

VERSION = 3
FIRST_BYTE = 0x0A
"""Of a request: the tag of its header. Requests of version 2 begin with their version."""
READ, ADD, WRITE_LAC, READ_LAC, GET_BOOKIE_INFO = 1, 2, 6, 7, 8
FENCE, RECOVERY_ADD = 1, 2
_STATUS = {0: 0, 1: 402, 2: 403, 100: 404, 102: 502, 104: 504, 105: 505}
BAD_REQUEST = 404


def take(bookie: ModelBookie, frame: bytes, answer: Callable[[bytes], None]) -> bool:
    """Whether it is a request."""
    try:
        request = pb.Request.FromString(frame)
    except DecodeError:
        return False
    header = request.header
    said = pb.Response(header=pb.Header(version=VERSION, operation=header.operation, txnId=header.txnId))
    if header.operation == ADD:
        _add(bookie, frame, said, answer)
        return True
    if header.operation == READ and request.HasField("readRequest"):
        _read(bookie, request.readRequest, said, answer)
        return True
    said.status = 0
    if header.operation == WRITE_LAC and request.HasField("writeLacRequest"):
        told = request.writeLacRequest
        bookie.told[told.ledgerId] = told.body
        said.writeLacResponse.CopyFrom(pb.WriteLacResponse(status=0, ledgerId=told.ledgerId))
    elif header.operation == READ_LAC and request.HasField("readLacRequest"):
        _read_lac(bookie, request.readLacRequest.ledgerId, said)
        said.status = said.readLacResponse.status
    elif header.operation == GET_BOOKIE_INFO:
        total, free = bookie.disk
        found = pb.GetBookieInfoResponse(status=0, totalDiskCapacity=total, freeDiskSpace=free)
        said.getBookieInfoResponse.CopyFrom(found)
    else:
        said.status = BAD_REQUEST
    answer(said.SerializeToString())
    return True


def _add(bookie: ModelBookie, frame: bytes, said: pb.Response, answer: Callable[[bytes], None]) -> None:
    from model_bookie import OK, Write

    request = _add_request(frame)
    key, body = request.masterKey, _body(frame)
    status, _, _ = bookie.add(RECOVERY_ADD if request.flag else 0, key, body)
    said.status = _STATUS[status]
    added = pb.AddResponse(status=_STATUS[status], ledgerId=request.ledgerId, entryId=request.entryId)
    said.addResponse.CopyFrom(added)
    made = said.SerializeToString()
    if status == OK:
        bookie.write(Write(request.ledgerId, key, request.entryId, body), lambda: answer(made))
    else:
        answer(made)


def _read(
    bookie: ModelBookie, request: pb.ReadRequest, said: pb.Response, answer: Callable[[bytes], None]
) -> None:
    from model_bookie import UNAUTHORIZED, Write

    fence = FENCE if request.flag == 1 else 0
    status, body = bookie.read(fence, request.ledgerId, request.entryId, request.masterKey)
    said.status = _STATUS[status]
    found = pb.ReadResponse(status=_STATUS[status], ledgerId=request.ledgerId, entryId=request.entryId)
    if status == 0:
        found.body = body
        if not fence:
            found.maxLAC = max(_confirmed(each) for each in bookie.ledgers[request.ledgerId].entries.values())
    said.readResponse.CopyFrom(found)
    made = said.SerializeToString()
    if fence and status != UNAUTHORIZED:
        bookie.write(Write(request.ledgerId, request.masterKey), lambda: answer(made))
    else:
        answer(made)


def _confirmed(body: bytes) -> int:
    return int(struct.unpack_from(">q", body, 16)[0])


def _read_lac(bookie: ModelBookie, ledger_id: int, said: pb.Response) -> None:
    ledger = bookie.ledgers.get(ledger_id)
    found = pb.ReadLacResponse(status=_STATUS[2], ledgerId=ledger_id)
    if ledger is not None:
        found.status = 0
        if ledger_id in bookie.told:
            found.lacBody = bookie.told[ledger_id]
        if ledger.entries:
            found.lastEntryBody = ledger.entries[max(ledger.entries)]
    said.readLacResponse.CopyFrom(found)


def _add_request(frame: bytes) -> pb.AddRequest:
    return pb.AddRequest.FromString(_message(frame, 101))


def _body(frame: bytes) -> bytes:
    return _message(_message(frame, 101), 4)


def _message(data: bytes, wanted: int) -> bytes:
    """The bytes of a field of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            _, at = _varint(data, at)
            continue
        assert tag & 7 == 2, tag
        length, at = _varint(data, at)
        if tag >> 3 == wanted:
            return data[at : at + length]
        at += length
    raise struct.error(f"no field {wanted}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at
