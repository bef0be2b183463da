"""What can be wrong with bytes that arrive; each error says what was found and what was allowed."""

from __future__ import annotations


class ProtocolError(Exception):
    """Bytes do not follow the protocol; subclasses say where."""


class FrameError(ProtocolError):
    """A frame cannot be read: its sizes contradict each other, or it holds no command. Ends a connection."""


class FrameTooLarge(FrameError):
    """A frame announces more bytes than are accepted."""

    def __init__(self, size: int, max_frame: int) -> None:
        super().__init__(f"frame of {size} bytes, at most {max_frame} are accepted")
        self.size = size
        self.max_frame = max_frame


class EntryError(ProtocolError):
    """An entry (magic, checksum, metadata, payload) contradicts itself."""


class ChecksumMismatch(EntryError):
    """The bytes of an entry do not carry the checksum written before them."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"checksum {found:#010x}, the entry says {expected:#010x}")
        self.expected = expected
        self.found = found


class CompressionError(ProtocolError):
    """A payload does not decompress to the size that was announced, or its codec is not installed."""
