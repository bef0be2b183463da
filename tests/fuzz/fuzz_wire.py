"""Commands as bytes: any field with any value, also such as no protobuf library would write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from struct import pack
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata

EDGES = [0, 1, 2, 3, 127, 128, 255, 16383, 16384, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53]
EDGES += [2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]

TEXTS = [
    "",
    "x",
    "public/default",
    "persistent://public/default/a",
    "persistent://public/default/a-partition-0",
    "persistent://public/default/a-partition-99999999999999999999",
    "non-persistent://public/default/a",
    "persistent://public/nowhere/a",
    "persistent://sample/standalone/ns1/a",
    "persistent://public/default/%2F..%00",
    "persistent://public/default/",
    "persistent:///",
    "../../etc/passwd",
    "\x00",
    "a/b/c/d/e/f",
    "é𝔘☃\u202e",
    "(((((((((a+)+)+)+)+)+)+)+)+)$",
    "[",
    "__system",
    "x" * 300,
    "y" * 5000,
]

_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5

_WIRE_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED64,
    FieldDescriptor.TYPE_FLOAT: _FIXED32,
    FieldDescriptor.TYPE_STRING: _BYTES,
    FieldDescriptor.TYPE_BYTES: _BYTES,
    FieldDescriptor.TYPE_MESSAGE: _BYTES,
}

Choices = Mapping[str, Callable[[], Any]]
"""Values that make sense, by the name of the field: numbers, texts, bytes, or None to leave it out."""


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def tagged(number: int, wire_type: int, value: bytes) -> bytes:
    head = varint(number << 3 | wire_type)
    return head + varint(len(value)) + value if wire_type == _BYTES else head + value


class Wire:
    """Writes messages of random contents.

    :param sense: 0 … 1, how often a field gets what makes sense there
    """

    def __init__(self, random: Random, sense: float) -> None:
        self._random = random
        self.sense = sense

    def number(self) -> int:
        random = self._random
        kind = random.random()
        if kind < 0.5:
            return random.randrange(8)
        if kind < 0.9:
            return random.choice(EDGES)
        return random.getrandbits(64)

    def text(self) -> bytes:
        random = self._random
        if random.random() < 0.05:
            return random.randbytes(random.randrange(12))
        return random.choice(TEXTS).encode()

    def message(self, descriptor: Descriptor, choices: Choices, depth: int = 0) -> bytes:
        """The fields of one message, in order, each perhaps left out, repeated, or of a wrong kind."""
        random = self._random
        parts: list[bytes] = []
        for field in _fields(descriptor):
            chosen = choices.get(field.name)
            sensible = random.random() < self.sense
            if chosen is not None and sensible:
                value = chosen()
                if value is not None:
                    parts += self._chosen(field, value)
                continue
            if sensible and not field.is_required:
                continue
            wanted = 0.9 if field.is_required else 0.3
            if random.random() < wanted:
                repeats = random.choice((1, 1, 2, 5)) if field.is_repeated else 1
                parts += [self._any(field, choices, depth) for _ in range(repeats)]
        if random.random() > self.sense:
            self._disturb(parts)
        return b"".join(parts)

    def _chosen(self, field: FieldDescriptor, value: Any) -> list[bytes]:
        values = value if isinstance(value, list) else [value]
        return [self._written(field, each) for each in values]

    @staticmethod
    def _written(field: FieldDescriptor, value: Any) -> bytes:
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            return tagged(field.number, _BYTES, value)
        return tagged(field.number, _VARINT, varint(int(value)))

    def _any(self, field: FieldDescriptor, choices: Choices, depth: int) -> bytes:
        random = self._random
        wire_type = _WIRE_TYPES.get(field.type, _VARINT)
        if random.random() < 0.03 * (1 - self.sense):
            wire_type = random.choice((_VARINT, _FIXED64, _BYTES, 3, 4, _FIXED32, 6, 7))
        if wire_type == _VARINT:
            return tagged(field.number, wire_type, varint(self.number()))
        if wire_type == _FIXED64:
            return tagged(field.number, wire_type, random.randbytes(8))
        if wire_type == _FIXED32:
            return tagged(field.number, wire_type, random.randbytes(4))
        if wire_type != _BYTES:
            return tagged(field.number, wire_type, b"")
        if field.message_type is not None and depth < 3:
            return tagged(field.number, wire_type, self.message(field.message_type, choices, depth + 1))
        return tagged(field.number, wire_type, self.text())

    def _disturb(self, parts: list[bytes]) -> None:
        """Another order, a field twice, a field nobody knows, one that is missing."""
        random = self._random
        kind = random.randrange(5)
        if kind == 0:
            random.shuffle(parts)
        elif kind == 1 and parts:
            parts.append(random.choice(parts))
        elif kind == 2:
            parts.append(tagged(random.randrange(1, 2000), _VARINT, varint(self.number())))
        elif kind == 3 and parts:
            del parts[random.randrange(len(parts))]


_known_fields: dict[str, list[FieldDescriptor]] = {}


def _fields(descriptor: Descriptor) -> list[FieldDescriptor]:
    found = _known_fields.get(descriptor.full_name)
    if found is None:
        found = _known_fields[descriptor.full_name] = list(descriptor.fields)
    return found


KINDS: dict[int, FieldDescriptor] = {
    field.number: field for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None
}
"""The sub-message of each command, by the command's type, which is its field's number, too."""


def command_bytes(kind: int, body: bytes, extra: bytes = b"") -> bytes:
    return tagged(1, _VARINT, varint(kind)) + tagged(kind, _BYTES, body) + extra


def frame(command: bytes, entry: bytes = b"") -> bytes:
    return pack(">II", 4 + len(command) + len(entry), len(command)) + command + entry


def entry(random: Random, sequence_id: int) -> bytes:
    """An entry that is right, most of the time; its sizes, checksum, metadata and batch may lie."""
    metadata = MessageMetadata(producer_name="fuzz", sequence_id=sequence_id, publish_time=1_700_000_000_000)
    kind = random.random()
    if kind < 0.3:
        metadata.num_messages_in_batch = random.choice((1, 2, 3, 10, 64, 65, 1000, 2**31 - 1))
    elif kind < 0.35:
        metadata.num_messages_in_batch = random.choice((0, -1, -(2**31)))
    elif kind < 0.4:
        metadata.publish_time = random.choice(EDGES)
    elif kind < 0.43:
        metadata.marker_type = random.choice((1, 10, 20, 21, 22, 23, 2**31 - 1))
    elif kind < 0.5:
        metadata.deliver_at_time = random.choice((1, 1_700_000_001_000, 4_000_000_000_000, 2**63 - 1, -1))
    data = build_entry(metadata, random.randbytes(random.choice((0, 1, 20, 20, 200))))
    kind = random.random()
    if kind < 0.85:
        return data
    if kind < 0.9:
        return data[6:]
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    if kind < 0.95:
        return bytes(changed)
    if kind < 0.97:
        return data[: random.randrange(len(data))]
    raw = random.randbytes(random.randrange(1, 12))
    return pack(">I", len(raw)) + raw + b"payload"


def mutated(random: Random, data: bytes) -> bytes:
    """The same bytes with a few accidents."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        if not changed:
            break
        place = random.randrange(len(changed))
        kind = random.randrange(7)
        if kind == 0:
            changed[place] = random.randrange(256)
        elif kind == 1:
            changed[place] ^= 1 << random.randrange(8)
        elif kind == 2:
            del changed[place : place + random.choice((1, 2, 4, 30))]
        elif kind == 3:
            changed[place:place] = random.randbytes(random.choice((1, 2, 4, 30)))
        elif kind == 4:
            changed[place : place + 4] = pack(">I", random.choice(EDGES) & 0xFFFFFFFF)
        elif kind == 5:
            other = random.randrange(len(changed))
            changed[place:place] = changed[other : other + random.randrange(40)]
        else:
            del changed[place:]
    return bytes(changed)


def ack_kind(random: Random) -> int:
    return random.choice((CommandAck.Individual, CommandAck.Individual, CommandAck.Cumulative))


def pieces(random: Random, data: bytes) -> Iterator[bytes]:
    """The same stream as a socket may cut it."""
    kind = random.random()
    if kind < 0.6 or len(data) < 2:
        yield data
        return
    if kind < 0.65 and len(data) < 200:
        for index in range(len(data)):
            yield data[index : index + 1]
        return
    cuts = sorted(random.randrange(len(data)) for _ in range(random.choice((1, 2, 5))))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if start < end:
            yield data[start:end]
