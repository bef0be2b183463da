"""Bytes in several pieces on their way to a socket: put together, or handed over as they are."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.io.interfaces import Buffer

LARGE_PIECE = 8 << 10
"""To copy so many bytes takes as long as to hand over one more piece: about half a microsecond."""


def joined(pieces: Sequence[Buffer], size: int) -> Sequence[Buffer]:
    """The same bytes, in one piece where that is cheaper than to hand over each.

    :param size: of all of them
    """
    if len(pieces) == 1 or size >= LARGE_PIECE * len(pieces):
        return pieces
    return (b"".join(pieces),)
