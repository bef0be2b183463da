"""The group: what one commit adds to a segment, encoded and decoded. The module is also compiled
(:mod:`magnetar.hot`).

A group is a header, a table of runs and the runs' bodies (``docs/segment-format.md``). A *run* is the part of
a group that belongs to one ledger; the body of a run of entries is a u32 length for each entry, then the
entries. The header's checksum covers header and table, and the table holds a checksum for each body: every
byte is covered.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from itertools import accumulate

from magnetar.io.crc32c import crc32c

GROUP_MAGIC = b"MGRP"
GROUP_HEADER = struct.Struct("<4sIIIQQQQ")
"""Magic, checksum, bytes of the group, number of runs, segment id, offset, sequence number, and the sequence
number up to which all groups are durable."""
GROUP_HEADER_BYTES = 48
RUN_HEADER = struct.Struct("<IIqqqII")
"""Kind, number of entries, ledger id, first entry id, last-add-confirmed, length of the body, checksum of the
body."""
RUN_HEADER_BYTES = 40
CHECKSUM_END = 8
"""The offset after the fields magic and checksum, where the bytes that the checksum covers begin."""

ENTRIES = 0
LEDGER_CREATED = 1
LEDGER_CLOSED = 2
LEDGER_DELETED = 3

LENGTH_BYTES = 4
_LENGTH = struct.Struct("<I")
_SWAP = sys.byteorder != "little"

Run = tuple[int, int, int, int, int, list[bytes]]
"""Kind, number of entries, ledger id, first entry id, last-add-confirmed, pieces of the body."""


def gather(
    buffer: bytes, starts: array[int], ends: array[int], first: int, count: int
) -> tuple[bytes, bytes]:
    """Returns the body of a run in two parts: the lengths of entries ``first`` … ``first + count - 1``, and
    the bytes of these entries.

    The entries are consecutive entries of one ledger.
    """
    if count == 1:
        entry = buffer[starts[first] : ends[first]]
        return _LENGTH.pack(len(entry)), entry
    last = first + count
    entries = [buffer[start:end] for start, end in zip(starts[first:last], ends[first:last], strict=True)]
    lengths = array("I", map(len, entries))
    if _SWAP:
        lengths.byteswap()
    return lengths.tobytes(), b"".join(entries)


def build_group(
    segment_id: int, offset: int, sequence: int, durable_up_to: int, runs: list[Run]
) -> tuple[bytes, array[int]]:
    """Returns the bytes of a group, and three numbers for each run: the offset of the run's body in the
    segment, and the length and the checksum of the body.

    :param durable_up_to: the sequence number up to which all groups are durable
    """
    table_end = GROUP_HEADER_BYTES + RUN_HEADER_BYTES * len(runs)
    places = array("I")
    table = [b""]
    pieces = [b"", b""]
    body_at = table_end
    for kind, count, ledger_id, first_entry_id, confirmed, body in runs:
        checksum = 0
        length = 0
        for piece in body:
            checksum = crc32c(piece, checksum)
            length += len(piece)
        table.append(RUN_HEADER.pack(kind, count, ledger_id, first_entry_id, confirmed, length, checksum))
        pieces.extend(body)
        places.extend((offset + body_at, length, checksum))
        body_at += length
    table[0] = GROUP_HEADER.pack(
        GROUP_MAGIC, 0, body_at, len(runs), segment_id, offset, sequence, durable_up_to
    )[CHECKSUM_END:]
    covered = b"".join(table)
    pieces[0] = GROUP_MAGIC + _LENGTH.pack(crc32c(covered))
    pieces[1] = covered
    return b"".join(pieces), places


def body_is_whole(data: bytes, at: int, length: int, checksum: int) -> bool:
    """Whether ``data[at:at + length]`` is complete and matches ``checksum``."""
    return at + length <= len(data) and int(crc32c(memoryview(data)[at : at + length])) == checksum


def take_entries(
    data: bytes,
    body_at: int,
    count: int,
    skip: int,
    wanted: int,
    max_bytes: int,
    starts: array[int],
    ends: array[int],
) -> tuple[int, int]:
    """Appends to ``starts`` and ``ends`` the bounds of a body's entries, from entry ``skip`` on.

    Takes at most ``wanted`` entries of at most ``max_bytes`` together; returns their number and size.
    The body at ``body_at`` has ``count`` entries, and its checksum was verified.
    """
    lengths = array("I")
    lengths.frombytes(data[body_at : body_at + LENGTH_BYTES * count])
    if _SWAP:
        lengths.byteswap()
    bounds = list(accumulate(lengths, initial=body_at + LENGTH_BYTES * count))
    begin = bounds[skip]
    end = min(skip + wanted, count, bisect_right(bounds, begin + max_bytes) - 1)
    starts.extend(bounds[skip:end])
    ends.extend(bounds[skip + 1 : end + 1])
    return end - skip, bounds[end] - begin
