"""Batch payloads: size, metadata and payload of each message; compressed as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import parse_message
from magnetar.protocol.pulsar_api_pb2 import SingleMessageMetadata

__all__ = ["BatchMessage", "build_batch", "split_batch"]

_SIZE = Struct(">I")


@dataclass(frozen=True, slots=True)
class BatchMessage:
    metadata: SingleMessageMetadata
    payload: bytes


def split_batch(payload: bytes, count: int) -> list[BatchMessage]:
    """Splits an uncompressed batch of ``count`` messages.

    Bytes behind the last message are ignored, as in official clients.

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
            raise EntryError(f"metadata of {size} bytes in {len(payload) - start}, message {index}")
        raw = payload[start : start + size]
        metadata = parse_message(SingleMessageMetadata(), raw, f"metadata of message {index}")
        start += size
        position = start + metadata.payload_size
        if metadata.payload_size < 0 or position > len(payload):
            raise EntryError(
                f"payload of {metadata.payload_size} bytes in {len(payload) - start}, message {index}"
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
