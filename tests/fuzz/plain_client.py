"""A well-behaved client over a real socket, for tests that disturb it."""

from __future__ import annotations

import os
import socket
from collections import deque

from fuzz_broker import framed

from magnetar.protocol.frames import decode_command, split
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

SECONDS = 20.0
_MAX_FRAME = 64 << 20


class PlainClient:
    """Publishes, receives and acknowledges on one topic; any error, loss or other answer fails the test."""

    def __init__(self, port: int, topic: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._buffer = b""
        self._arrived: deque[tuple[BaseCommand, bytes]] = deque()
        self._sequence = 0
        self._say(BaseCommand(type=BaseCommand.CONNECT, connect={"client_version": "plain"}))
        self._take(BaseCommand.CONNECTED)
        producer = {"topic": topic, "producer_id": 1, "request_id": 1}
        self._say(BaseCommand(type=BaseCommand.PRODUCER, producer=producer))
        self._take(BaseCommand.PRODUCER_SUCCESS)
        subscribe = {"topic": topic, "subscription": "s", "consumer_id": 1, "request_id": 2, "subType": 0}
        self._say(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe))
        self._take(BaseCommand.SUCCESS)

    def exchange(self, count: int = 5, size: int = 100) -> None:
        """Messages there and back."""
        self._say(BaseCommand(type=BaseCommand.FLOW, flow={"consumer_id": 1, "messagePermits": count}))
        payloads = [os.urandom(size) for _ in range(count)]
        for payload in payloads:
            self._sequence += 1
            metadata = MessageMetadata(producer_name="g", sequence_id=self._sequence, publish_time=1)
            send = BaseCommand(type=BaseCommand.SEND)
            send.send.producer_id, send.send.sequence_id = 1, self._sequence
            self._say(send, build_entry(metadata, payload))
        receipts, got = [], []
        while len(receipts) < count or len(got) < count:
            command, entry = self._next()
            if command.type == BaseCommand.SEND_RECEIPT:
                receipts.append(command.send_receipt.sequence_id)
            else:
                assert command.type == BaseCommand.MESSAGE, command
                got.append(parse_entry(entry).payload)
                ack = BaseCommand(type=BaseCommand.ACK, ack={"consumer_id": 1, "ack_type": 0})
                ack.ack.message_id.add().CopyFrom(command.message.message_id)
                self._say(ack)
        assert receipts == list(range(self._sequence - count + 1, self._sequence + 1))
        assert got == payloads

    def close(self) -> None:
        self._socket.close()

    def _say(self, command: BaseCommand, entry: bytes = b"") -> None:
        self._socket.sendall(framed(command, entry))

    def _take(self, kind: int) -> None:
        command, _entry = self._next()
        assert command.type == kind, command

    def _next(self) -> tuple[BaseCommand, bytes]:
        """The next frame that is no PING."""
        while True:
            while not self._arrived:
                data = self._socket.recv(1 << 20)
                assert data, "the broker closed a good connection"
                self._buffer += data
                behind = 0
                for _kind, start, end in split(self._buffer, _MAX_FRAME):
                    size = int.from_bytes(self._buffer[start + 4 : start + 8], "big")
                    entry = self._buffer[start + 8 + size : end]
                    self._arrived.append((decode_command(self._buffer, start), entry))
                    behind = end
                self._buffer = self._buffer[behind:]
            found = self._arrived.popleft()
            if found[0].type != BaseCommand.PING:
                return found
            self._say(BaseCommand(type=BaseCommand.PONG, pong={}))
