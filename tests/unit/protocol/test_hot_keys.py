"""Keys of entries, and the consumers they lead to."""

from __future__ import annotations

from array import array
from base64 import b64encode
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from strategies import UNSIGNED

from magnetar.naming.hashes import murmur3_positive
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

KEYS = st.binary(max_size=40)


def metadata(**fields: object) -> MessageMetadata:
    return MessageMetadata(**({"producer_name": "p", "sequence_id": 1, "publish_time": 1} | fields))  # type: ignore[arg-type]


def sticky(codec: SimpleNamespace, made: MessageMetadata, payload: bytes = b"payload") -> bytes:
    entry = build_entry(made, payload)
    found: bytes = codec.sticky_key(b"before" + entry + b"after", 6, 6 + len(entry))
    return found


@given(st.text(max_size=30), KEYS, UNSIGNED)
def test_which_key_counts(codec: SimpleNamespace, text: str, ordering: bytes, sequence_id: int) -> None:
    signed = sequence_id - 2**64 if sequence_id >= 2**63 else sequence_id
    made = metadata(producer_name=text, sequence_id=sequence_id, num_messages_in_batch=7)
    assert sticky(codec, made) == f"{text}-{signed}".encode()
    made.partition_key = text
    assert sticky(codec, made) == text.encode()
    made.ordering_key = ordering
    assert sticky(codec, made) == ordering


@given(KEYS)
def test_base64(codec: SimpleNamespace, key: bytes) -> None:
    text = b64encode(key).decode()
    assert sticky(codec, metadata(partition_key=text, partition_key_b64_encoded=True)) == key
    assert sticky(codec, metadata(partition_key=text, partition_key_b64_encoded=False)) == text.encode()


def test_base64_that_is_none(codec: SimpleNamespace) -> None:
    assert sticky(codec, metadata(partition_key="a!b", partition_key_b64_encoded=True)) == b"a!b"


@given(st.binary(max_size=60))
def test_whatever_bytes_have_some_key(codec: SimpleNamespace, entry: bytes) -> None:
    assert isinstance(codec.sticky_key(entry, 0, len(entry)), bytes)


@given(st.lists(KEYS, min_size=1, max_size=20), st.sampled_from([65535, 65536]))
def test_slots(codec: SimpleNamespace, keys: list[bytes], modulo: int) -> None:
    buffer, starts, ends = b"", array("q"), array("q")
    for key in keys:
        starts.append(len(buffer))
        buffer += build_entry(metadata(ordering_key=key), b"x")
        ends.append(len(buffer))
    out = array("i", bytes(4 * len(keys)))
    codec.key_slots(buffer, starts, ends, 1, len(keys) - 1, modulo, out)
    hashes = [murmur3_positive(key) for key in keys[1:]]
    if modulo == 65535:
        assert list(out[: len(keys) - 1]) == [number % 65535 + 1 for number in hashes]
    else:
        assert list(out[: len(keys) - 1]) == [number % 65536 or 1 for number in hashes]


@given(
    st.lists(st.tuples(st.integers(1, 65535), st.integers(1, 1 << 30)), max_size=50),
    st.lists(st.integers(1, 65535), unique=True, max_size=20),
    st.integers(1, 5),
    st.data(),
)
def test_groups(
    codec: SimpleNamespace,
    entries: list[tuple[int, int]],
    cuts: list[int],
    consumers: int,
    data: st.DataObject,
) -> None:
    segments = array("i", [*sorted(cuts), 65536])
    holders = array("i", [data.draw(st.integers(-1, consumers - 1)) for _ in segments])
    routing = codec.KeyRouting(max(1, len(entries)))
    for index, (slot, size) in enumerate(entries):
        routing.slots[index], routing.sizes[index] = slot, size
    bounds = array("i", bytes(4 * (consumers + 2)))
    codec.group_by_holder(routing, len(entries), 100, 2**40, segments, holders, bounds)
    assert (bounds[0], bounds[consumers + 1]) == (0, len(entries))
    for holder in range(-1, consumers):
        group = slice(bounds[holder + 1], bounds[holder + 2])
        wanted = [
            index for index, (slot, _size) in enumerate(entries)
            if holders[next(i for i, end in enumerate(segments) if end >= slot)] == holder
        ]  # fmt: skip
        assert list(routing.order[group]) == [100 + index for index in wanted]
        assert list(routing.entry_ids[group]) == [2**40 + 100 + index for index in wanted]
        assert list(routing.sorted_sizes[group]) == [entries[index][1] for index in wanted]
        assert list(routing.packed[group]) == [entries[i][0] << 32 | entries[i][1] for i in wanted]
        for index in wanted:
            assert codec.holder_of(entries[index][0], segments, holders) == holder
