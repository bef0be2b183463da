"""Converts publish and delivery times of clients to the broker's clock.

Clients use the real clock while the broker's is ahead. Without this, a message that is published after an
advance would be as old as the advance.
"""

from __future__ import annotations

from magnetar.protocol.errors import EntryError
from magnetar.protocol.frames import decode_command, encode_with_payload
from magnetar.protocol.hot_codec import command_bounds
from magnetar.protocol.metadata import build_entry, parse_entry


def put_ahead(frame: bytes, milliseconds: int) -> bytes:
    """Returns a SEND with publish and delivery time of its entry increased by ``milliseconds``.

    A damaged entry is left unchanged for the broker.
    """
    _start, end = command_bounds(frame, 0)
    try:
        entry = parse_entry(frame[end:])
    except EntryError:
        return frame
    metadata = entry.metadata
    metadata.publish_time += milliseconds
    if metadata.HasField("deliver_at_time"):
        metadata.deliver_at_time += milliseconds
    return encode_with_payload(decode_command(frame, 0), build_entry(metadata, entry.payload))
