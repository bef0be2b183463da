"""Messages that are larger than an entry: producers send them in chunks, one entry each, and consumers
assemble them.

Source: PIP 37. All chunks of a message have the same sequence id and ``uuid``; the position of the message is
the position of its last chunk.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from magnetar.client.exceptions import InvalidMessage, MessageTooBig, PulsarException
from magnetar.client.message import RawEntry
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import Done
from magnetar.client.timing import Expiring
from magnetar.io.interfaces import Loop
from magnetar.protocol.metadata import Entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

MAX_BYTES = 256 << 20
"""The maximum size of a chunked message, in bytes after compression and before encryption. Larger messages
are neither sent nor assembled.
"""
MARGIN_BYTES = 1024
"""Bytes of each entry that are reserved for the metadata of a chunk."""
_FIELDS = ("num_chunks_from_msg", "total_chunk_msg_size", "chunk_id")

Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Chunk:
    ledger_id: int
    entry_id: int
    metadata: MessageMetadata
    payload: bytes

    @property
    def is_last(self) -> bool:
        return bool(self.metadata.chunk_id == self.metadata.num_chunks_from_msg - 1)


def is_chunk(metadata: MessageMetadata) -> bool:
    """Whether the metadata belongs to a chunk with a valid number."""
    return metadata.HasField("chunk_id") and 0 <= metadata.chunk_id < metadata.num_chunks_from_msg


@dataclass(slots=True)
class ChunkedMessage:
    """The chunks of a message that have arrived so far."""

    first: Position = (-1, -1)
    """Position of the first chunk."""
    size: int = 0
    """Size of the whole message in bytes, as its first chunk states."""
    held: int = 0
    payloads: list[bytes] = field(default_factory=list)
    expected: int = 0
    """Index of the chunk that must arrive next, from 0; equal to the number of chunks once the message is
    complete.
    """
    missing: int = -1
    """Index of the first chunk that is missing although a later chunk has arrived; -1: no chunk is
    missing.
    """

    def add(self, chunk: Chunk) -> bool:
        """Adds a chunk; returns whether the message is now complete. Duplicate chunks are ignored."""
        number = chunk.metadata.chunk_id
        if number == 0:
            self.first = (chunk.ledger_id, chunk.entry_id)
            self.size, self.expected, self.missing = chunk.metadata.total_chunk_msg_size, 0, -1
            self.payloads, self.held = [], 0
        elif number > self.expected and self.missing < 0:
            self.missing = self.expected
        if number != self.expected or self.missing >= 0:
            return False
        self.expected += 1
        self.payloads.append(chunk.payload)
        self.held += len(chunk.payload)
        return chunk.is_last

    def content(self) -> bytes:
        """Returns the payload of the whole message, and releases the chunks."""
        whole = b"".join(self.payloads)
        self.payloads, self.held = [], 0
        return whole


def unchunked(metadata: MessageMetadata) -> MessageMetadata:
    """Returns the metadata of the message to which a chunk belongs."""
    found = MessageMetadata()
    found.CopyFrom(metadata)
    for name in _FIELDS:
        found.ClearField(name)
    return found


# Of producers


class SharedOutcome:
    """The outcome of a chunked message: success when all chunks are stored, failure as soon as any chunk
    fails.
    """

    __slots__ = ("_done", "_left")

    def __init__(self, done: Done, chunks: int) -> None:
        self._done: Done | None = done
        self._left = chunks

    def one(self, message_id: MessageId | None, error: PulsarException | None) -> None:
        """Called with the outcome of each chunk, in the order of the chunks."""
        self._left -= 1
        if self._done is not None and (error is not None or self._left == 0):
            done, self._done = self._done, None
            done(message_id, error)


def split(payload: bytes, metadata: bytes, uuid: str, room: int) -> Iterator[tuple[bytes, bytes]]:
    """Splits a message into chunks; yields the serialized metadata and the payload of each chunk.

    :param metadata: the metadata of the message, serialized
    :param room: maximum payload of a chunk, in bytes
    :raises MessageTooBig: ``room`` is not above 0, or the message exceeds the size that consumers assemble
    """
    if room <= 0:
        raise MessageTooBig("the metadata of the message leaves no room for its payload in a chunk")
    if len(payload) > MAX_BYTES:
        raise MessageTooBig(
            f"the message has {len(payload)} bytes; a message in chunks has at most {MAX_BYTES} bytes"
        )
    count = -(-len(payload) // room)
    for number in range(count):
        said = MessageMetadata(
            uuid=uuid, chunk_id=number, num_chunks_from_msg=count, total_chunk_msg_size=len(payload)
        )
        part = payload[number * room : (number + 1) * room]
        yield metadata + said.SerializePartialToString(), part


# Of consumers


class ChunkMissing(InvalidMessage):
    """A chunk arrived, but chunks before it are missing."""


class Chunks:
    """Assembles the chunked messages of one consumer, and remembers which entries each message consists
    of.
    """

    def __init__(
        self,
        loop: Loop,
        most: int,
        given_up: Callable[[list[Position]], object],
        *,
        seconds: float,
        late: Callable[[], object],
        expired: Callable[[list[Position]], object],
    ) -> None:
        """:param most: maximum number of incomplete messages

        :param given_up: called with the positions of the chunks of the oldest incomplete message when more
            than ``most`` messages are incomplete
        :param seconds: maximum time from the first to the last chunk, in seconds; 0: no limit
        :param late: called before messages expire, to add chunks that have arrived but are still queued
        :param expired: called with the positions of the chunks of a message that is still incomplete after
            ``seconds``
        """
        self._most = most
        self._given_up = given_up
        self._late = late
        self._expired = expired
        self._times = Expiring[str](loop, seconds, self._expire) if seconds else None
        self._open: OrderedDict[str, tuple[ChunkedMessage, list[Position]]] = OrderedDict()
        self._before: dict[Position, list[Position]] = {}
        """Positions of the earlier chunks by the position of the last chunk, for complete messages that are
        not acknowledged yet.
        """

    def add(self, entry: RawEntry) -> RawEntry | None:
        """Adds a chunk; returns the message that it completes, as one entry, or None while chunks are
        missing.

        :raises ChunkMissing: earlier chunks are missing
        :raises InvalidMessage: the chunk contradicts earlier chunks
        """
        metadata = entry.metadata
        chunk = Chunk(entry.ledger_id, entry.entry_id, metadata, entry.payload)
        if metadata.total_chunk_msg_size > MAX_BYTES:
            raise InvalidMessage(
                f"{entry.message_id()}: the message of {metadata.total_chunk_msg_size} bytes in chunks is "
                f"larger than the maximum of {MAX_BYTES} bytes"
            )
        message, positions = self._of(chunk)
        is_whole = message.add(chunk)
        if message.missing >= 0:
            self._drop(metadata.uuid)
            raise ChunkMissing(
                f"{entry.message_id()}: chunk {message.missing + 1} did not arrive before this chunk"
            )
        positions.append((entry.ledger_id, entry.entry_id))
        if message.held > message.size:
            self._drop(metadata.uuid)
            raise InvalidMessage(
                f"{entry.message_id()}: the chunks exceed the message size of {message.size} bytes"
            )
        if not is_whole:
            return None
        self._drop(metadata.uuid)
        if message.held != message.size:
            raise InvalidMessage(
                f"{entry.message_id()}: the chunks have {message.held} bytes in total, "
                f"not {message.size} as declared"
            )
        self._before[positions[-1]] = positions[:-1]
        whole = Entry(
            entry.entry.broker_metadata, unchunked(metadata), message.content(), sealed=entry.entry.sealed
        )
        return entry.with_entry(whole)

    def _of(self, chunk: Chunk) -> tuple[ChunkedMessage, list[Position]]:
        uuid = chunk.metadata.uuid
        known = self._open.get(uuid)
        if known is not None and chunk.metadata.chunk_id > 0:
            return known
        if chunk.metadata.chunk_id > 0:
            return ChunkedMessage(), []
        # A repeated first chunk starts the message again.
        self._drop(uuid)
        self._open[uuid] = known = (ChunkedMessage(), [])
        if self._times is not None:
            self._times.add(uuid)
        if len(self._open) > self._most:
            self._given_up(self._drop(next(iter(self._open))))
        return known

    def _drop(self, uuid: str) -> list[Position]:
        """Stops assembling a message; returns the positions of its chunks."""
        if self._times is not None:
            self._times.remove(uuid)
        _, positions = self._open.pop(uuid, (None, []))
        return positions

    def _expire(self, uuids: list[str]) -> None:
        over = [(uuid, self._open[uuid]) for uuid in uuids]
        # A program that seldom receives may have the missing chunks in its queue.
        self._late()
        for uuid, waited_for in over:
            if self._open.get(uuid) is waited_for:
                self._expired(self._drop(uuid))

    @property
    def are_delivered(self) -> bool:
        """Whether any delivered chunked message is unacknowledged; if not, :meth:`acknowledged` has no
        effect.
        """
        return bool(self._before)

    def acknowledged(self, position: Position) -> list[Position]:
        """Called when a message is acknowledged; returns the positions of its other chunks, which the caller
        must acknowledge, too.

        :param position: the position of the message, which is the position of its last chunk
        """
        return self._before.pop(position, [])

    def acknowledged_until(self, bound: Position) -> None:
        """Records that all messages up to ``bound`` are acknowledged."""
        if self._before:
            self._before = {last: rest for last, rest in self._before.items() if last > bound}

    def all_of(self, positions: list[Position]) -> list[Position]:
        """Returns the positions of messages to redeliver, with the positions of all earlier chunks added."""
        if not self._before:
            return positions
        return [each for last in positions for each in (*self._before.get(last, ()), last)]

    def forget(self) -> None:
        """Drops all chunks, because the broker delivers them again."""
        if self._times is not None:
            self._times.forget()
        self._open.clear()
        self._before.clear()
