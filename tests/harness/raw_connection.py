"""Frames over a blocking socket, as they are."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from magnetar.protocol.pulsar_api_pb2 import BaseCommand

_SECONDS = 10.0


def sub_message(command: BaseCommand) -> tuple[str, Any]:
    """Field name and message of what a command carries."""
    descriptor = BaseCommand.DESCRIPTOR.fields_by_number[int(command.type)]
    return descriptor.name, getattr(command, descriptor.name)


class RawConnection:
    """Frames over a socket."""

    def __init__(self, port: int, source: str = "") -> None:
        """:param source: the address it comes from; empty: any"""
        own = (source, 0) if source else None
        self._socket = socket.create_connection(("127.0.0.1", port), _SECONDS, own)
        self._buffer = b""

    @staticmethod
    def frame(command: BaseCommand, entry: bytes = b"") -> bytes:
        body = command.SerializeToString()
        return struct.pack(">II", len(body) + 4 + len(entry), len(body)) + body + entry

    def send(self, command: BaseCommand, entry: bytes = b"") -> None:
        self.send_bytes(self.frame(command, entry))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, seconds: float = _SECONDS) -> tuple[BaseCommand, bytes] | None:
        """The next frame; None when the broker closed the connection.

        :raises TimeoutError: nothing came
        """
        end = time.monotonic() + seconds
        while True:
            if len(self._buffer) >= 4:
                size = int.from_bytes(self._buffer[:4], "big") + 4
                if len(self._buffer) >= size:
                    frame, self._buffer = self._buffer[:size], self._buffer[size:]
                    length = int.from_bytes(frame[4:8], "big")
                    return BaseCommand.FromString(frame[8 : 8 + length]), frame[8 + length :]
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                data = self._socket.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._buffer += data

    def expect(self, kind: int) -> Any:
        """The next frame other than PING, which must be of a kind; its message."""
        while True:
            received = self.receive()
            assert received is not None, "the broker closed the connection"
            command, _entry = received
            if command.type == BaseCommand.PING and kind != BaseCommand.PING:
                continue
            assert command.type == kind, command
            return sub_message(command)[1]

    def connect(self) -> Any:
        command = BaseCommand(type=BaseCommand.CONNECT)
        command.connect.client_version = "test"
        command.connect.protocol_version = 21
        self.send(command)
        return self.expect(BaseCommand.CONNECTED)

    def close(self) -> None:
        self._socket.close()
