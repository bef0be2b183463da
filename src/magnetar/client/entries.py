"""Converts a producer's messages to entries, and entries to a consumer's messages, with encryption and
chunking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from magnetar.client.attachment import Services
from magnetar.client.chunks import MARGIN_BYTES, ChunkMissing, Chunks, Position, is_chunk, split
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.exceptions import CryptoError, InvalidMessage, MessageTooBig
from magnetar.client.message import Message, RawEntry
from magnetar.client.options import ConsumerOptions, ProducerOptions
from magnetar.io.interfaces import ClientIo
from magnetar.protocol.frames import encode_with_payload
from magnetar.protocol.hot_client_encode import encode_send
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

if TYPE_CHECKING:
    from magnetar.client.encryption.payloads import Opener, Sealer
    from magnetar.client.transactions import OpenTransaction

log = logging.getLogger(__name__)


class Closing:
    """Converts the messages of one producer to entries."""

    def __init__(self, producer_id: int, services: Services, options: ProducerOptions) -> None:
        """:raises CryptoError: the encryption key cannot be read, or is not a valid key"""
        self._id = producer_id
        self._clock = services.io.clock
        self._sealer = _sealer(services, options)
        self._name = ""
        self._head = b""

    @property
    def encrypts(self) -> bool:
        return self._sealer is not None

    def announced(self, name: str, schema_version: bytes) -> None:
        """Called with the broker's answer to PRODUCER; stores the values for the metadata of all following
        messages.

        :param name: the name of the producer
        :param schema_version: the version of the producer's schema; empty without a schema
        """
        self._name = name
        head = MessageMetadata(producer_name=name)
        if schema_version:
            head.schema_version = schema_version
        self._head = head.SerializePartialToString()

    def chunks(self, sequence_id: int, tail: bytes, payload: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Splits a message into chunks; returns the metadata and the payload of each, or an empty list if the
        message fits into one entry. Only for producers with ``chunking_enabled``.

        :param tail: serialized metadata of the message, without sequence id and publish time
        :param limit: maximum message size that the broker accepts, in bytes
        :raises MessageTooBig: the message is larger than consumers assemble
        """
        grows = self._sealer.overhead_bytes if self._sealer is not None else 0
        room = limit - len(tail) - MARGIN_BYTES - grows
        if len(payload) <= room:
            return []
        return list(split(payload, tail, f"{self._name}-{sequence_id}", room))

    def frame(
        self,
        ids: tuple[int, int, int],
        tail: bytes,
        payload: bytes,
        limit: int,
        *,
        is_chunk: bool,
        transaction: OpenTransaction | None,
    ) -> bytes | bytearray:
        """Returns the frame of a SEND command with one entry.

        :param ids: sequence id of the first message, sequence id of the last message (-1 if there is only one
            message), and number of messages
        :param transaction: the transaction of the messages, whose id is also in ``tail``; None: no
            transaction
        :raises CryptoError: the key is no longer available
        :raises MessageTooBig: the entry is larger than ``limit``
        """
        if self._sealer is not None:
            said, payload = self._sealer.seal(payload)
            tail += said
        if len(payload) > limit:
            raise MessageTooBig(
                f"the payload has {len(payload)} bytes, but the broker accepts at most "
                f"{limit}; enable chunking, or send smaller messages"
            )
        sequence_id, highest, count = ids
        now_ms = self._clock.wall_ms()
        if not is_chunk and transaction is None:
            return encode_send(self._id, sequence_id, highest, count, self._head, now_ms, tail, payload)
        metadata = MessageMetadata(sequence_id=sequence_id, publish_time=now_ms)
        metadata.MergeFromString(metadata.SerializePartialToString() + self._head + tail)
        command = BaseCommand(type=BaseCommand.SEND)
        send = command.send
        send.producer_id, send.sequence_id = self._id, sequence_id
        if count != 1:
            send.num_messages = count
        if highest >= 0:
            send.highest_sequence_id = highest
        if is_chunk:
            send.is_chunk = True
        if transaction is not None:
            send.txnid_most_bits, send.txnid_least_bits = transaction.id
        return encode_with_payload(command, build_entry(metadata, payload))


def _sealer(services: Services, options: ProducerOptions) -> Sealer | None:
    """Returns the object that encrypts the payloads of a producer; None: no encryption.

    :raises CryptoError: the key does not exist
    """
    if options.encryption_key is None or options.crypto_key_reader is None:
        return None
    # Imported late: most producers do not encrypt.
    from magnetar.client.encryption.payloads import Sealer

    io = services.io
    return Sealer((options.encryption_key,), options.crypto_key_reader, io.randomness, io.clock)


class MessageOpening:
    """Converts the entries that one consumer receives to messages."""

    def __init__(
        self,
        io: ClientIo,
        topic: str,
        options: ConsumerOptions,
        *,
        used: Callable[[int], object],
        acknowledge: Callable[[Position], object],
        withheld: Callable[[Position], object],
        open_waiting: Callable[[], object],
        aside: Callable[[RawEntry], bool],
    ) -> None:
        """:param used: called with the number of messages that are not delivered, to return their permits

        :param acknowledge: called to acknowledge discarded entries
        :param withheld: called with the position of each entry that is neither delivered nor acknowledged
        :param open_waiting: called to pass all entries that are still queued to :meth:`messages`, before
            incomplete messages expire
        :param aside: called with each entry; returns True if it decompresses the entry in a thread, so that
            the messages of the entry follow later
        """
        self._clock = io.clock
        self._topic = topic
        self._used = used
        self._acknowledge = acknowledge
        self._withheld = withheld
        self._aside = aside
        self._action = options.crypto_failure_action
        self._discards_chunks = options.auto_ack_oldest_chunked_message_on_queue_full
        self._opener = _opener(options)
        self._chunks_ms = options.expire_time_of_incomplete_chunked_message_ms
        self.chunks = Chunks(
            io.loop,
            options.max_pending_chunked_message,
            self._give_up,
            seconds=self._chunks_ms / 1000,
            late=open_waiting,
            expired=self._expire,
        )

    def messages(self, entry: RawEntry, *, skipped: bool) -> Iterable[Message]:
        """Returns the messages of an entry; for a chunk, the chunked message if this chunk completes it.

        :param skipped: whether the entry is before the consumer's start position; chunks in such entries are
            not assembled
        :raises InvalidMessage: the entry cannot be split into messages
        """
        if entry.batch_size == 0:
            plain = entry.plain_message(self._topic)
            if plain is not None:
                return (plain,)
        metadata = entry.metadata
        if metadata.encryption_keys:
            try:
                entry = self._decrypted(entry)
            except CryptoError as error:
                return self._not_decrypted(entry, error)
            metadata = entry.metadata
        if not is_chunk(metadata):
            return self._messages(entry)
        whole = None
        try:
            if not skipped:
                whole = self.chunks.add(entry)
        except ChunkMissing as error:
            log.warning("%s: skipping a chunk: %s", self._topic, error)
            self._without_those_before(entry)
        except InvalidMessage as error:
            log.warning("%s: skipping a chunk: %s", self._topic, error)
        if whole is not None:
            return self._messages(whole)
        self._used(1)
        return ()

    def _messages(self, entry: RawEntry) -> Iterable[Message]:
        return () if self._aside(entry) else entry.messages(self._topic)

    def _decrypted(self, entry: RawEntry) -> RawEntry:
        if self._opener is None:
            raise CryptoError(
                "the message is encrypted, but the consumer has no crypto_key_reader; set this option"
            )
        return entry.with_entry(self._opener.opened(entry.entry))

    def _not_decrypted(self, entry: RawEntry, error: CryptoError) -> Iterable[Message]:
        if self._action is CryptoFailureAction.CONSUME:
            self._used(entry.num_messages - 1)
            return (entry.whole(self._topic),)
        self._used(entry.num_messages)
        if self._action is CryptoFailureAction.DISCARD:
            self._acknowledge((entry.ledger_id, entry.entry_id))
        else:
            log.warning(
                "%s: message %s is not delivered, because it cannot be decrypted: %s",
                self._topic,
                entry.message_id(),
                error,
            )
        return ()

    def _without_those_before(self, chunk: RawEntry) -> None:
        """Neither delivers nor acknowledges a chunk whose earlier chunks are missing, because the missing
        chunks may be redelivered; acknowledges the chunk if it has expired.
        """
        position = (chunk.ledger_id, chunk.entry_id)
        age_ms = self._clock.wall_ms() - chunk.metadata.publish_time
        if self._chunks_ms and age_ms > self._chunks_ms:
            self._acknowledge(position)
        else:
            self._withheld(position)

    def _give_up(self, positions: list[Position]) -> None:
        log.warning(
            "%s: discarding the oldest incomplete chunked message: there are more than "
            "max_pending_chunked_message",
            self._topic,
        )
        for position in positions:
            if self._discards_chunks:
                self._acknowledge(position)
            else:
                self._withheld(position)

    def _expire(self, positions: list[Position]) -> None:
        """Acknowledges the chunks of an expired message, as Pulsar's clients do, because the producer did not
        send the rest.
        """
        log.warning("%s: discarding a chunked message: its chunks did not arrive in time", self._topic)
        for position in positions:
            self._acknowledge(position)


def _opener(options: ConsumerOptions) -> Opener | None:
    if options.crypto_key_reader is None:
        return None
    # Imported late: most consumers do not decrypt.
    from magnetar.client.encryption.payloads import Opener

    return Opener(options.crypto_key_reader)
