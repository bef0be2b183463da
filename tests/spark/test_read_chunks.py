"""Messages in several entries: each is read once, wherever topics are cut, or named when it is not whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pulsar
import pyarrow.parquet as pq
import pytest
from spark_world import Cluster, publish
from test_read_places import messages, reader_of, values
from test_stream_reader import Query

from magnetar.client.aio import Client
from magnetar.client.message_id import MessageId
from magnetar.protocol.compression import compress
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata
from magnetar.spark.codec.schemas import NOTHING
from magnetar.spark.errors import MalformedMessage
from magnetar.spark.ledgers import layout_of
from magnetar.spark.options import QueryOptions
from magnetar.spark.positions import Place
from magnetar.spark.writing.cutting import CutEntry
from magnetar.spark.writing.publishing import TopicPublisher, open_producer, run

Piece = tuple[str, int, int] | str
"""A chunk: which message, number, how many of them; or a message that is whole."""


def chunk(
    topic: str, uuid: str, number: int, count: int, payload: bytes, total: int, **more: Any
) -> CutEntry:
    metadata = MessageMetadata(
        uuid=uuid, chunk_id=number, num_chunks_from_msg=count, total_chunk_msg_size=total, **more
    )
    return CutEntry(topic, 1, metadata.SerializePartialToString(), payload)


def put(cluster: Cluster, topic: str, entries: Sequence[CutEntry]) -> None:
    """Entries as they are, on a topic that keeps them."""
    cluster.client.subscribe(topic, "keep").close()
    options = QueryOptions.parse(cluster.options(topic=topic))

    async def publish_all(client: Client) -> None:
        publisher = TopicPublisher(await open_producer(client, options, topic, None, NOTHING), 0, -1)
        for each in entries:
            await publisher.put(each)
        await publisher.finish()

    run(options, publish_all)


def pieces(topic: str, *wanted: Piece) -> list[CutEntry]:
    """A chunk's content tells what it is: ``a0`` ``a1`` … make the message ``a0a1…``."""
    found = []
    for each in wanted:
        if isinstance(each, str):
            found.append(CutEntry(topic, 1, b"", each.encode()))
        else:
            uuid, number, count = each
            text = f"{uuid}{number}".encode()
            found.append(chunk(topic, uuid, number, count, text, count * len(text)))
    return found


MIXED: tuple[Piece, ...] = (
    *(("a", 0, 3), "x", ("b", 0, 2), ("a", 1, 3), "y", ("b", 1, 2), ("a", 2, 3), "z"),
    *(("c", 0, 4), ("c", 1, 4), ("d", 0, 1), ("c", 2, 4), ("c", 3, 4)),
)
"""Chunks of several producers, between each other and whole messages."""
WHOLE = [b"x", b"y", b"b0b1", b"a0a1a2", b"z", b"d0", b"c0c1c2c3"]
"""What they are, each at its last chunk."""


def test_large_messages_of_the_official_client_are_whole(
    cluster: Cluster, topic: str, read: Any, tmp_path: Path
) -> None:
    cluster.client.subscribe(topic, "keep").close()
    official = pulsar.Client(cluster.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    contents, ids = [bytes([65 + number]) * (11 << 20) + b"end" for number in range(2)], []
    for content, compression in zip(
        contents, (pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4), strict=True
    ):
        producer = official.create_producer(
            topic, chunking_enabled=True, batching_enabled=False, compression_type=compression
        )
        ids.append(producer.send(content, partition_key="k", properties={"a": "b"}))
        producer.close()
    rows = read(topic=topic, maxEntriesPerPartition="2").collect()
    official.close()
    rows.sort(key=lambda row: bytes(row.value[:1]))
    assert [bytes(row.value) for row in rows] == contents
    for row, sent in zip(rows, ids, strict=True):
        assert bytes(row["__key"]) == b"k"
        assert row["__messageProperties"] == {"a": "b"}
        assert MessageId.deserialize(bytes(row["__messageId"])).position == (
            sent.ledger_id(),
            sent.entry_id(),
        )
    # As the official client writes down where such a message begins and ends.
    assert bytes(rows[0]["__messageId"]) == ids[0].serialize()


@pytest.mark.parametrize("size", range(1, 8))
def test_parts_may_end_between_chunks(cluster: Cluster, topic: str, size: int) -> None:
    put(cluster, topic, pieces(topic, *MIXED))
    assert values(reader_of(cluster, topic=topic, maxEntriesPerPartition=str(size))) == WHOLE


def test_a_batch_may_begin_and_end_anywhere(cluster: Cluster, topic: str) -> None:
    put(cluster, topic, pieces(topic, *MIXED))
    (ledger, count), *_ = layout_of(cluster.admin, topic).ledgers
    assert count == len(MIXED)
    for cut in range(count + 1):
        at = json.dumps({"topics": {topic: {"next": str(Place(ledger, cut))}}})
        before = values(reader_of(cluster, topic=topic, endingOffsets=at))
        after = values(reader_of(cluster, topic=topic, startingOffsets=at))
        assert before + after == WHOLE, cut


def test_batches_of_a_stream_may_end_between_chunks(cluster: Cluster, topic: str) -> None:
    publish(cluster, topic, 0)
    query = Query(cluster, topic=topic, startingOffsets="earliest")
    found = []
    try:
        for each in pieces(topic, *MIXED):
            put(cluster, topic, [each])
            found += query.batch()
    finally:
        query.reader.stop()
    assert found == WHOLE


def test_chunks_before_a_ledger_that_was_closed_are_found(cluster: Cluster, topic: str) -> None:
    entries = pieces(topic, *MIXED)
    for each in entries:
        put(cluster, topic, [each])
        cluster.admin.unload_topic(topic)
    assert len(layout_of(cluster.admin, topic).ledgers) > 5
    assert values(reader_of(cluster, topic=topic, maxEntriesPerPartition="1")) == WHOLE


@pytest.mark.parametrize(
    "sent",
    [
        (("a", 0, 3), ("a", 1, 3), ("a", 1, 3), ("a", 2, 3)),
        (("a", 0, 3), ("a", 1, 3), ("a", 0, 3), ("a", 1, 3), ("a", 2, 3)),
        (("a", 0, 3), ("a", 1, 3), ("a", 2, 3), ("a", 2, 3)),
        (("a", 0, 3), ("a", 1, 3), ("a", 2, 3), ("a", 1, 3), ("a", 2, 3)),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_chunks_that_were_sent_again_count_once(
    cluster: Cluster, topic: str, sent: tuple[Piece, ...], size: int
) -> None:
    put(cluster, topic, pieces(topic, *sent, "end"))
    assert values(reader_of(cluster, topic=topic, maxEntriesPerPartition=str(size))) == [b"a0a1a2", b"end"]


def test_a_message_that_is_not_whole_yet_is_none(cluster: Cluster, topic: str) -> None:
    put(cluster, topic, pieces(topic, ("a", 0, 3), "x", ("a", 1, 3)))
    assert values(reader_of(cluster, topic=topic)) == [b"x"]


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ((("a", 1, 2),), "its first chunk of 2 is missing"),
        ((("a", 0, 3), ("a", 2, 3)), "chunk 2 of 3 is missing"),
        ((("a", 0, 2), "x", ("a", 5, 2)), "the chunk contradicts itself"),
    ],
)
def test_messages_with_missing_chunks_are_named(
    cluster: Cluster, topic: str, tmp_path: Path, sent: tuple[Piece, ...], reason: str, size: int
) -> None:
    put(cluster, topic, pieces(topic, *sent, "end"))
    with pytest.raises(MalformedMessage, match=f":{len(sent) - 1}: .*{reason}"):
        values(reader_of(cluster, topic=topic, mode="FAILFAST", maxEntriesPerPartition=str(size)))
    options = {"quarantine.path": str(tmp_path / "bad"), "maxEntriesPerPartition": str(size)}
    assert values(reader_of(cluster, topic=topic, **options))[-1] == b"end"
    kept = pq.read_table(tmp_path / "bad")
    assert kept.column("entry_id").to_pylist() == [len(sent) - 1]
    assert reason in kept.column("reason").to_pylist()[0]


def test_compressed_messages_are_whole(cluster: Cluster, topic: str) -> None:
    text = b"".join(messages(0, 1000))
    packed = compress(CompressionType.ZSTD, text)
    cuts = [packed[:100], packed[100:1000], packed[1000:]]
    more = {"compression": CompressionType.ZSTD, "uncompressed_size": len(text)}
    put(
        cluster,
        topic,
        [chunk(topic, "a", number, 3, each, len(packed), **more) for number, each in enumerate(cuts)],
    )
    assert values(reader_of(cluster, topic=topic, maxEntriesPerPartition="2")) == [text]
