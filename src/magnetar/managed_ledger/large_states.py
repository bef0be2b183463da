"""States of cursors with many individually deleted entries: a bit for each entry of a ledger, in Pulsar's
format for ``managedLedgerPersistIndividualAckAsLongArray``, over several entries of the cursor's ledger.

Each entry is a ``PositionInfo`` with the same mark-delete position, some of the ledgers, and two properties
with the number of the part and of all parts. Parts follow each other; a state whose last part is missing was
cut off by a crash, and the one before it counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.io.interfaces import Io
from magnetar.io.slices import Slice, next_turn
from magnetar.managed_ledger import records_pb2 as pb
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.errors import MetadataDamaged
from magnetar.managed_ledger.records import LedgerSizes, decode_position, encode_position

_PART_WORDS = 8 * 1024
"""Most words in one entry, except for a ledger that has more; each takes up to ten bytes."""
_LARGE_BLOCKS = 64
"""A state with more blocks that have gaps is written as bits, in slices."""
_KIND = "cursor state"
_PART = "magnetar.part"
_PARTS = "magnetar.parts"

Read = Callable[[int], Awaitable[bytes]]
"""Reads an entry of a cursor's ledger by its id."""


def is_large(state: AcknowledgedState, max_ranges: int) -> bool:
    """Whether it has more ranges than may be written one by one."""
    return state.block_count() > _LARGE_BLOCKS or state.range_count() > max_ranges


async def encode_large(
    io: Io, state: AcknowledgedState, properties: Callable[[], dict[str, int]], max_batches: int
) -> tuple[list[bytes], float]:
    """Returns the entries of a state, and the seconds it took to make them.

    What is acknowledged meanwhile may be included or not. The mark-delete position is taken last, so that
    entries that have moved from the individually deleted ones to below it are not missing.
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
    """Returns the newest complete state and its properties.

    :param last: the last entry of the ledger
    :param sizes: of the ledgers that it may have ranges in
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
