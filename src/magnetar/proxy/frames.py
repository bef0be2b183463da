"""Commands out of what a socket gives; what is not taken stays, to be passed on as it is."""

from __future__ import annotations

from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import decode_command
from magnetar.protocol.hot_codec import frame_end, next_frame
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


class Commands:
    """Of one side of a connection, for as long as it is taken apart."""

    __slots__ = ("_buffer", "_max_frame", "_needed")

    def __init__(self, max_frame: int) -> None:
        """:param max_frame: bytes of the largest frame that is taken"""
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._needed = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> BaseCommand | None:
        """The next command; None: it has not come whole.

        :raises FrameError: what comes is none, or one with an entry
        """
        if len(self._buffer) < self._needed:
            return None
        data = bytes(self._buffer)
        if next_frame(data, 0, len(data), self._max_frame) == 0:
            self._needed = 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else 4
            return None
        command = decode_command(data, 0)
        if command.type in (BaseCommand.SEND, BaseCommand.MESSAGE):
            raise FrameError("messages go through a connection with their broker")
        del self._buffer[: frame_end(data, 0)]
        self._needed = 0
        return command

    def rest(self) -> bytes:
        """Everything that was not taken."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest
