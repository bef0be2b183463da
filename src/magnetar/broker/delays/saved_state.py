"""The saved state of an index: its runs, and the entries of the topic that they hold. It is stored in the
first of the ledgers that the cursor's property names."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Sequence

from magnetar.broker.delays.runs import DamagedIndex, Run
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.position import Position

_FORMAT = 1
_PART = 256 * 1024
"""Largest size of one entry, in bytes."""
_TO_TEXT = bytes.maketrans(b"\x00\x01", b"01")
_TO_MARKS = bytes.maketrans(b"01", b"\x00\x01")


@dataclass(slots=True)
class SavedState:
    covers: Position
    """How far the topic had been read when the state was written: the runs have no later entries."""
    version: int
    """How often the cursor had been moved by other means than acknowledgements."""
    runs: list[Run]
    marks: dict[int, bytes]
    """The waiting entries by ledger of the topic, as :func:`pack_marks` returns them."""


def pack_marks(marks: bytes | bytearray) -> bytes:
    """Packs bytes that are 0 or 1 into bits."""
    if not marks:
        return b""
    bits = int(bytes(marks[::-1]).translate(_TO_TEXT), 2)
    return zlib.compress(bits.to_bytes((len(marks) + 7) // 8, "little"), 1)


def unpack_marks(packed: bytes) -> bytearray:
    """:raises DamagedIndex: it was not packed by :func:`pack_marks`"""
    try:
        bits = zlib.decompress(packed) if packed else b""
    except zlib.error as error:
        raise DamagedIndex(f"the marks of the index are damaged: {error}") from error
    text = format(int.from_bytes(bits, "little"), f"0{len(bits) * 8}b") if bits else ""
    return bytearray(text.encode()[::-1].translate(_TO_MARKS))


def encode_state(state: SavedState) -> list[bytes]:
    """Returns the entries of the ledger."""
    fences = array("q")
    runs = []
    for run in state.runs:
        left = run.fences[run.wanted_from :]
        runs.append([run.ledger_id, run.wanted_from, len(left)])
        fences.extend(left)
    header = {
        "format": _FORMAT,
        "covers": state.covers,
        "version": state.version,
        "runs": runs,
        "marks": [[ledger_id, len(packed)] for ledger_id, packed in state.marks.items()],
    }
    head = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join((len(head).to_bytes(4, "big"), head, fences.tobytes(), *state.marks.values()))
    return [body[at : at + _PART] for at in range(0, len(body), _PART)]


def decode_state(entries: Sequence[bytes]) -> SavedState:
    """:raises DamagedIndex: the entries are not a saved state of the known format"""
    body = b"".join(entries)
    try:
        at = 4 + int.from_bytes(body[:4], "big")
        header = json.loads(body[4:at])
        if header["format"] != _FORMAT:
            raise DamagedIndex(f"the index has format {header['format']}")
        runs = []
        for ledger_id, skipped, count in header["runs"]:
            fences = array("q", bytes(8 * skipped))
            fences.frombytes(_piece(body, at, 8 * count))
            at += 8 * count
            runs.append(Run(ledger_id, fences, skipped))
        marks = {}
        for ledger_id, size in header["marks"]:
            marks[ledger_id] = _piece(body, at, size)
            at += size
        ledger_id, entry_id = header["covers"]
        return SavedState((ledger_id, entry_id), header["version"], runs, marks)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedIndex(f"the state of the index is damaged: {error}") from error


def _piece(body: bytes, at: int, size: int) -> bytes:
    if size < 0 or at + size > len(body):
        raise DamagedIndex("the state of the index ends early")
    return body[at : at + size]
