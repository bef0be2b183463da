"""The metadata of a ledger as Pulsar's offloaders store it: BookKeeper's protobuf message, without the line
and the length that precede the message in the metadata store. Pulsar reads the last entry, the length, the
state, the digest, the creation time, custom metadata and segments; it never stores the password. The metadata
of a ledger that was never stored on bookies names one imaginary bookie, because Pulsar's reader requires
segments and quorums, but sends no request to bookies.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from magnetar.ledger.bookkeeper import records_pb2 as pb
from magnetar.ledger.bookkeeper.digests import DigestType
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, Segment
from magnetar.ledger.interface import LedgerState, Quorums

_NOWHERE = "offloaded:3181"
_DIGESTS = {
    pb.LedgerMetadataFormat.CRC32: DigestType.CRC32,
    pb.LedgerMetadataFormat.HMAC: DigestType.MAC,
    pb.LedgerMetadataFormat.CRC32C: DigestType.CRC32C,
    pb.LedgerMetadataFormat.DUMMY: DigestType.DUMMY,
}
_NUMBERS = {digest: number for number, digest in _DIGESTS.items()}


def without_bookies(
    last_entry_id: int, length: int, ctime_ms: int, custom: Mapping[str, bytes] | None = None
) -> LedgerRecord:
    """Returns the metadata of a closed ledger that was never stored on bookies.

    :param length: the size of all entries in bytes
    :param ctime_ms: the time when the ledger was created, in milliseconds since 1970-01-01 UTC
    """
    return LedgerRecord(
        Quorums(),
        (Segment(0, (_NOWHERE,)),),
        LedgerState.CLOSED,
        last_entry_id,
        length,
        ctime_ms=ctime_ms,
        custom=dict(custom or {}),
    )


def check_offloadable(ledger_id: int, record: LedgerRecord) -> None:
    """Checks that a ledger can be offloaded.

    :raises ValueError: the ledger is open or empty
    """
    if record.state is not LedgerState.CLOSED or record.last_entry_id < 0 or record.length <= 0:
        raise ValueError(
            f"ledger {ledger_id} cannot be offloaded: it is {record.state.value} with last entry "
            f"{record.last_entry_id} and {record.length} bytes; close it first, and skip empty ledgers"
        )


def check_complete(name: str, record: LedgerRecord, entries: int, length: int) -> None:
    """Checks that an offload has written the whole ledger.

    :param name: the name of the object or folder, for errors
    :param length: the size of all entries in bytes
    :raises ValueError: the number of entries or bytes differs from the ledger's metadata
    """
    if (entries, length) != (record.last_entry_id + 1, record.length):
        raise ValueError(
            f"{name}: {entries} entries with {length} bytes were appended, but the ledger has "
            f"{record.last_entry_id + 1} with {record.length} bytes"
        )


def encoded(record: LedgerRecord) -> bytes:
    message = pb.LedgerMetadataFormat(
        quorumSize=record.quorums.write,
        ensembleSize=record.quorums.ensemble,
        length=record.length,
        lastEntryId=record.last_entry_id,
        state=pb.LedgerMetadataFormat.CLOSED,
        digestType=_NUMBERS[record.digest],
        ackQuorumSize=record.quorums.ack,
        ctime=record.ctime_ms,
    )
    for segment in record.segments:
        message.segment.add(firstEntryId=segment.first_entry_id, ensembleMember=segment.ensemble)
    for key, value in record.custom.items():
        message.customMetadata.add(key=key, value=value)
    return message.SerializeToString()


def decoded(data: bytes) -> LedgerRecord:
    """Returns the metadata of a ledger.

    :raises ValueError: the data is not the metadata of a closed ledger with entries
    """
    message = pb.LedgerMetadataFormat()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"the ledger metadata is not valid: {error}") from error
    if message.state != pb.LedgerMetadataFormat.CLOSED or message.lastEntryId < 0:
        raise ValueError(f"the ledger is not closed, or is empty: last entry {message.lastEntryId}")
    write = message.quorumSize
    return LedgerRecord(
        Quorums(
            message.ensembleSize, write, message.ackQuorumSize if message.HasField("ackQuorumSize") else write
        ),
        tuple(Segment(each.firstEntryId, tuple(each.ensembleMember)) for each in message.segment),
        LedgerState.CLOSED,
        message.lastEntryId,
        message.length,
        _DIGESTS[message.digestType],
        ctime_ms=message.ctime,
        custom={each.key: each.value for each in message.customMetadata},
    )
