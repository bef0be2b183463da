"""A ledger's metadata: its quorums, which bookies have which entries, its state and its last entry.

The format is BookKeeper's: a line with the format version, then a protobuf message after its length
(https://github.com/apache/bookkeeper/blob/release-4.17.2/bookkeeper-proto/src/main/proto/DbLedgerStorageDataFormats.proto
and ``LedgerMetadataSerDe``). Version 2, which is text, can be read; unknown fields are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.bookkeeper import records_pb2 as pb
from magnetar.ledger.bookkeeper.digests import DigestType
from magnetar.ledger.interface import DataDamaged, Groups, LedgerError, LedgerState, Quorums

_NO_END = (1 << 63) - 1
_LINE = b"BookieMetadataFormatVersion\t"
_MAX_LINE = 64
_STATES = {
    pb.LedgerMetadataFormat.OPEN: LedgerState.OPEN,
    pb.LedgerMetadataFormat.IN_RECOVERY: LedgerState.IN_RECOVERY,
    pb.LedgerMetadataFormat.CLOSED: LedgerState.CLOSED,
}
_NUMBERS = {state: number for number, state in _STATES.items()}
_DIGESTS = {
    pb.LedgerMetadataFormat.CRC32: DigestType.CRC32,
    pb.LedgerMetadataFormat.HMAC: DigestType.MAC,
    pb.LedgerMetadataFormat.CRC32C: DigestType.CRC32C,
    pb.LedgerMetadataFormat.DUMMY: DigestType.DUMMY,
}
_DIGEST_NUMBERS = {digest: number for number, digest in _DIGESTS.items()}
CUSTOM = "EnsemblePlacementPolicyConfig"
"""The key of the isolation groups in a ledger's custom metadata."""
_POLICY = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
_FIRST, _FURTHER = "isolationBookieGroups", "secondaryIsolationBookieGroups"


class Segment(NamedTuple):
    """An ensemble, and the first entry that it stores; a segment ends where the next one begins."""

    first_entry_id: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True)
class LedgerRecord:
    """One version of a ledger's metadata."""

    quorums: Quorums
    segments: tuple[Segment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = -1
    """The id of the last entry of a closed ledger; -1: the ledger is not closed, or has no entries."""
    length: int = 0
    digest: DigestType = DigestType.CRC32C
    password: bytes = b""
    ctime_ms: int = 0
    """The time of creation, in ms since 1970; 0: unknown."""
    custom: Mapping[str, bytes] = field(default_factory=dict)
    token: int = 0
    """A number that identifies the creator of the ledger while it is open."""
    unknown: bytes = b""
    """Fields of a newer release, unchanged."""

    def ensemble_of(self, entry_id: int) -> tuple[str, ...]:
        """Returns the bookies of the segment to which an entry belongs."""
        found = self.segments[0]
        for segment in self.segments:
            if segment.first_entry_id > entry_id:
                break
            found = segment
        return found.ensemble

    def end_of_segment(self, entry_id: int) -> int:
        """Returns the last entry id of the segment to which an entry belongs; 2^63-1 for the last segment."""
        for segment in self.segments:
            if segment.first_entry_id > entry_id:
                return segment.first_entry_id - 1
        return _NO_END

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Returns the indexes of the bookies in the segment that store an entry, in the order of reading."""
        size = self.quorums.ensemble
        return tuple((entry_id + step) % size for step in range(self.quorums.write))

    @property
    def placed(self) -> Quorums:
        """Returns the quorums and the isolation groups of the ledger.

        :raises DataDamaged: the isolation groups cannot be parsed
        """
        return replace(self.quorums, groups=read(self.custom))

    def closed(self, last_entry_id: int, length: int) -> LedgerRecord:
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length, token=0)

    def in_recovery(self) -> LedgerRecord:
        return replace(self, state=LedgerState.IN_RECOVERY, last_entry_id=-1, length=0, token=0)

    def with_ensemble(self, first_entry_id: int, ensemble: Sequence[str]) -> LedgerRecord:
        """Returns the record with a new ensemble from ``first_entry_id`` on. No entry with this id or a
        higher one is confirmed yet."""
        kept = tuple(each for each in self.segments if each.first_entry_id < first_entry_id)
        segment = Segment(first_entry_id, tuple(ensemble))
        return replace(self, segments=(*kept, segment), token=0)


def encoded(record: LedgerRecord) -> bytes:
    message = pb.LedgerMetadataFormat.FromString(record.unknown) if record.unknown else _empty()
    message.quorumSize = record.quorums.write
    message.ensembleSize = record.quorums.ensemble
    message.ackQuorumSize = record.quorums.ack
    message.length = record.length
    message.lastEntryId = record.last_entry_id
    message.state = _NUMBERS[record.state]
    message.digestType = _DIGEST_NUMBERS[record.digest]
    message.password = record.password
    message.cToken = record.token
    if record.ctime_ms:
        message.ctime = record.ctime_ms
    for segment in record.segments:
        message.segment.add(firstEntryId=segment.first_entry_id, ensembleMember=segment.ensemble)
    for key, value in sorted(record.custom.items()):
        message.customMetadata.add(key=key, value=value)
    body = message.SerializeToString()
    return _LINE + b"3\n" + _varint(len(body)) + body


def _empty() -> pb.LedgerMetadataFormat:
    return pb.LedgerMetadataFormat()


def decoded(data: bytes, path: str) -> LedgerRecord:
    """Returns the metadata of a ledger.

    :raises DataDamaged: the value is not the metadata of a ledger, or has an unknown version
    """
    line, newline, body = data[:_MAX_LINE].partition(b"\n")
    if not newline or not line.startswith(_LINE):
        raise DataDamaged(f"{path} is not the metadata of a ledger")
    version = line[len(_LINE) :]
    body = data[len(line) + 1 :]
    message = pb.LedgerMetadataFormat()
    try:
        if version == b"3":
            length, start = _taken_varint(body)
            if length != len(body) - start:
                raise DecodeError(f"the metadata has {len(body) - start} bytes instead of {length}")
            message.ParseFromString(body[start:])
        elif version == b"2":
            text_format.Parse(body.decode(), message)
        else:
            raise DataDamaged(
                f"{path} has metadata of the unsupported version {version.decode(errors='replace')!r}"
            )
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise DataDamaged(f"{path} is not valid metadata of a ledger: {error}") from error
    return _checked(message, path)


def _checked(message: pb.LedgerMetadataFormat, path: str) -> LedgerRecord:
    write = message.quorumSize
    quorums = Quorums(
        message.ensembleSize, write, message.ackQuorumSize if message.HasField("ackQuorumSize") else write
    )
    segments = tuple(Segment(each.firstEntryId, tuple(each.ensembleMember)) for each in message.segment)
    starts = [segment.first_entry_id for segment in segments]
    sound = (
        0 < quorums.ack <= quorums.write <= quorums.ensemble
        and segments
        and starts[0] == 0
        and starts == sorted(set(starts))
        and all(len(segment.ensemble) == quorums.ensemble for segment in segments)
    )
    if not sound:
        raise DataDamaged(f"{path}: the quorums and segments contradict each other: {quorums}, {segments}")
    digest = _DIGESTS[message.digestType] if message.HasField("digestType") else DigestType.CRC32
    custom = {each.key: each.value for each in message.customMetadata}
    rest = pb.LedgerMetadataFormat()
    rest.CopyFrom(message)
    for known in message.DESCRIPTOR.fields:
        rest.ClearField(known.name)
    return LedgerRecord(
        quorums,
        segments,
        _STATES[message.state],
        message.lastEntryId if message.HasField("lastEntryId") else -1,
        message.length,
        digest,
        message.password,
        message.ctime,
        custom,
        message.cToken,
        rest.SerializePartialToString(),
    )


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _taken_varint(data: bytes) -> tuple[int, int]:
    """Returns the number at the beginning of ``data``, and the offset after it."""
    number = 0
    for index, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, index + 1
    raise DecodeError("the record does not begin with the length of its contents")


_SHORT = 1 << 31
_SHORT_CUTS: tuple[int, ...] = (2, 4)
_LONG_CUTS: tuple[int, ...] = (3, 4, 4, 4)


def ledger_path(ledger_id: int) -> str:
    """Returns the path of a ledger's metadata, below the root of all ledgers."""
    return _cut(f"{ledger_id:010d}", _SHORT_CUTS) if ledger_id < _SHORT else long_ledger_path(ledger_id)


def long_ledger_path(ledger_id: int) -> str:
    """Returns the path in the layout where all ledgers have long ids."""
    return _cut(f"{ledger_id:019d}", _LONG_CUTS)


def _cut(digits: str, cuts: tuple[int, ...]) -> str:
    pieces = []
    for cut in cuts:
        pieces.append(digits[:cut])
        digits = digits[cut:]
    return "/" + "/".join(pieces) + f"/L{digits}"


def ledger_id_of(path: str) -> int | None:
    """Returns the ledger id in a path of either layout; None if it is not the path of a ledger."""
    digits = path.replace("/L", "").replace("/", "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return None
    found = int(digits)
    return found if found < 1 << 63 and path in (ledger_path(found), long_ledger_path(found)) else None


class BookiesUnavailable(LedgerError):
    """Too few of the bookies with the requested entries answered; the message lists the outcome of each
    request."""


class WrongPassword(LedgerError):
    """The ledger was created with another password (``managedLedgerPassword``)."""


class MetadataFailed(LedgerError):
    """The metadata of ledgers cannot be read or written; a change may have happened."""


def merged(ledger_id: int, ours: LedgerRecord, theirs: LedgerRecord) -> LedgerRecord:
    """Returns our record with AutoRecovery's changes. AutoRecovery copies the entries of a lost bookie to
    another one, and replaces the lost bookie in segments that receive no more entries.

    :param ours: the record as this writer knows it
    :param theirs: the stored record of an open ledger
    :raises LedgerError: the records differ in other ways
    """
    starts = [segment.first_entry_id for segment in ours.segments]
    elsewhere = (
        [segment.first_entry_id for segment in theirs.segments] != starts
        or theirs.segments[-1] != ours.segments[-1]
        or replace(theirs, segments=ours.segments, token=ours.token) != ours
    )
    if elsewhere:
        raise LedgerError(f"the metadata of ledger {ledger_id} was changed by another process: {theirs}")
    return theirs


def written(groups: Groups) -> bytes:
    properties = {_FIRST: _text(groups.first)}
    if groups.further:
        properties[_FURTHER] = _text(groups.further)
    config = {"policyClass": _POLICY, "properties": properties}
    return json.dumps(config, indent=2, separators=(",", " : ")).encode()


def read(custom: Mapping[str, bytes]) -> Groups | None:
    """Returns the isolation groups of a ledger; None if any bookie may store it.

    :raises DataDamaged: the value is not in Pulsar's form
    """
    value = custom.get(CUSTOM)
    if value is None:
        return None
    try:
        properties = json.loads(value)["properties"]
        first, further = (_names(properties.get(name) or "") for name in (_FIRST, _FURTHER))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataDamaged(f"{CUSTOM} of a ledger's metadata cannot be read: {value[:200]!r}") from error
    return Groups(first, further) if first else None


def _text(names: Iterable[str]) -> str:
    return ",".join(sorted(names))


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))
