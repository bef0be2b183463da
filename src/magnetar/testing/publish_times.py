"""What a client publishes, in the time of the broker: when it was published, and when it is to be delivered.

Clients go on by the real clock while the broker's is ahead. Without this, what is published after an advance
would be as old as the advance was long.
"""

from __future__ import annotations

from magnetar.protocol.errors import EntryError
from magnetar.protocol.frames import decode_command, encode_with_payload
from magnetar.protocol.hot_codec import command_bounds
from magnetar.protocol.metadata import build_entry, parse_entry


def put_ahead(frame: bytes, milliseconds: int) -> bytes:
    """A SEND whose entry was published so much later, and is to be delivered so much later.

    An entry that is damaged stays as it is: the broker is to see it.
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
