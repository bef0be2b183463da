"""The hand-written codec of the frames that are as frequent as messages.

Reading is in ``hot_decode``, writing in ``hot_encode``; both are hot modules (see ``magnetar.hot``).
"""

from __future__ import annotations

from magnetar.protocol.hot_decode import (
    AckRun,
    SendRun,
    batch_sizes,
    command_bounds,
    frame_end,
    next_frame,
    publish_time,
    read_acks,
    read_flow,
    read_sends,
)
from magnetar.protocol.hot_encode import encode_message, encode_messages, encode_receipts, messages_size

__all__ = [
    "AckRun",
    "SendRun",
    "batch_sizes",
    "command_bounds",
    "encode_message",
    "encode_messages",
    "encode_receipts",
    "frame_end",
    "messages_size",
    "next_frame",
    "publish_time",
    "read_acks",
    "read_flow",
    "read_sends",
]
