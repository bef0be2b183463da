"""The records of managed ledgers and cursors, in Pulsar's layout of metadata and cursor ledgers.

The state of a cursor with many individually deleted entries is stored with a bit for each entry of a ledger,
in Pulsar's format for ``managedLedgerPersistIndividualAckAsLongArray``, in several entries of the cursor's
ledger. Each of these entries is a ``PositionInfo`` with the same mark-delete position, some of the ledgers,
and two properties: the number of this part, and the number of all parts. The parts are consecutive entries.
If the last part is missing because of a crash, the previous state is valid.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar.io.interfaces import Io
from magnetar.io.slices import Slice, next_turn
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger import records_pb2 as pb
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.errors import MetadataDamaged
from magnetar.managed_ledger.position import Position
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import CompressionError

if TYPE_CHECKING:
    from uuid import UUID


_UUID = Struct(">qq")
_COMPRESSED_MAGIC = b"\x47\x78"
_WORD = (1 << 64) - 1
_CURSOR_FIELDS = (
    "cursorsLedgerId",
    "markDeleteLedgerId",
    "markDeleteEntryId",
    "individualDeletedMessages",
    "properties",
    "batchedEntryDeletionIndexInfo",
    "cursorProperties",
)
"""The fields of ``ManagedCursorInfo`` that :class:`CursorRecord` has as attributes."""
M = TypeVar("M", bound=Message)
ROOT = "/managed-ledgers"
"""The parent of the records of managed ledgers; the record of a cursor is below the record of its managed
ledger.
"""
OFFLOADS_TO_DELETE = "/magnetar/offloads-to-delete"
"""The parent of one node for each ledger whose objects in tiered storage must be deleted, named by the ledger
id and the uuid; the value is a JSON object."""
_PART_WORDS = 8 * 1024
"""The maximum number of 64-bit words in one entry, unless a single ledger has more; a word takes up to ten
bytes."""
_LARGE_BLOCKS = 64
"""A state in which more blocks than this have gaps is encoded as bits, in slices between which the loop does
other work."""
_KIND = "cursor state"
_PART = "magnetar.part"
_PARTS = "magnetar.parts"
Read = Callable[[int], Awaitable[bytes]]
"""Reads an entry of a cursor's ledger by its id."""


def _decode(
    kind: type[M],
    value: bytes,
    path: str,
    envelope: type[pb.ManagedLedgerInfoMetadata] | type[pb.ManagedCursorInfoMetadata] | None,
) -> M:
    try:
        if envelope is not None and value[:2] == _COMPRESSED_MAGIC:
            size = int.from_bytes(value[2:6], "big")
            if len(value) < 6 + size:
                raise MetadataDamaged(
                    f"{path}: the compression header states {size} bytes, but the record is shorter"
                )
            header = envelope.FromString(value[6 : 6 + size])
            value = decompress(int(header.compressionType), value[6 + size :], header.uncompressedSize)
        return kind.FromString(value)
    except (DecodeError, CompressionError) as error:
        raise MetadataDamaged(f"{path} cannot be parsed as {kind.DESCRIPTOR.name}: {error}") from error


def _rest(message: Message, *known: str) -> bytes:
    """Removes the ``known`` fields from ``message``; returns the other fields, including unknown fields, in
    wire format."""
    for name in known:
        message.ClearField(name)
    return message.SerializePartialToString()


@dataclass(frozen=True, slots=True)
class Offload:
    """The copy of a ledger in tiered storage, complete or not (``OffloadContext``)."""

    uuid: UUID
    """A part of the names of the objects; each attempt to offload the ledger has a new uuid."""
    driver: str
    properties: Mapping[str, str]
    """The driver's description of the store; the broker that wrote it may have had other settings."""
    complete: bool = False
    """Whether the ledger can be read from tiered storage."""
    local_deleted: bool = False
    """Whether the ledger store has no copy any more (``bookkeeperDeleted``)."""
    completed_ms: int = 0
    """The time when the upload was complete, in ms since 1970."""
    rest: bytes = b""
    """Fields of the record that this release does not know, in wire format."""


@dataclass(slots=True)
class LedgerSummary:
    """One of the ledgers in the record of a managed ledger."""

    ledger_id: int
    entries: int = 0
    """The number of entries of a closed ledger; for the open ledger the number of durable entries."""
    size: int = 0
    closed_ms: int = 0
    """The time when the ledger was closed, in ms since 1970; 0 while it is open."""
    rest: bytes = b""
    """Unknown fields in wire format."""
    offload: Offload | None = None
    """The copy in tiered storage; None: the ledger was never offloaded."""


@dataclass(slots=True)
class ManagedLedgerRecord:
    ledgers: list[LedgerSummary] = field(default_factory=list)
    terminated: Position | None = None
    properties: dict[str, str] = field(default_factory=dict)
    rest: bytes = b""
    """Unknown fields in wire format."""


def decode_managed_ledger(value: bytes, path: str) -> ManagedLedgerRecord:
    """Decodes the record of a managed ledger.

    :raises MetadataDamaged: the value is not a ManagedLedgerInfo
    """
    info = _decode(pb.ManagedLedgerInfo, value, path, pb.ManagedLedgerInfoMetadata)
    ledgers = [_decode_ledger(entry) for entry in info.ledgerInfo]
    if any(a.ledger_id >= b.ledger_id for a, b in pairwise(ledgers)):
        raise MetadataDamaged(f"{path}: ledger ids do not ascend")
    terminated = None
    if info.HasField("terminatedPosition"):
        terminated = (info.terminatedPosition.ledgerId, info.terminatedPosition.entryId)
        # Other fields that were written there are kept in ``rest``.
        if not _rest(info.terminatedPosition, "ledgerId", "entryId"):
            info.ClearField("terminatedPosition")
    properties = {p.key: p.value for p in info.properties}
    return ManagedLedgerRecord(ledgers, terminated, properties, _rest(info, "ledgerInfo", "properties"))


def _decode_ledger(entry: pb.ManagedLedgerInfo.LedgerInfo) -> LedgerSummary:
    ledger_id, entries, size, closed_ms = entry.ledgerId, entry.entries, entry.size, entry.timestamp
    offload = _decode_offload(entry.offloadContext) if entry.HasField("offloadContext") else None
    known = ["ledgerId", "entries", "size", "timestamp"]
    if offload is not None:
        known.append("offloadContext")
    return LedgerSummary(ledger_id, entries, size, closed_ms, _rest(entry, *known), offload)


def _decode_offload(context: pb.OffloadContext) -> Offload | None:
    """Returns the offload in a record; None if the ledger has no offload, or an offload of another kind
    (``offloadSegment``), which is kept unchanged.
    """
    if not (context.HasField("uidMsb") and context.HasField("uidLsb")) or context.offloadSegment:
        return None
    # Most brokers do not offload, and the module costs a start 2 ms.
    from uuid import UUID

    return Offload(
        UUID(bytes=_UUID.pack(context.uidMsb, context.uidLsb)),
        context.driverMetadata.name,
        {each.key: each.value for each in context.driverMetadata.properties},
        context.complete,
        context.bookkeeperDeleted,
        context.timestamp,
        _rest(context, "uidMsb", "uidLsb", "complete", "bookkeeperDeleted", "timestamp", "driverMetadata"),
    )


def _encode_offload(target: pb.OffloadContext, offload: Offload) -> None:
    target.MergeFromString(offload.rest)
    target.uidMsb, target.uidLsb = _UUID.unpack(offload.uuid.bytes)
    target.complete = offload.complete
    if offload.local_deleted:
        target.bookkeeperDeleted = True
    if offload.completed_ms:
        target.timestamp = offload.completed_ms
    target.driverMetadata.name = offload.driver
    for key, value in offload.properties.items():
        target.driverMetadata.properties.add(key=key, value=value)


def encode_managed_ledger(record: ManagedLedgerRecord) -> bytes:
    info = pb.ManagedLedgerInfo()
    info.MergeFromString(record.rest)
    for summary in record.ledgers:
        entry = info.ledgerInfo.add(ledgerId=summary.ledger_id)
        entry.MergeFromString(summary.rest)
        if summary.closed_ms:
            entry.entries = summary.entries
            entry.size = summary.size
            entry.timestamp = summary.closed_ms
        if summary.offload is not None:
            _encode_offload(entry.offloadContext, summary.offload)
    if record.terminated is not None:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = record.terminated
    for key, value in record.properties.items():
        info.properties.add(key=key, value=value)
    return info.SerializeToString()


@dataclass(slots=True)
class CursorRecord:
    """The metadata record of a cursor. If ``ledger_id`` is not -1, that ledger contains the state; the record
    contains only a mark-delete position, which may be older.
    """

    ledger_id: int
    state: AcknowledgedState
    properties: dict[str, int] = field(default_factory=dict)
    cursor_properties: dict[str, str] = field(default_factory=dict)
    rest: bytes = b""
    """The fields of the record for which this class has no attribute, in wire format."""


class LedgerSizes:
    """The numbers of entries in the ledgers of a managed ledger, for ranges over several ledgers."""

    def __init__(self, ledgers: Iterable[LedgerSummary] = ()) -> None:
        self._entries = {each.ledger_id: each.entries for each in ledgers}
        self._ids = sorted(self._entries)

    def between(self, lower: Position, upper: Position) -> Iterator[tuple[int, int, int]]:
        """Yields (ledger, first entry, entry after the last) for the entries after ``lower``, up to
        ``upper``.

        Deleted ledgers are left out, except the ledger of ``upper``.
        """
        ledger_id, entry_id = upper
        if lower[0] == ledger_id:
            yield ledger_id, lower[1] + 1, entry_id + 1
            return
        if lower[0] in self._entries:
            yield lower[0], lower[1] + 1, self._entries[lower[0]]
        for whole in self._ids[bisect_right(self._ids, lower[0]) : bisect_left(self._ids, ledger_id)]:
            yield whole, 0, self._entries[whole]
        yield ledger_id, 0, entry_id + 1


_UNKNOWN_SIZES = LedgerSizes()


def _ranges_from(ranges: Iterable[pb.MessageRange], state: AcknowledgedState, sizes: LedgerSizes) -> None:
    for entry in ranges:
        lower, upper = entry.lowerEndpoint, entry.upperEndpoint
        for ledger_id, start, end in sizes.between(
            (lower.ledgerId, lower.entryId), (upper.ledgerId, upper.entryId)
        ):
            state.add_range(ledger_id, start, end)


def _words(bits: int) -> list[int]:
    words = []
    while bits:
        word = bits & _WORD
        words.append(word - (1 << 64) if word >> 63 else word)
        bits >>= 64
    return words


def bits_from_words(words: Iterable[int]) -> int:
    """Returns a bit set from 64-bit words, signed or unsigned, the lowest first."""
    bits = 0
    for index, word in enumerate(words):
        bits |= (word & _WORD) << (64 * index)
    return bits


def words_from_bits(bits: int) -> list[int]:
    """Returns signed 64-bit words, the lowest first, without zero words at the end."""
    return _words(bits)


def _fill_batches(
    target: pb.PositionInfo | pb.ManagedCursorInfo, state: AcknowledgedState, limit: int
) -> None:
    for (ledger_id, entry_id), remaining in state.batches_in_order(limit):
        info = target.batchedEntryDeletionIndexInfo.add()
        info.position.ledgerId = ledger_id
        info.position.entryId = entry_id
        info.deleteSet.extend(_words(remaining))


def _fill_ranges(
    target: pb.PositionInfo | pb.ManagedCursorInfo, state: AcknowledgedState, limit: int
) -> None:
    for ledger_id, start, end in state.ranges_in_order(limit):
        entry = target.individualDeletedMessages.add()
        entry.lowerEndpoint.ledgerId = ledger_id
        entry.lowerEndpoint.entryId = start - 1
        entry.upperEndpoint.ledgerId = ledger_id
        entry.upperEndpoint.entryId = end - 1


def encode_position(
    state: AcknowledgedState, properties: dict[str, int], max_ranges: int, max_batches: int
) -> bytes:
    """Encodes a cursor's state as a ``PositionInfo``, which becomes one entry of the cursor's ledger."""
    info = pb.PositionInfo(ledgerId=state.mark_delete[0], entryId=state.mark_delete[1])
    _fill_ranges(info, state, max_ranges)
    _fill_batches(info, state, max_batches)
    for name, value in properties.items():
        info.properties.add(name=name, value=value)
    return info.SerializeToString()


def decode_position(
    value: bytes, path: str, sizes: LedgerSizes = _UNKNOWN_SIZES, *, ranges: bool = True
) -> tuple[AcknowledgedState, dict[str, int]]:
    """Decodes a ``PositionInfo``; returns the state of the cursor, and the properties stored with the state.

    :param sizes: the numbers of entries in the ledgers in which the cursor may have ranges
    :param ranges: whether to include the entries that are consumed above the mark-delete position
    :raises MetadataDamaged: the value is not a PositionInfo
    """
    info = _decode(pb.PositionInfo, value, path, None)
    state = AcknowledgedState((info.ledgerId, info.entryId))
    if not ranges:
        return state, {p.name: p.value for p in info.properties}
    _ranges_from(info.individualDeletedMessages, state, sizes)
    for bits in info.individualDeletedMessageRanges:
        state.add_words(bits.key, array("q", bits.values))
    for batch in info.batchedEntryDeletionIndexInfo:
        state.batches[(batch.position.ledgerId, batch.position.entryId)] = bits_from_words(batch.deleteSet)
    return state, {p.name: p.value for p in info.properties}


def encode_cursor(record: CursorRecord, max_ranges: int, max_batches: int) -> bytes:
    """Encodes the record of a cursor as a ``ManagedCursorInfo``, with the whole state if the cursor has no
    ledger, otherwise with the current mark-delete position only.
    """
    state = record.state
    info = pb.ManagedCursorInfo(
        cursorsLedgerId=record.ledger_id,
        markDeleteLedgerId=state.mark_delete[0],
        markDeleteEntryId=state.mark_delete[1],
    )
    info.MergeFromString(record.rest)
    if record.ledger_id == -1:
        _fill_ranges(info, state, max_ranges)
        _fill_batches(info, state, max_batches)
    for name, value in record.properties.items():
        info.properties.add(name=name, value=value)
    for name, text in record.cursor_properties.items():
        info.cursorProperties.add(name=name, value=text)
    return info.SerializeToString()


def decode_cursor(value: bytes, path: str, sizes: LedgerSizes = _UNKNOWN_SIZES) -> CursorRecord:
    """Decodes the record of a cursor.

    :param sizes: the numbers of entries in the ledgers in which the cursor may have ranges
    :raises MetadataDamaged: the value is not a ManagedCursorInfo
    """
    info = _decode(pb.ManagedCursorInfo, value, path, pb.ManagedCursorInfoMetadata)
    state = AcknowledgedState((info.markDeleteLedgerId, info.markDeleteEntryId))
    _ranges_from(info.individualDeletedMessages, state, sizes)
    for batch in info.batchedEntryDeletionIndexInfo:
        state.batches[(batch.position.ledgerId, batch.position.entryId)] = bits_from_words(batch.deleteSet)
    ledger_id = info.cursorsLedgerId
    properties = {p.name: p.value for p in info.properties}
    cursor_properties = {p.name: p.value for p in info.cursorProperties}
    return CursorRecord(ledger_id, state, properties, cursor_properties, _rest(info, *_CURSOR_FIELDS))


def is_large(state: AcknowledgedState, max_ranges: int) -> bool:
    """Whether the state has too many ranges, or too many blocks with gaps, to write the ranges one by one."""
    return state.block_count() > _LARGE_BLOCKS or state.range_count() > max_ranges


async def encode_large(
    io: Io, state: AcknowledgedState, properties: Callable[[], dict[str, int]], max_batches: int
) -> tuple[list[bytes], float]:
    """Encodes a large state as entries; returns the entries, and the seconds that the encoding took.

    Acknowledgements during the call may be included or not. The mark-delete position is taken last, so that
    no entry is missing that moved from the individually deleted entries to below that position.
    """
    parts: list[list[bytes]] = [[]]
    room = _PART_WORDS
    spent, began = 0.0, io.clock.monotonic()
    running = Slice(io, _KIND)
    for ledger_id in sorted(state.ranges):
        ranges = state.ranges.get(ledger_id)
        if ranges is None:
            continue
        words = ranges.words()
        if len(words) > room and parts[-1]:
            parts.append([])
            room = _PART_WORDS
        room -= len(words)
        info = pb.PositionInfo()
        info.individualDeletedMessageRanges.add(key=ledger_id).values.extend(words)
        # The fields of one message may come in pieces.
        parts[-1].append(info.SerializePartialToString())
        if running.is_over():
            running.end()
            spent += io.clock.monotonic() - began
            await next_turn(io)
            began = io.clock.monotonic()
            running.begin()
    entries = _joined(state, parts, properties(), max_batches)
    running.end()
    return entries, spent + io.clock.monotonic() - began


def _joined(
    state: AcknowledgedState, parts: list[list[bytes]], properties: dict[str, int], max_batches: int
) -> list[bytes]:
    entries = []
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        told = dict(properties) if last else {}
        if len(parts) > 1:
            told |= {_PART: number, _PARTS: len(parts)}
        rest = encode_position(state, told, 0, max_batches if last else 0)
        entries.append(b"".join((rest, *part)))
    return entries


async def decode_newest(
    io: Io, read: Read, last: int, path: str, sizes: LedgerSizes
) -> tuple[AcknowledgedState, dict[str, int]]:
    """Reads the newest complete state in a cursor's ledger; returns the state and its properties.

    :param last: the last entry of the cursor ledger
    :param sizes: the numbers of entries in the data ledgers in which the cursor may have ranges
    :raises MetadataDamaged: there is no complete state, or it cannot be parsed
    """
    while last >= 0:
        entry = await read(last)
        properties = _properties(entry, path, last)
        parts = properties.get(_PARTS, 1)
        if properties.get(_PART, 1) == parts:
            break
        last -= properties.get(_PART, 1)
    else:
        raise MetadataDamaged(f"{path}: no complete state of the cursor was found")
    state, properties = decode_position(entry, f"{path}:{last}", sizes)
    running = Slice(io, _KIND)
    for number in range(last - parts + 1, last):
        part, _ = decode_position(await read(number), f"{path}:{number}", sizes)
        for ledger_id, ranges in part.ranges.items():
            if ledger_id > state.mark_delete[0]:
                state.ranges[ledger_id] = ranges
            elif ledger_id == state.mark_delete[0]:
                ranges.forget_below(state.mark_delete[1] + 1)
                if not ranges.is_empty():
                    state.ranges[ledger_id] = ranges
        if running.is_over():
            running.end()
            await next_turn(io)
            running.begin()
    running.end()
    return state, {name: value for name, value in properties.items() if name not in (_PART, _PARTS)}


def _properties(entry: bytes, path: str, number: int) -> dict[str, int]:
    return decode_position(entry, f"{path}:{number}", ranges=False)[1]
