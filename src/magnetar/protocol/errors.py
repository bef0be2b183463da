"""Errors of received bytes; the message states what was found and what is allowed."""

from __future__ import annotations

from google.protobuf.message import Message


def missing_fields(message: Message) -> str:
    """Returns the names of the required fields that a message lacks."""
    # The stubs lack this method.
    found: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]
    return ", ".join(found)


class ProtocolError(Exception):
    """Received bytes violate the protocol; the subclass tells which part of the bytes is wrong."""


class FrameError(ProtocolError):
    """A frame cannot be read, because its sizes contradict each other or it has no command; the connection is
    then closed.
    """


class FrameTooLarge(FrameError):
    """A frame is larger than the maximum accepted size."""

    def __init__(self, size: int, max_frame: int) -> None:
        super().__init__(f"the frame has {size} bytes; at most {max_frame} are accepted")
        self.size = size
        self.max_frame = max_frame


class EntryError(ProtocolError):
    """An entry (magic, checksum, metadata, payload) is inconsistent."""


class ChecksumMismatch(EntryError):
    """The bytes of an entry do not match its checksum."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"the checksum is {found:#010x}, but the entry says {expected:#010x}")
        self.expected = expected
        self.found = found


class CompressionError(ProtocolError):
    """A payload does not decompress to the announced size, or its codec is not installed."""
