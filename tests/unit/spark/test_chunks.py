"""Messages in chunks, whatever the order of the chunks and wherever their topic is cut; against a model."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.message_id import MessageId
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageIdData, MessageMetadata
from magnetar.spark.codec.columns import BYTES
from magnetar.spark.codec.rows import EntryPart, Malformed, RowSelection, record_batches
from magnetar.spark.ledgers import Range
from magnetar.spark.reading import chunks
from magnetar.spark.reading.chunks import TopicChunks

LEDGER = 7
COUNT = 3
"""Chunks of each message."""
Piece = tuple[str, int]


def entry(place: int, uuid: str, number: int) -> EntryPart:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1,
        uuid=uuid,
        chunk_id=number,
        num_chunks_from_msg=COUNT,
        total_chunk_msg_size=COUNT,
    )
    # The content says which one of those that were sent with this number it is.
    return EntryPart(LEDGER, place, build_entry(metadata, bytes([place % 256])))


class OfEntries(TopicChunks):
    """Reads back from a list, a few entries at a time."""

    def __init__(self, entries: list[EntryPart]) -> None:
        super().__init__(SimpleNamespace(admin=None, client=None, options=None), "t")  # type: ignore[arg-type]
        self._entries = entries

    def _windows_before(self, ledger_id: int, entry_id: int) -> Iterator[Range]:
        for end in range(entry_id, 0, -2):
            yield Range(LEDGER, max(0, end - 2), 0, end)

    def _read(self, window: Range) -> Iterator[EntryPart]:
        yield from self._entries[window.first : window.end]


def read(entries: list[EntryPart], cuts: list[int]) -> list[tuple[int, bytes | None]]:
    """Where a message is and its content; None: it is malformed. Read in parts."""
    found: list[tuple[int, bytes | None]] = []

    def malformed(each: Malformed) -> None:
        found.append((each.entry_id, None))

    for first, end in zip([0, *cuts], [*cuts, len(entries)], strict=True):
        part = entries[first:end]
        for batch in record_batches(
            "t", -1, part, BYTES, RowSelection(), None, malformed, OfEntries(entries)
        ):
            for row in batch.to_pylist():
                place = MessageId.deserialize(row["__messageId"])
                found.append((place.entry_id(), row["value"]))
    return sorted(found, key=lambda each: each[0])


def expected(pieces: list[Piece]) -> list[tuple[int, bytes | None]]:
    """What somebody who reads all from the beginning makes of it."""
    held: dict[str, list[int]] = {}
    broken: set[str] = set()
    found: list[tuple[int, bytes | None]] = []
    for place, (uuid, number) in enumerate(pieces):
        if number == 0:
            held[uuid] = [place]
            broken.discard(uuid)
            continue
        come = held.get(uuid, [])
        if uuid not in broken and len(come) == number:
            come.append(place)
            if number == COUNT - 1:
                found.append((place, bytes(come)))
        elif number > len(come) or uuid in broken:
            broken.add(uuid)
            if number == COUNT - 1:
                found.append((place, None))
    return found


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, COUNT - 1)), max_size=30),
    st.lists(st.integers(0, 30), max_size=5),
)
def test_messages_are_the_same_wherever_a_topic_is_cut(pieces: list[Piece], cuts: list[int]) -> None:
    entries = [entry(place, *each) for place, each in enumerate(pieces)]
    inside = sorted(cut for cut in cuts if cut <= len(entries))
    assert read(entries, inside) == expected(pieces)


@pytest.mark.parametrize(("name", "value"), [("MAX_MESSAGES", 1), ("MAX_BYTES", 4)])
def test_a_task_that_may_hold_little_reads_again(monkeypatch: Any, name: str, value: int) -> None:
    monkeypatch.setattr(chunks, name, value)
    pieces = [(uuid, number) for number in range(COUNT) for uuid in "abcd"]
    entries = [entry(place, *each) for place, each in enumerate(pieces)]
    assert read(entries, []) == expected(pieces)
    assert len(expected(pieces)) == 4


def test_what_is_too_large_is_named(monkeypatch: Any) -> None:
    monkeypatch.setattr(chunks, "MAX_BYTES", 2)
    entries = [entry(place, "a", place) for place in range(COUNT)]
    found: list[Malformed] = []
    list(record_batches("t", -1, entries, BYTES, RowSelection(), None, found.append, OfEntries(entries)))
    assert [each.entry_id for each in found] == [COUNT - 1]
    assert found[0].reason == "the message of 3 bytes in chunks is larger than the maximum of 2 bytes"


@pytest.mark.parametrize("partition", [-1, 300])
def test_the_id_has_the_first_chunk_as_well(partition: int) -> None:
    entries = [entry(1000 + place, "a", place) for place in range(COUNT)]
    found: list[Malformed] = []
    (batch,) = record_batches(
        "t", partition, entries, BYTES, RowSelection(), None, found.append, OfEntries([])
    )
    wanted = MessageIdData(ledgerId=LEDGER, entryId=1002)
    first = MessageIdData(ledgerId=LEDGER, entryId=1000)
    for each in (wanted, first):
        if partition >= 0:
            each.partition = partition
    wanted.first_chunk_message_id.CopyFrom(first)
    (row,) = batch.to_pylist()
    assert MessageIdData.FromString(row["__messageId"]) == wanted
    assert found == []
