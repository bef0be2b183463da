"""A minimal client for measurements: frames over one blocking socket, with many requests in flight."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from magnetar.protocol.frames import decode_command, encode_command, encode_with_payload, split
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

_SECONDS = 120.0
_MAX_FRAME = 64 << 20


class Refused(Exception):
    """The broker answered a request with an error."""


class ScaleClient:
    """A connection; for a single thread."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._arrived: deque[BaseCommand] = deque()
        self._requests = 0
        self.send("CONNECT", "connect", client_version="scale", protocol_version=21)
        self.take("CONNECTED")

    def close(self) -> None:
        self._socket.close()

    def send(self, kind: str, field: str, **fields: Any) -> None:
        command = BaseCommand(type=BaseCommand.Type.Value(kind))
        message = getattr(command, field)
        message.SetInParent()
        for name, value in fields.items():
            setattr(message, name, value)
        self._socket.sendall(encode_command(command))

    def request(self, kind: str, field: str, **fields: Any) -> None:
        self._requests += 1
        self.send(kind, field, request_id=self._requests, **fields)

    def publish(self, producer_ids: Iterable[int], sequence_id: int, payload: bytes) -> int:
        """Publishes one message with each producer; returns their number."""
        metadata = MessageMetadata(producer_name="scale", sequence_id=sequence_id, publish_time=1)
        entry = build_entry(metadata, payload)
        frames = [
            encode_with_payload(
                BaseCommand(type=BaseCommand.SEND, send={"producer_id": number, "sequence_id": sequence_id}),
                entry,
            )
            for number in producer_ids
        ]
        self._socket.sendall(b"".join(frames))
        return len(frames)

    def acknowledge(self, messages: Iterable[BaseCommand]) -> None:
        frames = []
        for found in messages:
            ack = BaseCommand(type=BaseCommand.ACK)
            ack.ack.consumer_id = found.message.consumer_id
            ack.ack.ack_type = 0  # type: ignore[assignment]  # Individual
            ack.ack.message_id.add().CopyFrom(found.message.message_id)
            frames.append(encode_command(ack))
        self._socket.sendall(b"".join(frames))

    def take(self, *kinds: str) -> BaseCommand:
        """Returns the next frame, which must be of one of these kinds.

        :raises Refused: it is of another kind
        """
        for command in self._frames():
            if command.type == BaseCommand.PING:
                self.send("PONG", "pong")
                continue
            if BaseCommand.Type.Name(command.type) not in kinds:
                raise Refused(f"wanted {kinds}: {command}")
            return command
        raise Refused("the broker closed the connection")

    def fileno(self) -> int:
        """Returns the file descriptor, for waiting."""
        return self._socket.fileno()

    def receipts(self) -> int:
        """Waits for frames; returns the number of received receipts.

        :raises Refused: other frames arrived
        """
        count = 0
        while not count or self._arrived:
            self.take("SEND_RECEIPT")
            count += 1
        return count

    def arrived(self, *kinds: str) -> list[BaseCommand]:
        """Waits for frames; returns the received ones, which must be of these kinds.

        :raises Refused: other frames arrived
        """
        found = [self.take(*kinds)]
        while self._arrived:
            found.append(self.take(*kinds))
        return found

    def _frames(self) -> Iterator[BaseCommand]:
        while True:
            while self._arrived:
                yield self._arrived.popleft()
            data = self._socket.recv(1 << 20)
            if not data:
                return
            self._buffer += data
            behind = 0
            for _kind, start, end in split(self._buffer, _MAX_FRAME):
                self._arrived.append(decode_command(self._buffer, start))
                behind = end
            self._buffer = self._buffer[behind:]
