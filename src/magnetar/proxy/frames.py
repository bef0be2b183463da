"""Splits received bytes into commands; the rest stays and can be forwarded unchanged."""

from __future__ import annotations

from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import decode_command
from magnetar.protocol.hot_codec import frame_end, next_frame
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

_SIZE_BYTES = 4


class Commands:
    """The commands of one side of a connection, while the proxy interprets them.

    A complete command is not copied; one that arrives in many pieces is joined once.
    """

    __slots__ = ("_data", "_max_frame", "_more", "_needed", "_position")

    def __init__(self, max_frame: int) -> None:
        """:param max_frame: size of the largest accepted frame in bytes"""
        self._max_frame = max_frame
        self._data = b""
        self._position = 0
        self._more = bytearray()
        """Bytes that arrived after :attr:`_data`."""
        self._needed = 0
        """Bytes that are needed before the next attempt to find a frame."""

    def feed(self, data: bytes) -> None:
        if self._position == len(self._data) and not self._more:
            self._data, self._position = data, 0
        else:
            self._more += data

    def next(self) -> BaseCommand | None:
        """Returns the next command; None: it is incomplete.

        :raises FrameError: the bytes are not a command, or one with an entry
        """
        if len(self._data) - self._position + len(self._more) < self._needed or not self._find():
            return None
        command = decode_command(self._data, self._position)
        if command.type in (BaseCommand.SEND, BaseCommand.MESSAGE):
            raise FrameError("messages go through a connection with their broker")
        self._position = frame_end(self._data, self._position)
        self._needed = 0
        return command

    def _find(self) -> bool:
        """Whether the bytes contain a complete frame."""
        if next_frame(self._data, self._position, len(self._data), self._max_frame):
            return True
        if self._more:
            self._data, self._position = self.rest(), 0
            if next_frame(self._data, 0, len(self._data), self._max_frame):
                return True
        size = self._data[self._position : self._position + _SIZE_BYTES]
        whole = len(size) == _SIZE_BYTES
        self._needed = _SIZE_BYTES + (int.from_bytes(size, "big") if whole else 0)
        return False

    def rest(self) -> bytes:
        """Removes and returns all remaining bytes."""
        rest = self._data[self._position :] + bytes(self._more)
        self._data, self._position = b"", 0
        self._more.clear()
        return rest
