"""Parses the bytes that a client sends into runs of SENDs and ACKs, and single commands.

The module does not depend on sockets, time or the broker: the caller handles the frames and decides when to
continue. Frames that were not taken stay in the buffer, as does the beginning of an incomplete frame.
"""

from __future__ import annotations

from magnetar.protocol.frames import decode_command
from magnetar.protocol.hot_codec import (
    AckRun,
    SendRun,
    command_bounds,
    frame_end,
    next_frame,
    read_acks,
    read_flow,
    read_sends,
)
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

NOTHING, SENDS, BAD_SEND, ACKS, FLOW, COMMAND = range(6)
"""Results of :meth:`Reader.next`. BAD_SEND: a SEND with a damaged entry; COMMAND: any other command."""

CHECKSUM_MISMATCH = 1
"""The error of a BAD_SEND whose checksum is wrong; any other error means that its metadata cannot be
parsed.
"""

_NOT_PLAIN = 2
_SEND = BaseCommand.SEND
_ACK = BaseCommand.ACK
_FLOW = BaseCommand.FLOW


class Reader:
    """Parses the frames of one connection. Several readers may use the same ``sends`` and ``acks``, one after
    another."""

    __slots__ = (
        "_max_frame",
        "_needed",
        "_pieces",
        "acks",
        "buffer",
        "entry",
        "flow",
        "kind",
        "limit",
        "partial",
        "position",
        "sends",
    )

    def __init__(self, max_frame: int, sends: SendRun, acks: AckRun) -> None:
        """:param max_frame: the maximum size of a frame in bytes, including its size field"""
        self._max_frame = max_frame
        self.sends = sends
        """The last run found; its offsets refer to ``buffer``."""
        self.acks = acks
        self.flow = (0, 0)
        """Consumer id and permits of the last FLOW found."""
        self.entry = b""
        """The bytes after the command, if the last COMMAND was a SEND."""
        self.kind = 0
        """The type of the first frame of the last result."""
        self.buffer = b""
        self.position = 0
        """The offset in ``buffer`` of the bytes that were not taken yet; they end at ``limit``."""
        self.limit = 0
        self._pieces: list[bytes] = []
        self._needed = 0
        self.partial = 0
        """The number of bytes of an incomplete frame."""

    def feed(self, data: bytes) -> bool:
        """Adds bytes from the socket; returns False if the first frame is still incomplete."""
        if self._pieces:
            self._pieces.append(data)
            self.partial += len(data)
            if self.partial < self._needed:
                return False
            data = b"".join(self._pieces)
            self._pieces = []
            self.partial = 0
        elif self.position < self.limit:
            data = self.buffer[self.position :] + data
        self.buffer = data
        self.position = 0
        self.limit = len(data)
        return True

    def next(self, most: int) -> int:
        """Takes the next run of frames of one kind; a COMMAND is left to :meth:`command`.

        Called only while ``position`` is below ``limit``. Returns NOTHING if the last frame is incomplete.

        :param most: the maximum number of SENDs in a run, above 0
        :raises FrameError: the bytes are not a valid frame
        """
        position, limit, buffer = self.position, self.limit, self.buffer
        kind = self.kind = next_frame(buffer, position, limit, self._max_frame)
        if kind == _SEND:
            sends = self.sends
            after = read_sends(buffer, position, limit, self._max_frame, sends, True, most)
            if sends.count:
                self.position = after
                return SENDS
            if sends.error != _NOT_PLAIN:
                self.position = after
                return BAD_SEND
        elif kind == _ACK:
            after = read_acks(buffer, position, limit, self._max_frame, self.acks)
            if self.acks.count:
                self.position = after
                return ACKS
        elif kind == _FLOW:
            flow = read_flow(buffer, position)
            if flow is not None:
                self.flow = flow
                self.position = frame_end(buffer, position)
                return FLOW
        elif kind == 0:
            self._keep_partial()
            return NOTHING
        return COMMAND

    def command(self) -> BaseCommand:
        """Takes the COMMAND that :meth:`next` found.

        :raises FrameError: the command cannot be parsed
        """
        start = self.position
        command = decode_command(self.buffer, start)
        self.position = frame_end(self.buffer, start)
        if self.kind == _SEND:
            self.entry = self.buffer[command_bounds(self.buffer, start)[1] : self.position]
        return command

    def _keep_partial(self) -> None:
        rest = self.buffer[self.position :]
        self._needed = 4 + int.from_bytes(rest[:4], "big") if len(rest) >= 4 else 4
        self._pieces = [rest]
        self.partial = len(rest)
        self.buffer = b""
        self.position = self.limit = 0

    def drop(self) -> None:
        """Discards everything that was not taken."""
        self.buffer = b""
        self.position = self.limit = 0
        self._pieces = []
        self.partial = 0
