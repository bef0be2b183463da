"""Converts messages of a producer to SENDs: encrypts them, and splits large ones into chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.client.attachment import Services
from magnetar.client.chunks import MARGIN_BYTES, chunk_frame, split
from magnetar.client.exceptions import MessageTooBig
from magnetar.client.producer_options import ProducerOptions
from magnetar.protocol.hot_client_encode import encode_send
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

if TYPE_CHECKING:
    from magnetar.client.encryption.payloads import Sealer


class Closing:
    """The conversion of one producer."""

    def __init__(self, producer_id: int, services: Services, options: ProducerOptions) -> None:
        """:raises CryptoError: the key for encryption cannot be read, or is not a key"""
        self._id = producer_id
        self._clock = services.io.clock
        self._sealer = _sealer(services, options)
        self._name = ""
        self._head = b""

    @property
    def encrypts(self) -> bool:
        return self._sealer is not None

    def announced(self, name: str, schema_version: bytes) -> None:
        """Sets the fields of the broker's answer, for the metadata of all following messages.

        :param schema_version: empty: the producer has no schema
        """
        self._name = name
        head = MessageMetadata(producer_name=name)
        if schema_version:
            head.schema_version = schema_version
        self._head = head.SerializePartialToString()

    def chunks(self, sequence_id: int, tail: bytes, payload: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Returns metadata and payload of the chunks of a message; empty: it fits into one entry.

        For a producer with chunking.

        :param tail: metadata of the message, serialized
        :param limit: largest payload that the broker accepts, in bytes
        :raises MessageTooBig: the message is larger than consumers assemble
        """
        grows = self._sealer.overhead_bytes if self._sealer is not None else 0
        room = limit - len(tail) - MARGIN_BYTES - grows
        if len(payload) <= room:
            return []
        return list(split(payload, tail, f"{self._name}-{sequence_id}", room))

    def frame(
        self, ids: tuple[int, int, int], tail: bytes, payload: bytes, limit: int, *, is_chunk: bool
    ) -> bytes | bytearray:
        """Returns a SEND with an entry.

        :param ids: sequence ids of its first and its last message (-1: only one), and the number of messages
        :raises CryptoError: the key is no longer available
        :raises MessageTooBig: the entry is larger than ``limit``
        """
        if self._sealer is not None:
            said, payload = self._sealer.seal(payload)
            tail += said
        if len(payload) > limit:
            raise MessageTooBig(f"the content has {len(payload)} bytes; at most {limit} are accepted")
        sequence_id, highest, count = ids
        now_ms = self._clock.wall_ms()
        if not is_chunk:
            return encode_send(self._id, sequence_id, highest, count, self._head, now_ms, tail, payload)
        metadata = MessageMetadata(sequence_id=sequence_id, publish_time=now_ms)
        metadata.MergeFromString(metadata.SerializePartialToString() + self._head + tail)
        return chunk_frame(self._id, metadata, payload)


def _sealer(services: Services, options: ProducerOptions) -> Sealer | None:
    """:raises CryptoError: the key does not exist"""
    if options.encryption_key is None or options.crypto_key_reader is None:
        return None
    # Imported late: most producers do not encrypt.
    from magnetar.client.encryption.payloads import Sealer

    io = services.io
    return Sealer((options.encryption_key,), options.crypto_key_reader, io.randomness, io.clock)
