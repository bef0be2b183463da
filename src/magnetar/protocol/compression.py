"""The four compression codecs of payloads. Libraries are imported on first use; decompression is limited to
the announced size."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from magnetar.protocol.errors import CompressionError
from magnetar.protocol.pulsar_api_pb2 import CompressionType

__all__ = ["DEFAULT_MAX_UNCOMPRESSED_SIZE", "compress", "decompress", "decompress_in_pieces"]

DEFAULT_MAX_UNCOMPRESSED_SIZE = 128 * 1024 * 1024
"""The largest uncompressed size in bytes that a message may announce, unless the caller sets another
limit."""

_PIECE_BYTES = 1 << 20
_FLUSHED = b"\0\0\xff\xff"
"""The end of a flush, with which Java clients end a ZLIB payload; the stream's own end and checksum are
missing.
"""


def compress(codec: int, data: bytes) -> bytes:
    """Compresses a payload, of a single message or of a whole batch.

    :param codec: the codec, a value of ``CompressionType``
    :raises CompressionError: the codec is unknown, or its library is not installed
    """
    if codec == CompressionType.NONE:
        return data
    return _functions(codec)[0](data)


def decompress(
    codec: int, data: bytes, uncompressed_size: int, max_size: int = DEFAULT_MAX_UNCOMPRESSED_SIZE
) -> bytes:
    """Decompresses a payload to exactly ``uncompressed_size`` bytes.

    :param codec: the codec, a value of ``CompressionType``; with NONE the size is ignored
    :param max_size: the maximum accepted ``uncompressed_size``
    :raises CompressionError: the data is damaged or of another size, the size is above ``max_size``, the
        codec is unknown, or its library is not installed
    """
    if codec == CompressionType.NONE:
        return data
    _check_announced(codec, data, uncompressed_size, max_size)
    result = _functions(codec)[1](data, uncompressed_size)
    if len(result) != uncompressed_size:
        raise CompressionError(
            f"the payload has {len(result)} bytes after decompression, "
            f"but its metadata announces {uncompressed_size}"
        )
    return result


def decompress_in_pieces(codec: int, data: bytes, uncompressed_size: int, max_size: int) -> list[bytes]:
    """Decompresses a payload like :func:`decompress`, for large payloads on a separate thread.

    The ``zlib`` module copies a large result with the interpreter's lock held, which stops the event loop for
    tens of milliseconds. ZLIB payloads are therefore decompressed into pieces of at most 1 MiB. The other
    codecs return one piece.
    """
    if codec != CompressionType.ZLIB:
        return [decompress(codec, data, uncompressed_size, max_size)]
    _check_announced(codec, data, uncompressed_size, max_size)
    stream = zlib.decompressobj()
    is_flushed = data.endswith(_FLUSHED)
    pieces: list[bytes] = []
    size = 0
    try:
        while not stream.eof:
            piece = stream.decompress(data, _PIECE_BYTES)
            data = stream.unconsumed_tail
            size += len(piece)
            if size > uncompressed_size:
                raise CompressionError(
                    f"the payload has more bytes after decompression "
                    f"than the {uncompressed_size} of its metadata"
                )
            if not piece and not data and not stream.eof:
                if is_flushed:
                    break
                raise CompressionError("truncated ZLIB data")
            pieces.append(piece)
    except zlib.error as error:
        raise CompressionError(f"damaged ZLIB data: {error}") from error
    if size != uncompressed_size:
        raise CompressionError(
            f"the payload has {size} bytes after decompression, "
            f"but its metadata announces {uncompressed_size}"
        )
    return pieces


def _check_announced(codec: int, data: bytes, uncompressed_size: int, max_size: int) -> None:
    if not 0 <= uncompressed_size <= max_size:
        raise CompressionError(
            f"the metadata announces a payload of {uncompressed_size} bytes; at most {max_size} are accepted"
        )
    ratio = _LARGEST_RATIOS.get(codec, 0)
    if ratio and uncompressed_size > (len(data) + 64) * ratio:
        # Some codecs allocate all of that memory before they read the data.
        raise CompressionError(
            f"the metadata announces {uncompressed_size} bytes, more than {len(data)} compressed bytes "
            "can hold"
        )


_Functions = tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]


def _functions(codec: int) -> _Functions:
    load = _LOADERS.get(codec)
    if load is None:
        raise CompressionError(f"unknown compression type {codec}")
    loaded = _loaded.get(codec)
    if loaded is None:
        try:
            loaded = _loaded[codec] = load()
        except ImportError as error:
            from magnetar.build_info import install_extra

            name = CompressionType.Name(CompressionType.ValueType(codec))
            raise CompressionError(
                f"{name} needs the package {error.name!r} ({install_extra('compression')})"
            ) from error
    return loaded


def _load_zlib() -> _Functions:
    def expand(data: bytes, size: int) -> bytes:
        stream = zlib.decompressobj()
        try:
            # One byte more than announced reveals data that is too long; 0 would mean no limit.
            result = stream.decompress(data, size + 1)
        except zlib.error as error:
            raise CompressionError(f"damaged ZLIB data: {error}") from error
        if len(result) <= size and not (stream.eof or data.endswith(_FLUSHED)):
            raise CompressionError("truncated ZLIB data")
        return result

    return zlib.compress, expand


def _load_lz4() -> _Functions:
    import lz4.block

    def shrink(data: bytes) -> bytes:
        return bytes(lz4.block.compress(data, store_size=False))

    def expand(data: bytes, size: int) -> bytes:
        try:
            return bytes(lz4.block.decompress(data, uncompressed_size=size))
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise CompressionError(f"damaged LZ4 data: {error}") from error

    return shrink, expand


def _load_zstd() -> _Functions:
    import zstandard

    def shrink(data: bytes) -> bytes:
        return zstandard.ZstdCompressor().compress(data)

    def expand(data: bytes, size: int) -> bytes:
        try:
            # The size inside the frame would override the limit given to the decompressor.
            inner = zstandard.get_frame_parameters(data).content_size
            if inner not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR, size):
                raise CompressionError(
                    f"the ZSTD frame holds {inner} bytes, but its metadata announces {size}"
                )
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
        except zstandard.ZstdError as error:
            raise CompressionError(f"damaged ZSTD data: {error}") from error

    return shrink, expand


def _load_snappy() -> _Functions:
    import cramjam

    def shrink(data: bytes) -> bytes:
        return bytes(cramjam.snappy.compress_raw(data))

    def expand(data: bytes, size: int) -> bytes:
        try:
            inner = cramjam.snappy.decompress_raw_len(data)
            if inner != size:
                raise CompressionError(
                    f"the SNAPPY block holds {inner} bytes, but its metadata announces {size}"
                )
            return bytes(cramjam.snappy.decompress_raw(data))
        except cramjam.DecompressionError as error:
            raise CompressionError(f"damaged SNAPPY data: {error}") from error

    return shrink, expand


_LARGEST_RATIOS: dict[int, int] = {
    CompressionType.ZLIB: 1032,
    CompressionType.LZ4: 255,
    CompressionType.SNAPPY: 64,
}
"""By codec: the maximum number of bytes to which one byte of compressed data can expand."""

_LOADERS: dict[int, Callable[[], _Functions]] = {
    CompressionType.ZLIB: _load_zlib,
    CompressionType.LZ4: _load_lz4,
    CompressionType.ZSTD: _load_zstd,
    CompressionType.SNAPPY: _load_snappy,
}
_loaded: dict[int, _Functions] = {}
