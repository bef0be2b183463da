"""Messages that are larger than an entry: sent in chunks, each an entry, and put together by who reads them.

Source: PIP 37. All chunks of a message have its sequence id and one ``uuid``; it is where its last chunk is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from magnetar.client.exceptions import InvalidMessage, MessageTooBig, PulsarException
from magnetar.client.expiring import Expiring
from magnetar.client.message import RawEntry
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import Done
from magnetar.io.interfaces import Loop
from magnetar.protocol.frames import encode_with_payload
from magnetar.protocol.metadata import Entry, build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

MAX_BYTES = 256 << 20
"""The largest message that is put together, as stored."""
MARGIN_BYTES = 1024
"""Of an entry, for what its metadata says besides what the message's does."""
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
    """Whether it is of a chunk, with a number that can be."""
    return metadata.HasField("chunk_id") and 0 <= metadata.chunk_id < metadata.num_chunks_from_msg


@dataclass(slots=True)
class ChunkedMessage:
    """What has come of one since its first chunk."""

    first: Position = (-1, -1)
    """Ledger and entry of the first chunk."""
    size: int = 0
    """Of all chunks, as the first one says."""
    held: int = 0
    payloads: list[bytes] = field(default_factory=list)
    expected: int = 0
    """The chunk that comes next; behind the last one: the message was whole."""
    missing: int = -1
    """The first chunk that did not come."""

    def add(self, chunk: Chunk) -> bool:
        """Whether it is whole with this one, which is the last. Chunks that were sent twice count once."""
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
        """All of it; nothing is held any more."""
        whole = b"".join(self.payloads)
        self.payloads, self.held = [], 0
        return whole


def unchunked(metadata: MessageMetadata) -> MessageMetadata:
    """The metadata of the message that a chunk is of."""
    found = MessageMetadata()
    found.CopyFrom(metadata)
    for name in _FIELDS:
        found.ClearField(name)
    return found


# Of producers


class SharedOutcome:
    """Chunks that are sent as one message: it is stored when all of them are, and fails with the first."""

    __slots__ = ("_done", "_left")

    def __init__(self, done: Done, chunks: int) -> None:
        self._done: Done | None = done
        self._left = chunks

    def one(self, message_id: MessageId | None, error: PulsarException | None) -> None:
        """Told of each chunk, in their order."""
        self._left -= 1
        if self._done is not None and (error is not None or self._left == 0):
            done, self._done = self._done, None
            done(message_id, error)


def chunk_frame(producer_id: int, metadata: MessageMetadata, payload: bytes) -> bytes:
    """A SEND with one chunk."""
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = producer_id
    command.send.sequence_id = metadata.sequence_id
    command.send.is_chunk = True
    return encode_with_payload(command, build_entry(metadata, payload))


def split(payload: bytes, metadata: bytes, uuid: str, room: int) -> Iterator[tuple[bytes, bytes]]:
    """Metadata and payload of each chunk.

    :param metadata: the message's, serialized
    :param room: bytes that a chunk may have
    :raises MessageTooBig: there is no room, or the message is larger than whoever reads puts together
    """
    if room <= 0 or len(payload) > MAX_BYTES:
        raise MessageTooBig(
            f"a message of {len(payload)} bytes cannot be sent in chunks of {max(0, room)} bytes: at "
            f"most {MAX_BYTES} bytes are allowed"
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
    """What goes before a chunk has not come."""


class Chunks:
    """Puts the messages of one consumer together, and knows which entries each is made of."""

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
        """:param most: messages of which not all chunks have come

        :param given_up: told of the chunks of the oldest one, when there are more
        :param seconds: from the first chunk on, in which the others have to come; 0: they may take any time
        :param late: called when that time is over for some: adds chunks that have come and were not taken yet
        :param expired: told of the chunks of a message that did not come whole in that time
        """
        self._most = most
        self._given_up = given_up
        self._late = late
        self._expired = expired
        self._times = Expiring[str](loop, seconds, self._expire) if seconds else None
        self._open: OrderedDict[str, tuple[ChunkedMessage, list[Position]]] = OrderedDict()
        self._before: dict[Position, list[Position]] = {}
        """Of messages that are whole and not acknowledged: the last chunk, and those before it."""

    def add(self, entry: RawEntry) -> RawEntry | None:
        """The message that is whole with this chunk, as if it had been one entry.

        :raises ChunkMissing: chunks before it have not come
        :raises InvalidMessage: they contradict it
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
            raise ChunkMissing(f"{entry.message_id()}: chunk {message.missing + 1} did not arrive before it")
        positions.append((entry.ledger_id, entry.entry_id))
        if message.held > message.size:
            self._drop(metadata.uuid)
            raise InvalidMessage(f"{entry.message_id()}: its chunks have more than {message.size} bytes")
        if not is_whole:
            return None
        self._drop(metadata.uuid)
        if message.held != message.size:
            raise InvalidMessage(f"{entry.message_id()}: {message.held} bytes, not {message.size}")
        self._before[positions[-1]] = positions[:-1]
        whole = Entry(entry.entry.broker_metadata, unchunked(metadata), message.content())
        return entry.with_entry(whole)

    def _of(self, chunk: Chunk) -> tuple[ChunkedMessage, list[Position]]:
        uuid = chunk.metadata.uuid
        known = self._open.get(uuid)
        if known is not None and chunk.metadata.chunk_id > 0:
            return known
        if chunk.metadata.chunk_id > 0:
            return ChunkedMessage(), []
        # A first chunk that comes again begins anew.
        self._drop(uuid)
        self._open[uuid] = known = (ChunkedMessage(), [])
        if self._times is not None:
            self._times.add(uuid)
        if len(self._open) > self._most:
            self._given_up(self._drop(next(iter(self._open))))
        return known

    def _drop(self, uuid: str) -> list[Position]:
        """The chunks of a message that is waited for no more."""
        if self._times is not None:
            self._times.remove(uuid)
        _, positions = self._open.pop(uuid, (None, []))
        return positions

    def _expire(self, uuids: list[str]) -> None:
        over = [(uuid, self._open[uuid]) for uuid in uuids]
        # Who takes messages seldom has them, though not looked at them.
        self._late()
        for uuid, waited_for in over:
            if self._open.get(uuid) is waited_for:
                self._expired(self._drop(uuid))

    def acknowledged(self, position: Position) -> list[Position]:
        """The other entries of a message that is acknowledged."""
        return self._before.pop(position, [])

    def acknowledged_until(self, bound: Position) -> None:
        """All messages up to there are."""
        if self._before:
            self._before = {last: rest for last, rest in self._before.items() if last > bound}

    def all_of(self, positions: list[Position]) -> list[Position]:
        """Entries that are wanted again, with those that they are no messages without."""
        if not self._before:
            return positions
        return [each for last in positions for each in (*self._before.get(last, ()), last)]

    def forget(self) -> None:
        """All of it will be delivered again."""
        if self._times is not None:
            self._times.forget()
        self._open.clear()
        self._before.clear()
