"""What comes from a client, taken apart: bytes in; runs of SENDs and ACKs, and commands, out.

Nothing here knows of sockets, time or the broker: whoever feeds it decides what is done with what is found,
and when to go on. What has not been taken yet stays, as does the beginning of a frame whose rest is to come.
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
"""What :meth:`Reader.next` finds. BAD_SEND: one whose entry is damaged; COMMAND: anything not per message."""

CHECKSUM_MISMATCH = 1
"""The error of a BAD_SEND whose entry is not what was sent; else it has no readable metadata."""

_NOT_PLAIN = 2
_SEND = BaseCommand.SEND
_ACK = BaseCommand.ACK
_FLOW = BaseCommand.FLOW


class Reader:
    """Of one connection; the runs may be those of others, too: they are done with before the next is read."""

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
        """:param max_frame: the largest frame accepted, in bytes, its size field included"""
        self._max_frame = max_frame
        self.sends = sends
        """The run that was found last; positions are those of ``buffer``."""
        self.acks = acks
        self.flow = (0, 0)
        """The consumer and the permits of the FLOW that was found last."""
        self.entry = b""
        """What was behind the command, where the last COMMAND is a SEND."""
        self.kind = 0
        """The type of the first frame of what was found last."""
        self.buffer = b""
        self.position = 0
        """Where what was not taken yet begins in ``buffer``; it ends at ``limit``."""
        self.limit = 0
        self._pieces: list[bytes] = []
        self._needed = 0
        self.partial = 0
        """Bytes of a frame that has not come whole."""

    def feed(self, data: bytes) -> bool:
        """Takes what the socket had; returns False where a frame still lacks some of its bytes."""
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
        """Takes the next run of frames of one kind, but for a COMMAND: :meth:`command` takes that.

        Asked only while ``position`` is below ``limit``; NOTHING: what is left is the beginning of a frame.

        :param most: SENDs in a run, above 0
        :raises FrameError: what comes next is no frame
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
        """Takes the COMMAND that was found.

        :raises FrameError: it is none
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
        """Forgets all that was not taken."""
        self.buffer = b""
        self.position = self.limit = 0
        self._pieces = []
        self.partial = 0
