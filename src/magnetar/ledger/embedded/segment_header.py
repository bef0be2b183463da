"""The names and the header of segment files."""

from __future__ import annotations

import struct

from magnetar.io.crc32c import crc32c
from magnetar.lazy_dataclass import dataclass

FORMAT_VERSION = 1
SEGMENT_HEADER_BYTES = 4096
"""The size of the header; the first group begins after it, never in the same page."""

_MAGIC = b"MGSEGMNT"
_HEADER = struct.Struct("<8sII16sQQ")
"""Magic, format version, kind, store id, segment id, size of the file at its creation."""
_CHECKSUM = struct.Struct("<I")

LOG = 0
"""A segment of the log: its groups continue the sequence of the previous segment."""
REWRITTEN = 1
"""A segment with live runs of other segments, written completely before it is referenced; its sequence starts
at 1."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    segment_id: int
    store_id: bytes
    """The id of the store, 16 bytes."""
    kind: int
    size: int
    format_version: int = FORMAT_VERSION

    def encode(self) -> bytes:
        """Returns the header, padded with zeros to :data:`SEGMENT_HEADER_BYTES`."""
        fields = _HEADER.pack(
            _MAGIC, self.format_version, self.kind, self.store_id, self.segment_id, self.size
        )
        return (fields + _CHECKSUM.pack(crc32c(fields))).ljust(SEGMENT_HEADER_BYTES, b"\0")


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """Returns the header at the beginning of ``data``; None: there is no valid header."""
    if len(data) < _HEADER.size + _CHECKSUM.size:
        return None
    magic, version, kind, store_id, segment_id, size = _HEADER.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or crc32c(data[: _HEADER.size]) != checksum:
        return None
    return SegmentHeader(segment_id, store_id, kind, size, version)


def segment_name(segment_id: int) -> str:
    return f"segment-{segment_id:016x}.log"


def index_name(segment_id: int) -> str:
    return f"segment-{segment_id:016x}.index"


def segment_id_of(name: str) -> int | None:
    """Returns the id in a segment's file name; None for any other name."""
    if name.startswith("segment-") and name.endswith(".log") and len(name) == 28:
        try:
            return int(name[8:24], 16)
        except ValueError:
            return None
    return None
