"""Stored messages as answers, whatever producers say of their size and however clients read."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.broker.admin.messages import ExaminedEntry
from magnetar.errors import PersistenceFailure
from magnetar.http.engine.message import Abandoned, Response
from magnetar.http.large_messages import LargeMessages
from magnetar.http.shapes.stored_message import StoredMessage
from magnetar.io.real import real_io
from magnetar.protocol.compression import compress
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

MIB = 1 << 20
CODECS = [CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD, CompressionType.SNAPPY]


def entry(payload: bytes, codec: int = CompressionType.NONE, told: int | None = None) -> bytes:
    """:param told: the uncompressed size that its producer tells; None: the true one"""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.compression = codec  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload) if told is None else told
    return build_entry(metadata, compress(codec, payload))


def run(room_bytes: int, test: Callable[[LargeMessages], Awaitable[None]]) -> None:
    async def body() -> None:
        messages = LargeMessages(real_io(asyncio.get_running_loop(), "/"), room_bytes)
        try:
            await asyncio.wait_for(test(messages), 60)
        finally:
            messages.close()

    asyncio.run(body())


def answered(messages: LargeMessages, stored: bytes) -> Awaitable[Response]:
    async def read() -> ExaminedEntry:
        return ExaminedEntry((3, 4), stored)

    return messages.answer(read)


async def body_of(response: Response) -> bytes:
    if response.streamed is None:
        return response.body
    pieces = []
    while piece := await response.streamed.next():
        pieces.append(piece)
    response.streamed.close()
    return b"".join(pieces)


@pytest.mark.parametrize("codec", [CompressionType.NONE, *CODECS])
@pytest.mark.parametrize("size", [10, 300_000])
def test_a_message_arrives_whole(codec: int, size: int) -> None:
    payload = bytes(index * 7 % 251 for index in range(size))

    async def test(messages: LargeMessages) -> None:
        response = await answered(messages, entry(payload, codec))
        assert response.status == 200
        assert (response.streamed is None) == (size == 10)
        if response.streamed is not None:
            assert dict(response.headers)["Content-Length"] == str(size)
        assert dict(response.headers)["X-Pulsar-Message-ID"] == "3:4"
        assert await body_of(response) == payload

    run(4 * MIB, test)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("told", [0, 10, 299_999, 300_001, 3 * MIB])
def test_a_size_that_is_not_true_is_an_error(codec: int, told: int) -> None:
    async def test(messages: LargeMessages) -> None:
        with pytest.raises(PersistenceFailure, match="3:4 cannot be read"):
            await answered(messages, entry(bytes(300_000), codec, told))
        # Nothing of the room is gone.
        assert len(await body_of(await answered(messages, entry(bytes(3 * MIB))))) == 3 * MIB

    run(6 * MIB, test)


def test_one_that_is_larger_than_the_room_is_refused_by_name_before_any_memory_is_taken() -> None:
    bomb = entry(bytes(64 * MIB), CompressionType.ZLIB)

    async def test(messages: LargeMessages) -> None:
        tracemalloc.start()
        response = await answered(messages, bomb)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert response.status == 413
        assert b"3:4 has 67108864 bytes uncompressed; at most 2097152 are sent over HTTP" in response.body
        assert peak < 2 * MIB

    run(4 * MIB, test)


@pytest.mark.parametrize("codec", CODECS)
def test_a_small_payload_that_claims_much_takes_no_memory(codec: int) -> None:
    async def test(messages: LargeMessages) -> None:
        tracemalloc.start()
        with pytest.raises(PersistenceFailure):
            await answered(messages, entry(b"x" * 1000, codec, 60 * MIB))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert codec == CompressionType.ZSTD or peak < 2 * MIB

    run(128 * MIB, test)


def test_answers_that_nobody_reads_are_bounded_and_others_are_refused_or_served_when_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("magnetar.http.large_messages._WAIT_SECONDS", 0.5)
    bomb = entry(bytes(MIB), CompressionType.ZLIB)

    async def test(messages: LargeMessages) -> None:
        tracemalloc.start()
        responses = await asyncio.gather(*(answered(messages, bomb) for _ in range(40)))
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        served = [response for response in responses if response.status == 200]
        refused = [response for response in responses if response.status != 200]
        assert 2 <= len(served) <= 3
        assert {response.status for response in refused} == {503}
        assert b"not enough memory for it at present" in refused[0].body
        assert dict(refused[0].headers)["Retry-After"] == "5"
        assert held < 4 * MIB
        # Small ones wait for nobody.
        assert (await answered(messages, entry(b"small"))).body == b"small"
        waiting = asyncio.ensure_future(answered(messages, bomb))
        await asyncio.sleep(0.05)
        streamed = served[0].streamed
        assert streamed is not None
        assert not waiting.done()
        streamed.close()
        assert (await waiting).status == 200

    run(3 * MIB, test)


def test_a_slow_client_is_cut_off_when_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.http.large_messages._SECONDS_BEFORE_OTHERS", 0.2)
    bomb = entry(bytes(MIB), CompressionType.ZLIB)

    async def test(messages: LargeMessages) -> None:
        response = await answered(messages, bomb)
        streamed: Any = response.streamed
        assert await streamed.next()
        await asyncio.sleep(0.3)
        assert await streamed.next()
        waiting = asyncio.ensure_future(answered(messages, bomb))
        await asyncio.sleep(0.05)
        with pytest.raises(Abandoned):
            await streamed.next()
        streamed.close()
        assert len(await body_of(await waiting)) == MIB

    run(2 * MIB, test)


def test_a_bomb_is_uncompressed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = zlib.compress(bytes(60 * MIB), 9)
    assert len(packed) < 64 * 1024
    bomb = entry(bytes(60 * MIB), CompressionType.ZLIB)

    async def test(messages: LargeMessages) -> None:
        threads: list[int] = []
        uncompress = StoredMessage.pieces

        def pieces(message: StoredMessage, most: int) -> list[bytes]:
            threads.append(threading.get_ident())
            found = uncompress(message, most)
            # Joining 60 MiB would hold the interpreter's lock for tens of milliseconds.
            assert max(map(len, found)) <= MIB
            return found

        monkeypatch.setattr(StoredMessage, "pieces", pieces)
        response = await answered(messages, bomb)
        assert response.status == 200
        assert response.streamed is not None
        # One piece at a time is copied in the loop.
        assert len(await response.streamed.next()) == 64 * 1024
        response.streamed.close()
        assert len(threads) == 1
        assert threads != [threading.get_ident()]

    run(128 * MIB, test)
