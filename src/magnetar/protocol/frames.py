"""Frames: total size, command size, command, and for SEND and MESSAGE an entry."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from magnetar.protocol.errors import FrameError, FrameTooLarge, missing_fields
from magnetar.protocol.hot_codec import command_bounds, frame_end, next_frame
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

__all__ = [
    "DEFAULT_MAX_MESSAGE_SIZE",
    "FrameError",
    "FrameTooLarge",
    "decode_command",
    "encode_command",
    "encode_with_payload",
    "max_frame_size",
    "split",
]
DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
"""The maximum payload size in bytes that brokers announce by default."""
_COMMAND_ROOM = 10 * 1024
_SIZES = Struct(">II")
_WITHOUT_TEXT = frozenset(
    (BaseCommand.SEND, BaseCommand.ACK, BaseCommand.FLOW, BaseCommand.PING, BaseCommand.PONG)
)
# The number of a command's field in BaseCommand equals the number of its type.
_MESSAGES: dict[int, str] = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None
}
_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def max_frame_size(max_message_size: int) -> int:
    """Returns the maximum size of a frame, including its size field, for payloads of ``max_message_size``
    bytes."""
    return max_message_size + _COMMAND_ROOM


def encode_command(command: BaseCommand) -> bytes:
    """Encodes a frame with a command only."""
    body = command.SerializeToString()
    return _SIZES.pack(len(body) + 4, len(body)) + body


def encode_with_payload(command: BaseCommand, entry: bytes | bytearray | memoryview) -> bytes:
    """Encodes a frame with a command and an entry: magic, checksum, metadata size, metadata, payload."""
    body = command.SerializeToString()
    return b"".join((_SIZES.pack(len(body) + 4 + len(entry), len(body)), body, entry))


def decode_command(buffer: bytes, position: int) -> BaseCommand:
    """Decodes the command of the complete frame at ``position``.

    :raises FrameError: the frame is not a command, or lacks its message or a required field
    """
    start, end = command_bounds(buffer, position)
    command = BaseCommand()
    try:
        command.ParseFromString(buffer[start:end])
    except DecodeError as error:
        raise FrameError(f"command of {end - start} bytes cannot be parsed: {error}") from error
    if not command.IsInitialized():
        raise FrameError(f"command of type {command.type} lacks the required {missing_fields(command)}")
    field = _MESSAGES.get(command.type)
    if field is None or not command.HasField(field):
        raise FrameError(f"command of type {command.type} without its message")
    if command.type not in _WITHOUT_TEXT and not _is_text_sound(command):
        raise FrameError(f"command of type {command.type} has a text that is not UTF-8")
    return command


def _is_text_sound(message: Message) -> bool:
    """Whether all strings are UTF-8; the parser returns bytes for strings that are not."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            parts = (value,) if isinstance(value, Message) else value
            if not all(_is_text_sound(part) for part in parts):
                return False
        elif field.type == FieldDescriptor.TYPE_STRING:
            texts = (value,) if isinstance(value, str | bytes) else value
            if not all(isinstance(text, str) for text in texts):
                return False
    return True


def split(buffer: bytes, max_frame: int, position: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yields the type of the command and the bounds (begin, end) of each complete frame from ``position`` on.

    :raises FrameError: a frame is larger than ``max_frame`` bytes, or its sizes contradict each other
    """
    limit = len(buffer)
    while kind := next_frame(buffer, position, limit, max_frame):
        end = frame_end(buffer, position)
        yield kind, position, end
        position = end


def signed(number: int) -> int:
    """Returns the signed form of an unsigned 64-bit id in a frame."""
    return number - (1 << 64) if number & _SIGN else number


def unsigned(number: int) -> int:
    """Returns the unsigned 64-bit form of a signed id, as in frames."""
    return number & _MASK
