"""The hand-written codec of the frames that are as frequent as messages.

``hot_decode`` reads, ``hot_encode`` writes, and ``hot_keys`` handles keys; see ``magnetar.hot``.
"""

from __future__ import annotations

from magnetar.protocol.hot_decode import (
    CHUNKED,
    MARKED,
    TRANSACTIONAL,
    AckRun,
    SendRun,
    batch_sizes,
    command_bounds,
    deliver_at,
    frame_end,
    next_frame,
    publish_time,
    read_acks,
    read_flow,
    read_sends,
    transaction_of,
)
from magnetar.protocol.hot_encode import (
    encode_alike,
    encode_chosen,
    encode_message,
    encode_messages,
    encode_receipts,
    message_head,
    messages_size,
)
from magnetar.protocol.hot_keys import (
    KeyRouting,
    group_by_holder,
    holder_of,
    key_hash,
    key_slots,
    slot_of,
    sticky_key,
)

__all__ = [
    "CHUNKED",
    "MARKED",
    "TRANSACTIONAL",
    "AckRun",
    "KeyRouting",
    "SendRun",
    "batch_sizes",
    "command_bounds",
    "deliver_at",
    "encode_alike",
    "encode_chosen",
    "encode_message",
    "encode_messages",
    "encode_receipts",
    "frame_end",
    "group_by_holder",
    "holder_of",
    "key_hash",
    "key_slots",
    "message_head",
    "messages_size",
    "next_frame",
    "publish_time",
    "read_acks",
    "read_flow",
    "read_sends",
    "slot_of",
    "sticky_key",
    "transaction_of",
]
