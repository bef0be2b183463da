"""The version of the bookies' protocol that a connection speaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from magnetar.ledger.bookkeeper import frames, version3
from magnetar.ledger.bookkeeper.frames import AnswerReader, Flag
from magnetar.ledger.bookkeeper.hot_adds import AddedRun


class Wire(NamedTuple):
    add_head: Callable[[int, int, bytes, int, Flag], bytes]
    """(ledger, entry, master key, bytes of the entry's body): returns the bytes in front of the body."""
    read_request: Callable[[int, int, int, Flag, bytes], bytes]
    """(request number, ledger, entry, flags, master key)."""
    answers: Callable[[Callable[[AddedRun], None], int], AnswerReader]
    """(listener for successful answers to adds, bytes of the largest frame)."""
    numbered: bool
    """Whether answers carry the number of the request; such a wire format has additional requests (explicit
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
    version3.add_head,
    version3.read_request,
    lambda _added, limit: version3.answer_reader(limit),
    numbered=True,
)
