"""From messages to SENDs, for a producer: encrypted, and in chunks where an entry has no room for them."""

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
    """Of one producer."""

    def __init__(self, producer_id: int, services: Services, options: ProducerOptions) -> None:
        """:raises CryptoError: the key for encryption is not to be had, or is none"""
        self._id = producer_id
        self._clock = services.io.clock
        self._sealer = _sealer(services, options)
        self._name = ""
        self._head = b""

    @property
    def encrypts(self) -> bool:
        return self._sealer is not None

    def announced(self, name: str, schema_version: bytes) -> None:
        """What the broker said of the producer, for the metadata of all that follows.

        :param schema_version: empty: it has declared nothing
        """
        self._name = name
        head = MessageMetadata(producer_name=name)
        if schema_version:
            head.schema_version = schema_version
        self._head = head.SerializePartialToString()

    def chunks(self, sequence_id: int, tail: bytes, payload: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Metadata and payload of the chunks of a message that an entry has no room for; none: it has.

        Of a producer that makes chunks.

        :param tail: the message's metadata, serialized
        :param limit: bytes of payload that the broker takes
        :raises MessageTooBig: it is larger than whoever reads puts together
        """
        grows = self._sealer.overhead_bytes if self._sealer is not None else 0
        room = limit - len(tail) - MARGIN_BYTES - grows
        if len(payload) <= room:
            return []
        return list(split(payload, tail, f"{self._name}-{sequence_id}", room))

    def frame(
        self, ids: tuple[int, int, int], tail: bytes, payload: bytes, limit: int, *, is_chunk: bool
    ) -> bytes | bytearray:
        """A SEND with an entry.

        :param ids: of its first message, of its last one (-1: there is no other), and how many there are
        :raises CryptoError: there is no key any more
        :raises MessageTooBig: it has more bytes than ``limit``
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
    """:raises CryptoError: there is no such key"""
    if options.encryption_key is None or options.crypto_key_reader is None:
        return None
    # Cryptography is loaded for those who ask for it.
    from magnetar.client.encryption.payloads import Sealer

    io = services.io
    return Sealer((options.encryption_key,), options.crypto_key_reader, io.randomness, io.clock)
