"""Requests TLS from a bookie: one request of version 3 of the protocol, then the handshake, then
version 2."""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">I")
_MAX_ANSWER_BYTES = 1024

# A Request with its header (version 3, operation 9, number 1) and an empty startTLSRequest.
_REQUEST = b"\x0a\x06\x08\x03\x10\x09\x18\x01" + b"\xd2\x06\x00"
QUESTION = _LENGTH.pack(len(_REQUEST)) + _REQUEST

_HEADER_TAG = 0x0A
_GOOD = b"\x10\x00"
"""The field behind the header of a Response: its status, EOK."""


def answer_bytes(begun: bytes) -> int:
    """Returns the length of the answer with that beginning."""
    if len(begun) < _LENGTH.size:
        return _LENGTH.size
    (length,) = _LENGTH.unpack_from(begun)
    # A longer answer is not valid; its first bytes show that.
    return int(_LENGTH.size + min(length, _MAX_ANSWER_BYTES))


def refused(answer: bytes) -> str:
    """Returns why there is no TLS; empty if there is."""
    body = answer[_LENGTH.size :]
    (length,) = _LENGTH.unpack_from(answer)
    if length != len(body) or len(body) < 4 or body[0] != _HEADER_TAG or body[1] > len(body) - 4:
        return "its answer is not that of a bookie"
    status = body[2 + body[1] :]
    return "" if status[:2] == _GOOD else "it does not support TLS"
