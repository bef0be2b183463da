"""Responses with a stored entry: the body is the payload, and headers contain all other fields, as in
Pulsar.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime

from magnetar.broker.admin.messages import ExaminedEntry
from magnetar.errors import PersistenceFailure
from magnetar.managed_ledger.position import format_position
from magnetar.protocol.compression import decompress_in_pieces
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.metadata import Entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import CompressionType


class StoredMessage:
    """A stored entry that a response returns."""

    def __init__(self, stored: ExaminedEntry) -> None:
        """:raises PersistenceFailure: the entry cannot be parsed"""
        self._stored = stored
        self.name = format_position(stored.position)
        """The position of the entry, as ``ledger:entry``."""
        try:
            self._entry = parse_entry(stored.entry)
        except ProtocolError as error:
            raise self._unreadable(error) from error

    @property
    def _is_packed(self) -> bool:
        metadata = self._entry.metadata
        return metadata.compression != CompressionType.NONE and not metadata.encryption_keys

    @property
    def size(self) -> int:
        """The size of the decompressed payload in bytes, as the producer declared it; it may be wrong."""
        return self._entry.metadata.uncompressed_size if self._is_packed else len(self._entry.payload)

    def payload(self, most: int) -> bytes:
        """Returns the payload, decompressed unless it is encrypted.

        :param most: maximum size of the payload, in bytes
        :raises PersistenceFailure: the payload is damaged, or larger than ``most``
        """
        if not self._is_packed:
            return self._entry.payload
        try:
            return self._entry.uncompressed_payload(most)
        except ProtocolError as error:
            raise self._unreadable(error) from error

    def pieces(self, most: int) -> list[bytes]:
        """Like :meth:`payload`, but in pieces; for large payloads, call it in a thread."""
        if not self._is_packed:
            return [self._entry.payload]
        metadata = self._entry.metadata
        try:
            return decompress_in_pieces(
                metadata.compression, self._entry.payload, metadata.uncompressed_size, most
            )
        except ProtocolError as error:
            raise self._unreadable(error) from error

    def headers(self) -> list[tuple[str, str]]:
        """Returns the HTTP headers, which contain all fields of the entry except the payload."""
        found = [("X-Pulsar-Message-ID", self.name), *_headers(self._entry, self._stored)]
        return [(name, _printable(value)) for name, value in found]

    def _unreadable(self, error: ProtocolError) -> PersistenceFailure:
        return PersistenceFailure(f"The message stored at {self.name} cannot be read: {error}")


def _printable(value: str) -> str:
    """Converts a value so that a header can contain it: Latin-1 without line ends."""
    return "".join(c if " " <= c < "\x7f" or "\xa0" <= c <= "\xff" else "?" for c in value)


def _headers(entry: Entry, stored: ExaminedEntry) -> Iterator[tuple[str, str]]:
    metadata = entry.metadata
    if entry.broker_metadata is not None:
        if entry.broker_metadata.HasField("broker_timestamp"):
            yield "X-Pulsar-Broker-Entry-METADATA-timestamp", iso(entry.broker_metadata.broker_timestamp)
        if entry.broker_metadata.HasField("index"):
            yield "X-Pulsar-Broker-Entry-METADATA-index", str(entry.broker_metadata.index)
    properties = {pair.key: pair.value for pair in metadata.properties}
    yield "X-Pulsar-PROPERTY", json.dumps(properties, separators=(",", ":"))
    for name, field in _TIMES:
        if metadata.HasField(field):
            yield f"X-Pulsar-{name}", iso(getattr(metadata, field))
    if metadata.HasField("num_messages_in_batch"):
        yield "X-Pulsar-num-batch-message", str(metadata.num_messages_in_batch)
        yield "X-Pulsar-batch-size", str(metadata.ByteSize())
    yield "X-Pulsar-Is-Encrypted", "true" if metadata.encryption_keys else "false"
    for name, field in _PLAIN:
        value = getattr(metadata, field)
        if metadata.HasField(field) and value is not False:
            yield f"X-Pulsar-{name}", str(value).lower() if isinstance(value, bool) else str(value)
    if metadata.compression != CompressionType.NONE:
        yield "X-Pulsar-compression", CompressionType.Name(metadata.compression)
        yield "X-Pulsar-uncompressed-size", str(metadata.uncompressed_size)
    for name, field in _BYTES:
        if metadata.HasField(field):
            yield f"X-Pulsar-Base64-{name}", b64encode(getattr(metadata, field)).decode()
    for key in metadata.encryption_keys:
        yield "X-Pulsar-Base64-encryption-keys", b64encode(key.SerializeToString()).decode()
    for cluster in metadata.replicate_to:
        yield "X-Pulsar-replicated-to", cluster
    if metadata.HasField("txnid_least_bits") and metadata.HasField("txnid_most_bits"):
        yield "X-Pulsar-txnid-least-bits", str(metadata.txnid_least_bits)
        yield "X-Pulsar-txnid-most-bits", str(metadata.txnid_most_bits)
        yield "X-Pulsar-txn-aborted", str(stored.aborted).lower()
    yield "X-Pulsar-txn-uncommitted", str(stored.uncommitted).lower()


_LAST_MS = 253_402_300_799_999

_TIMES = (
    ("publish-time", "publish_time"),
    ("event-time", "event_time"),
    ("deliver-at-time", "deliver_at_time"),
)
_PLAIN = (
    ("producer-name", "producer_name"),
    ("sequence-id", "sequence_id"),
    ("highest-sequence-id", "highest_sequence_id"),
    ("partition-key", "partition_key"),
    ("partition-key-b64-encoded", "partition_key_b64_encoded"),
    ("null-value", "null_value"),
    ("null-partition-key", "null_partition_key"),
    ("replicated-from", "replicated_from"),
    ("encryption-algo", "encryption_algo"),
    ("uuid", "uuid"),
    ("chunk-id", "chunk_id"),
    ("num-chunks-from-msg", "num_chunks_from_msg"),
    ("total-chunk-msg-size", "total_chunk_msg_size"),
    ("marker-type", "marker_type"),
)
"""Names of headers, each with the metadata field that it contains."""

_BYTES = (
    ("schema-version", "schema_version"),
    ("ordering-key", "ordering_key"),
    ("encryption-param", "encryption_param"),
)


def iso(milliseconds: int) -> str:
    """Formats a time, given in milliseconds since 1970, as Java does: with milliseconds only if they are not
    zero. Times after the year 9999, which producers can send, are formatted as numbers.
    """
    if milliseconds > _LAST_MS:
        return str(milliseconds)
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    text = at.isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds")
    return text.replace("+00:00", "Z")
