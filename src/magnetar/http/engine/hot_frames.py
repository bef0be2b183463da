"""The frames of most WebSocket messages: text messages in a single frame (RFC 6455, section 5).

This module is plain Python that is also compiled, with the C types in ``hot_frames.pxd``. It finds the bounds
of frames, and reads and writes single text frames; wsproto, which implements the whole protocol, handles all
other frames.
"""

from __future__ import annotations

_FINAL = 0x80
_MASKED = 0x80
_CONTROL = 0x08
_WHOLE_TEXT = 0x81
_TEXT = 0x01
_LARGEST_CONTROL = 125
_LAST_KIND = 0x0A
_LENGTHS_END = 1 << 63
"""Lengths of frames must be below this number, because the protocol requires their highest bit to be 0."""
_MOST_COUNTED = 1 << 62
"""Lengths above this number exceed every limit anyway, and are replaced by the number, so that sums of
lengths fit into 64 bits.
"""


def text_frame(text: str) -> bytes:
    """Returns the WebSocket frame with which a server sends a text message."""
    data = text.encode()
    size = len(data)
    if size <= _LARGEST_CONTROL:
        return bytes((_WHOLE_TEXT, size)) + data
    if size < 0x10000:
        return bytes((_WHOLE_TEXT, 126, size >> 8, size & 255)) + data
    return b"\x81\x7f" + size.to_bytes(8, "big") + data


def text_fragment(text: str, first: bool, last: bool) -> bytes:
    """Returns the WebSocket frame with which a server sends a fragment of a text message (RFC 6455, section
    5.4).

    :param first: whether it is the first fragment of the message
    :param last: whether it is the last fragment
    """
    frame = bytearray(text_frame(text))
    frame[0] = (_FINAL if last else 0) | (_TEXT if first else 0)
    return bytes(frame)


class FrameReader:
    """Splits a client's bytes into frames, and decodes single text frames."""

    def __init__(self, largest: int) -> None:
        """:param largest: maximum size of a frame, in bytes"""
        self._largest = largest
        self._rest = bytearray()
        self._wanted = 0
        self._in_parts = False
        self._given_up = False
        self.left_out = 0
        """Number of bytes still to be skipped of a frame that is too large."""

    def read(self, data: bytes) -> list[str | bytes | None]:
        """Processes received bytes; returns the frames that they complete: text messages as strings, and
        other frames as bytes for wsproto.

        The first frame that only wsproto can handle, such as a binary frame, and all later bytes are passed
        on as they arrive. None stands for a frame whose announced size is too large; its content is skipped.
        """
        if self.left_out:
            skipped = min(self.left_out, len(data))
            self.left_out -= skipped
            data = data[skipped:]
        if self._given_up:
            return [data]
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        found: list[str | bytes | None] = []
        at = 0
        end = len(data)
        while at < end:
            size = self._size(data, at, end)
            if size < 0:
                found.append(None)
                self.left_out = max(0, -size - (end - at))
                at -= size
                continue
            if size > end - at:
                self._rest += data[at:]
                self._wanted = size
                break
            text = self._text(data, at, size) if size else None
            if text is not None:
                found.append(text)
            elif self._given_up or not size:
                self._given_up = True
                found.append(data[at:])
                break
            else:
                found.append(data[at : at + size])
            at += size
        return found

    def _size(self, data: bytes, at: int, end: int) -> int:
        """Returns the size of the frame at ``at``, or of its header if the header is incomplete.

        0 means that wsproto must handle the frame. A negative number is minus the size of a frame that is too
        large.
        """
        if end - at < 2:
            return 2
        first = data[at]
        kind = first & 0x0F
        size = data[at + 1] & 0x7F
        if first & 0x70 or not data[at + 1] & _MASKED:
            return 0
        if kind & _CONTROL:
            return 6 + size if first & _FINAL and size <= _LARGEST_CONTROL and kind <= _LAST_KIND else 0
        if kind > _TEXT or (kind == _TEXT) == self._in_parts:
            return 0
        if size <= _LARGEST_CONTROL:
            return 6 + size if size <= self._largest else -6 - size
        head = 4 if size == 126 else 10
        if end - at < head:
            return head
        told = int.from_bytes(data[at + 2 : at + head], "big")
        shortest = 126 if head == 4 else 0x10000
        if told < shortest or told >= _LENGTHS_END:
            # A longer form of a length than necessary violates the protocol, and so does its highest bit.
            return 0
        return head + 4 + told if told <= self._largest else -head - 4 - min(told, _MOST_COUNTED)

    def _text(self, data: bytes, at: int, size: int) -> str | None:
        """Decodes the message in a frame; returns None if the frame is not a single text frame."""
        first = data[at]
        if first != _WHOLE_TEXT:
            if not first & _CONTROL:
                self._in_parts = not first & _FINAL
            return None
        start = at + (6 if data[at + 1] & 0x7F < 126 else 8 if data[at + 1] & 0x7F == 126 else 14)
        try:
            return str(_unmasked(data[start - 4 : start], data[start : at + size]), "utf-8")
        except UnicodeDecodeError:
            self._given_up = True
            return None


def _unmasked(mask: bytes, data: bytes) -> bytes:
    size = len(data)
    repeated = (mask * ((size >> 2) + 1))[:size]
    # Exclusive-or of large integers is the fastest one in Python.
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")
