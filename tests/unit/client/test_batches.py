"""Which messages a producer puts into the same batch, and the sequence ids of the batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from client_world import World

from magnetar.client.enums import BatchingType
from magnetar.protocol.frames import decode_command
from magnetar.protocol.hot_client_decode import split_places
from magnetar.protocol.metadata import parse_entry

A, B = {"partition_key": "a"}, {"partition_key": "b"}
Sent = tuple[str, int, int, list[bytes]]
"""Key, first and highest sequence id (-1: none), contents."""


def sent(messages: Sequence[tuple[bytes, dict[str, Any]]], **options: Any) -> list[Sent]:
    """Sends messages, and returns the entries that the producer wrote."""
    world = World()
    producer = world.producer(**options)
    frames: list[bytes] = []
    world.broker.send = lambda frame: frames.append(bytes(frame))  # type: ignore[assignment]
    for content, message in messages:
        number = message.get("sequence_id")
        rest = {name: value for name, value in message.items() if name != "sequence_id"}
        producer.enqueue(content, lambda _id, _error: None, number, producer.message_options(rest))
    producer.send_batches()
    return [shown(frame) for frame in frames]


def shown(frame: bytes) -> Sent:
    command = decode_command(frame, 0)
    start = 8 + int.from_bytes(frame[4:8], "big")
    entry = parse_entry(frame[start:], verify_checksum=True)
    metadata = entry.metadata
    payload = entry.uncompressed_payload()
    places = split_places(payload, metadata.num_messages_in_batch)
    assert places is not None
    assert command.send.num_messages == len(places)
    assert command.send.sequence_id == metadata.sequence_id
    highest = metadata.highest_sequence_id if metadata.HasField("highest_sequence_id") else -1
    return (
        metadata.ordering_key.decode() or metadata.partition_key,
        metadata.sequence_id,
        highest,
        [payload[middle:end] for _start, middle, end in places],
    )


MIXED = [(b"0", A), (b"1", B), (b"2", B), (b"3", A), (b"4", A)]
BY_KEY = [("b", 2, -1, [b"1", b"2"]), ("a", 4, -1, [b"0", b"3", b"4"])]


@pytest.mark.parametrize("kind", [None, BatchingType.KeyBased])
def test_each_key_has_a_batch_and_batches_are_ordered_by_their_last_message(
    kind: BatchingType | None,
) -> None:
    assert sent(MIXED, batching_type=kind) == BY_KEY


def test_the_default_of_official_clients_mixes_keys() -> None:
    assert sent(MIXED, batching_type=BatchingType.Default) == [("a", 0, 4, [b"0", b"1", b"2", b"3", b"4"])]


def test_a_producer_that_numbers_its_messages_keeps_their_order() -> None:
    expected = [("a", 0, -1, [b"0"]), ("b", 1, 2, [b"1", b"2"]), ("a", 3, 4, [b"3", b"4"])]
    numbered = [(content, {**keys, "sequence_id": index}) for index, (content, keys) in enumerate(MIXED)]
    assert sent(numbered) == expected
    assert sent(MIXED, initial_sequence_id=-1) == expected


def test_messages_without_a_key_share_a_batch() -> None:
    plain: list[tuple[bytes, dict[str, Any]]] = [(b"0", {}), (b"1", {}), (b"2", {"properties": {"x": "y"}})]
    assert sent(plain) == [("", 0, 2, [b"0", b"1", b"2"])]


def test_an_ordering_key_decides_before_a_partition_key() -> None:
    keys = [
        (b"0", {"partition_key": "a", "ordering_key": "o"}),
        (b"1", {"partition_key": "b", "ordering_key": "o"}),
    ]
    assert sent(keys) == [("o", 0, 1, [b"0", b"1"])]


def test_limits_count_the_messages_of_all_keys() -> None:
    assert sent(MIXED, batching_max_messages=2) == [
        ("a", 0, -1, [b"0"]),
        ("b", 1, -1, [b"1"]),
        ("b", 2, -1, [b"2"]),
        ("a", 3, -1, [b"3"]),
        ("a", 4, -1, [b"4"]),
    ]
