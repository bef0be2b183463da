"""Server-sent events of the HTML standard: text that a page reads while more of it arrives."""

from __future__ import annotations

EVENTS_TYPE = "text/event-stream"

HEARTBEAT = b":\n\n"
"""A comment: nothing has changed, and the connection is alive."""


def event(kind: str, data: bytes) -> bytes:
    """:param data: one line, such as JSON without white space"""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)
