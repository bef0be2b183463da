"""Translates positions to the ledger ids of the target store, within entries and ledger metadata."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.broker.schemas import records_pb2 as schemas
from magnetar.exporting.stored_topics import NotExported
from magnetar.ledger.interface import LedgerReader
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.protocol.pulsar_api_pb2 import MessageIdData

_COMPACTED_TO = "pulsar/compactedTo"
_SIZE_BYTES = 4
_READ_BYTES = 1 << 20


def _split(entry: bytes) -> tuple[MessageIdData, int]:
    """Returns the message id in front of a compacted message, and the offset after the id.

    :raises NotExported: the entry is not a compacted message
    """
    end = _SIZE_BYTES + int.from_bytes(entry[:_SIZE_BYTES], "big")
    try:
        if end > len(entry):
            raise DecodeError("the entry ends inside the id")
        return MessageIdData.FromString(entry[_SIZE_BYTES:end]), end
    except DecodeError as error:
        raise NotExported(f"an entry of a compacted ledger must be a message with its id: {error}") from error


async def ledgers_in_compacted(reader: LedgerReader) -> set[int]:
    """Returns the ids of the topic's ledgers from which a compacted ledger has messages.

    :raises LedgerError: the ledger cannot be read
    """
    found: set[int] = set()
    at, last = 0, reader.metadata.last_entry_id
    while at <= last:
        for run in await reader.read(at, last, _READ_BYTES):
            found.update(_split(run.entry(index))[0].ledgerId for index in range(run.count))
            at += run.count
    return found


def compacted_message(entry: bytes, moved: MovedLedgers) -> bytes:
    """Returns an entry of a compacted ledger in which the message id contains the ledger id at the target.

    :raises NotExported: the message is from a ledger that was not moved
    """
    message_id, end = _split(entry)
    place = moved.exactly((message_id.ledgerId, message_id.entryId))
    if place is None:
        raise NotExported(f"a compacted message is from the unknown ledger {message_id.ledgerId}")
    message_id.ledgerId = place[0]
    encoded = message_id.SerializeToString()
    return len(encoded).to_bytes(_SIZE_BYTES, "big") + encoded + entry[end:]


def compacted_metadata(custom: Mapping[str, bytes], moved: MovedLedgers) -> dict[str, bytes]:
    """Returns the custom metadata of a compacted ledger for the target: the position up to which the topic is
    compacted gets the ledger id at the target.
    """
    found = dict(custom)
    if _COMPACTED_TO in found:
        horizon = MessageIdData.FromString(found[_COMPACTED_TO])
        place = (horizon.ledgerId, horizon.entryId)
        horizon.ledgerId, horizon.entryId = moved.exactly(place) or moved.mark(place)
        found[_COMPACTED_TO] = horizon.SerializeToString()
    return found


def schema_entry(entry: bytes, ledgers: Mapping[int, int]) -> bytes:
    """Returns a schema entry in which each position of an earlier version has the id of the ledger's copy.

    :raises NotExported: the entry is not a schema
    """
    try:
        record = schemas.SchemaEntry.FromString(entry)
    except DecodeError as error:
        raise NotExported(f"an entry of a schema's ledger is not a schema: {error}") from error
    for before in record.index:
        # A deleted version is never requested.
        before.position.ledgerId = ledgers.get(before.position.ledgerId, -1)
    return record.SerializeToString()


def schema_locator(value: bytes, ledgers: Mapping[int, int], path: str) -> bytes:
    """Returns a schema's locator in which each position has the id of the ledger's copy.

    :raises NotExported: the value is not a locator, or contains a ledger that was not copied
    """
    try:
        locator = schemas.SchemaLocator.FromString(value)
        for each in (locator.info, *locator.index):
            each.position.ledgerId = ledgers[each.position.ledgerId]
    except (DecodeError, KeyError) as error:
        raise NotExported(f"{path} is not a schema locator: {error}") from error
    return locator.SerializeToString()


def without_id(entry: bytes) -> bytes:
    """Returns the topic's entry that an entry of a compacted ledger contains, without the message id in
    front.

    :raises NotExported: the entry is not a compacted message
    """
    return entry[_split(entry)[1] + _SIZE_BYTES :]


class Moved(NamedTuple):
    """A ledger of a topic, with its id at the source and at the target."""

    old: int
    new: int
    entries: int
    """The number of entries; -1: the ledger was deleted before, and has a new id for positions that refer to
    it."""


class MovedLedgers:
    """The ledgers of one topic. Old and new ids ascend, so the order of positions is kept."""

    def __init__(self, ledgers: Iterable[Moved]) -> None:
        self._all = {each.old: each for each in ledgers}
        self._kept = sorted(each for each in self._all.values() if each.entries >= 0)

    def exactly(self, position: Position) -> Position | None:
        """Returns the new position of a message, even of a deleted one; None if its ledger was not
        exported."""
        moved = self._all.get(position[0])
        return None if moved is None else (moved.new, position[1])

    def mark(self, position: Position) -> Position:
        """Returns the mark-delete position at the target for a mark-delete position at the source.

        The entries after the new position are the copies of the entries after the original position.

        For a deleted ledger, the result is the position before the first entry of the next existing ledger.
        The result is never beyond the last entry of a ledger.
        """
        ledger_id, entry_id = position
        at = bisect_right(self._kept, (ledger_id, 1 << 63, 0))
        if at and self._kept[at - 1].old == ledger_id:
            moved = self._kept[at - 1]
            return moved.new, min(entry_id, moved.entries - 1)
        if at < len(self._kept):
            return self._kept[at].new, -1
        if not self._kept:
            return EARLIEST
        last = self._kept[-1]
        return last.new, last.entries - 1

    def state(self, state: AcknowledgedState) -> AcknowledgedState:
        """Returns a cursor's acknowledged state in which all positions are positions at the target; entries
        of deleted ledgers are left out.
        """
        found = AcknowledgedState(self.mark(state.mark_delete))
        for moved in self._kept:
            ranges = state.ranges.get(moved.old)
            if ranges is not None:
                for start, end in ranges.in_order():
                    found.add_range(moved.new, start, min(end, moved.entries))
        for (ledger_id, entry_id), left in state.batches.items():
            kept = self._all.get(ledger_id)
            if kept is not None and entry_id < kept.entries and not found.contains(kept.new, entry_id):
                found.batches[(kept.new, entry_id)] = left
        return found
