"""The codecs give back what they took, never more than announced, and name what is wrong."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol import compression
from magnetar.protocol.compression import compress, decompress, decompress_in_pieces
from magnetar.protocol.errors import CompressionError
from magnetar.protocol.pulsar_api_pb2 import CompressionType

CODECS = [CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.SNAPPY]
Decompress = Callable[..., bytes]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=CompressionType.Name)


def in_pieces(codec: int, data: bytes, size: int, max_size: int = 128 << 20) -> bytes:
    return b"".join(decompress_in_pieces(codec, data, size, max_size))


both_ways = pytest.mark.parametrize("decompressed", [decompress, in_pieces])


@every_codec
@both_ways
@given(st.binary(max_size=2000))
def test_data_reads_back(codec: CompressionType, decompressed: Decompress, data: bytes) -> None:
    assert decompressed(codec, compress(codec, data), len(data)) == data


def test_large_zlib_data_comes_in_pieces() -> None:
    data = random.Random(1).randbytes(3 << 20) + bytes(5 << 20)
    pieces = decompress_in_pieces(
        CompressionType.ZLIB, compress(CompressionType.ZLIB, data), len(data), 8 << 20
    )
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) == 1 << 20


def test_none_changes_nothing() -> None:
    assert compress(CompressionType.NONE, b"abc") == b"abc"
    assert decompress(CompressionType.NONE, b"abc", 0) == b"abc"


@every_codec
@both_ways
@pytest.mark.parametrize("announced", [0, 1, 99_999, 100_001, 200_000])
def test_another_size_than_announced(
    codec: CompressionType, decompressed: Decompress, announced: int
) -> None:
    with pytest.raises(CompressionError):
        decompressed(codec, compress(codec, bytes(100_000)), announced)


@every_codec
@both_ways
def test_too_large(codec: CompressionType, decompressed: Decompress) -> None:
    with pytest.raises(
        CompressionError, match="the metadata announces a payload of 11 bytes; at most 10 are accepted"
    ):
        decompressed(codec, compress(codec, bytes(11)), 11, max_size=10)
    with pytest.raises(CompressionError):
        decompressed(codec, b"", 2**32 - 1)


@every_codec
@both_ways
@given(st.binary(max_size=100), st.integers(0, 1000))
def test_garbage(codec: CompressionType, decompressed: Decompress, data: bytes, size: int) -> None:
    try:
        assert len(decompressed(codec, data, size)) == size
    except CompressionError:
        return


@every_codec
@both_ways
def test_truncated(codec: CompressionType, decompressed: Decompress) -> None:
    data = bytes(range(256)) * 10
    with pytest.raises(CompressionError):
        decompressed(codec, compress(codec, data)[:-5], len(data))


@both_ways
@given(st.binary(min_size=1, max_size=2000))
def test_zlib_streams_without_an_end_are_read(decompressed: Decompress, data: bytes) -> None:
    """Java clients end a payload with a flush, so that end and checksum of its stream are missing."""
    stream = zlib.compressobj()
    payload = stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert decompressed(CompressionType.ZLIB, payload, len(data)) == data
    with pytest.raises(CompressionError):
        decompressed(CompressionType.ZLIB, payload, len(data) + 1)
    with pytest.raises(CompressionError):
        decompressed(CompressionType.ZLIB, payload, len(data) - 1)


def test_a_zlib_bomb_stops_at_the_announced_size() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    with pytest.raises(
        CompressionError,
        match="the payload has 1001 bytes after decompression, but its metadata announces 1000",
    ):
        decompress(CompressionType.ZLIB, bomb, 1000)
    # A ratio that is possible, but more than was announced.
    with pytest.raises(
        CompressionError,
        match="the payload has more bytes after decompression than the 3000000 of its metadata",
    ):
        in_pieces(CompressionType.ZLIB, bomb, 3_000_000)


def test_a_zstd_frame_without_its_size() -> None:
    data = b"streamed " * 100
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert decompress(CompressionType.ZSTD, frame, len(data)) == data
    with pytest.raises(CompressionError):
        decompress(CompressionType.ZSTD, frame, len(data) - 1)


def test_an_unknown_codec() -> None:
    with pytest.raises(CompressionError, match="unknown compression type 9"):
        compress(9, b"")


def test_a_codec_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ImportError("no such thing", name="cramjam")

    monkeypatch.setattr(compression, "_loaded", {})
    monkeypatch.setitem(compression._LOADERS, CompressionType.SNAPPY, load)
    with pytest.raises(CompressionError, match="SNAPPY needs the package 'cramjam'"):
        decompress(CompressionType.SNAPPY, b"", 0)
