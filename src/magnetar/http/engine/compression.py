"""Compression of answers."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from magnetar.http.engine.message import Request
from magnetar.http.gzipped import GZIP_BITS, GZIP_LEVEL


def takes_gzip(request: Request) -> bool:
    """Whether an answer may be compressed."""
    for offered in request.headers.get("accept-encoding", "").split(","):
        coding, _, quality = offered.partition(";")
        if coding.strip().lower() == "gzip":
            return quality.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def compressed(pieces: Iterable[str]) -> Iterator[bytes]:
    """Yields the text compressed with gzip, one piece for each piece; some may be empty."""
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_BITS)
    for piece in pieces:
        yield packer.compress(piece.encode())
    yield packer.flush()
