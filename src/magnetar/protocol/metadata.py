"""Entries: the bytes after the command of SEND and MESSAGE, as they are stored.

[0x0e02, size, broker metadata] [0x0e01, checksum] metadata size, metadata, payload. This module is
not for the hot path.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar.io.crc32c import crc32c
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.compression import DEFAULT_MAX_UNCOMPRESSED_SIZE, decompress
from magnetar.protocol.errors import ChecksumMismatch, CompressionError, EntryError, missing_fields
from magnetar.protocol.pulsar_api_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)

__all__ = [
    "BROKER_MAGIC",
    "BatchMessage",
    "ChecksumMismatch",
    "CompressionError",
    "Entry",
    "EntryError",
    "broker_metadata_of",
    "broker_metadata_size",
    "build_batch",
    "build_entry",
    "checksum",
    "chunks_follow",
    "metadata_of",
    "parse_entry",
    "parse_message",
    "split_batch",
    "verify",
    "with_broker_metadata",
]
_MAGIC = b"\x0e\x01"
BROKER_MAGIC = b"\x0e\x02"
"""The bytes in front of broker entry metadata."""
_SIZE = Struct(">I")
_NOT_COMPRESSED = CompressionType.NONE
_Parsed = TypeVar("_Parsed", bound=Message)


@dataclass(frozen=True, slots=True)
class Entry:
    broker_metadata: BrokerEntryMetadata | None
    metadata: MessageMetadata
    payload: bytes
    """The payload as the producer compressed and encrypted it."""
    held: object = None
    """An object that is kept as long as the payload, because it accounts for the payload's memory."""
    sealed: MessageMetadata | None = None
    """The metadata before a client decrypted the payload; None: the payload was not encrypted, or is still
    encrypted.
    """

    @property
    def batch_size(self) -> int | None:
        """The number of messages in the batch; None if the payload is a single message, not a batch."""
        present = self.metadata.HasField("num_messages_in_batch")
        return self.metadata.num_messages_in_batch if present else None

    def uncompressed_payload(self, max_size: int = DEFAULT_MAX_UNCOMPRESSED_SIZE) -> bytes:
        """Returns the decompressed payload, of at most ``max_size`` bytes.

        :raises CompressionError: the payload is damaged or too large, or its codec is not installed
        :raises EntryError: the payload is encrypted, so that it cannot be decompressed
        """
        if self.metadata.compression == _NOT_COMPRESSED:
            return self.payload
        if self.metadata.encryption_keys:
            raise EntryError("the payload is encrypted")
        return decompress(self.metadata.compression, self.payload, self.metadata.uncompressed_size, max_size)


def parse_entry(data: bytes, *, verify_checksum: bool = True) -> Entry:
    """Parses an entry.

    :param verify_checksum: whether to verify the checksum, if the entry has one
    :raises ChecksumMismatch: the checksum does not match
    :raises EntryError: sizes contradict each other, or the metadata cannot be parsed
    """
    position = 0
    broker_metadata = None
    if data[:2] == BROKER_MAGIC:
        raw, position = _sized(data, 2, "broker metadata")
        broker_metadata = parse_message(BrokerEntryMetadata(), raw, "broker metadata")
    if data[position : position + 2] == _MAGIC:
        if len(data) - position < 6:
            raise EntryError("the entry ends inside its checksum")
        if verify_checksum:
            verify(memoryview(data)[position + 6 :], _SIZE.unpack_from(data, position + 2)[0])
        position += 6
    raw, position = _sized(data, position, "metadata")
    return Entry(broker_metadata, parse_message(MessageMetadata(), raw, "metadata"), data[position:])


def metadata_of(buffer: bytes, start: int, end: int) -> MessageMetadata:
    """Returns the metadata of the entry ``buffer[start:end]``; the payload is not read.

    :raises EntryError: sizes contradict each other, or the metadata cannot be parsed
    """
    position = start + broker_metadata_size(buffer, start)
    if buffer[position : position + 2] == _MAGIC:
        position += 6
    if end - position < 4:
        raise EntryError("the entry is truncated: it ends within the size field of its metadata")
    size = int(_SIZE.unpack_from(buffer, position)[0])
    if size > end - position - 4:
        raise EntryError("the entry ends inside its metadata")
    raw = bytes(buffer[position + 4 : position + 4 + size])
    return parse_message(MessageMetadata(), raw, "metadata")


def with_broker_metadata(metadata: BrokerEntryMetadata, entry: bytes) -> bytes:
    """Returns an entry with broker entry metadata in front."""
    raw = metadata.SerializeToString()
    return b"".join((BROKER_MAGIC, _SIZE.pack(len(raw)), raw, entry))


def broker_metadata_size(buffer: bytes, start: int) -> int:
    """Returns the size of the broker entry metadata in front of the entry at ``start``; 0 if
    there is none."""
    if buffer[start : start + 2] != BROKER_MAGIC or len(buffer) - start < 6:
        return 0
    return 6 + int(_SIZE.unpack_from(buffer, start + 2)[0])


def broker_metadata_of(entry: bytes) -> BrokerEntryMetadata | None:
    """Returns the broker entry metadata of an entry; None: the entry has no broker entry metadata.

    :raises EntryError: the broker entry metadata cannot be parsed
    """
    if entry[:2] != BROKER_MAGIC:
        return None
    raw, _position = _sized(entry, 2, "broker metadata")
    return parse_message(BrokerEntryMetadata(), raw, "broker metadata")


def build_entry(metadata: MessageMetadata, payload: bytes) -> bytes:
    """Returns an entry with a checksum, as producers send it."""
    raw = metadata.SerializeToString()
    checked = b"".join((_SIZE.pack(len(raw)), raw, payload))
    return b"".join((_MAGIC, _SIZE.pack(checksum(checked)), checked))


def chunks_follow(metadata: MessageMetadata) -> bool:
    """Whether an entry with this metadata is a chunk, but not the last chunk of its message."""
    return metadata.HasField("chunk_id") and metadata.chunk_id != metadata.num_chunks_from_msg - 1


def parse_message(message: _Parsed, raw: bytes, what: str) -> _Parsed:
    """Parses ``raw`` into ``message``.

    :param what: the name of the message in errors
    :raises EntryError: ``raw`` cannot be parsed, or lacks a required field
    """
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise EntryError(f"the {what} cannot be parsed: {error}") from error
    if not message.IsInitialized():
        raise EntryError(f"the {what} lacks the required {missing_fields(message)}")
    return message


def _sized(data: bytes, position: int, what: str) -> tuple[bytes, int]:
    """Returns the bytes after a size field, and the position after them."""
    if len(data) - position < 4:
        raise EntryError(f"the entry ends before its {what}")
    size = _SIZE.unpack_from(data, position)[0]
    start = position + 4
    if size > len(data) - start:
        raise EntryError(f"the {what} has {size} bytes, of which only {len(data) - start} are there")
    return data[start : start + size], start + size


def checksum(data: bytes | bytearray | memoryview) -> int:
    """Returns the CRC32-C (Castagnoli), unsigned 32 bit."""
    return crc32c(data)


def verify(data: bytes | bytearray | memoryview, expected: int) -> None:
    """Checks the CRC32C of ``data``.

    :raises ChecksumMismatch: ``data`` has another checksum
    """
    found = crc32c(data)
    if found != expected:
        raise ChecksumMismatch(expected, found)


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """One message of a batch. The payload of a batch has size, metadata and payload of each message, and is
    compressed as a whole."""

    metadata: SingleMessageMetadata
    payload: bytes


def split_batch(payload: bytes, count: int) -> list[BatchMessage]:
    """Splits an uncompressed batch of ``count`` messages.

    Bytes after the last message are ignored, as in official clients.

    :raises EntryError: the batch ends early, or a message's metadata cannot be parsed
    """
    messages = []
    position = 0
    for index in range(count):
        if len(payload) - position < 4:
            raise EntryError(f"the batch of {count} messages ends before message {index}")
        start = position + 4
        size = _SIZE.unpack_from(payload, position)[0]
        if size > len(payload) - start:
            raise EntryError(
                f"the metadata of message {index} has {size} bytes, of which only "
                f"{len(payload) - start} are there"
            )
        raw = payload[start : start + size]
        metadata = parse_message(SingleMessageMetadata(), raw, f"metadata of message {index}")
        start += size
        position = start + metadata.payload_size
        if metadata.payload_size < 0 or position > len(payload):
            raise EntryError(
                f"the payload of message {index} has {metadata.payload_size} bytes, of which only "
                f"{len(payload) - start} are there"
            )
        messages.append(BatchMessage(metadata, payload[start:position]))
    return messages


def build_batch(messages: Iterable[tuple[SingleMessageMetadata, bytes]]) -> bytes:
    """Returns an uncompressed batch payload; sets ``payload_size`` of each metadata."""
    parts: list[bytes] = []
    for metadata, payload in messages:
        metadata.payload_size = len(payload)
        raw = metadata.SerializeToString()
        parts += (_SIZE.pack(len(raw)), raw, payload)
    return b"".join(parts)
