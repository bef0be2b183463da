"""Bytes in several pieces on their way to a socket: joined, or passed on as they are."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.io.interfaces import Buffer

LARGE_PIECE = 8 << 10
"""Copying this many bytes takes as long as passing on one more piece: about half a microsecond."""


def joined(pieces: Sequence[Buffer], size: int) -> Sequence[Buffer]:
    """Returns the same bytes, as one piece if that is cheaper than passing on each.

    :param size: bytes of all pieces
    """
    if len(pieces) == 1 or size >= LARGE_PIECE * len(pieces):
        return pieces
    return (b"".join(pieces),)
