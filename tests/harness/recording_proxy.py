"""A proxy in front of a broker that keeps every frame that passes, in order."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import MessageToDict

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

Frame = dict[str, Any]
_MAGIC = b"\x0e\x01"
_ORIGIN = b"\x0e\x02"


def decoded_entry(entry: bytes) -> Frame:
    """Metadata and payload of a stored or sent message.

    :raises DecodeError: the metadata is no ``MessageMetadata``
    """
    found: Frame = {}
    if entry.startswith(_ORIGIN):
        size = int.from_bytes(entry[2:6], "big")
        found["origin"] = entry[6 : 6 + size].hex()
        entry = entry[6 + size :]
    if entry.startswith(_MAGIC):
        entry = entry[6:]
    size = int.from_bytes(entry[:4], "big")
    metadata = MessageMetadata.FromString(entry[4 : 4 + size])
    found["metadata"] = MessageToDict(metadata, preserving_proto_field_name=True)
    found["payload"] = entry[4 + size :].hex()
    return found


def decoded_frame(data: bytes) -> Frame:
    """Command, fields and message of a frame, with its bytes as hexadecimal."""
    size = int.from_bytes(data[4:8], "big")
    command = BaseCommand.FromString(data[8 : 8 + size])
    name = BaseCommand.DESCRIPTOR.fields_by_number[int(command.type)].name
    fields = MessageToDict(getattr(command, name), preserving_proto_field_name=True)
    frame: Frame = {"command": BaseCommand.Type.Name(command.type), "fields": fields}
    if len(data) > 8 + size:
        frame["message"] = decoded_entry(data[8 + size :])
    return frame | {"hex": data.hex()}


class FrameSplitter:
    """Whole frames out of the pieces of a stream."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, piece: bytes) -> list[bytes]:
        self._buffer += piece
        frames = []
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                break
            frames.append(self._buffer[:end])
            self._buffer = self._buffer[end:]
        return frames


class RecordingProxy:
    """Passes connections on to a broker on loopback."""

    def __init__(self, target: int, listening: int = 0) -> None:
        """
        :param target: the broker's port
        :param listening: the proxy's own port; 0: a free one
        """
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", listening))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._connections = 0
        self.name: Callable[[], str] = lambda: "client"
        """The name of whoever connects now."""
        threading.Thread(target=self._accept, daemon=True).start()

    def take(self, quiet_seconds: float = 0.5) -> list[Frame]:
        """The frames since the last call, once none has come for a while."""
        seen = -1
        while seen != len(self._frames):
            seen = len(self._frames)
            time.sleep(quiet_seconds)
        with self._lock:
            frames, self._frames = self._frames, []
        return frames

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _address = self._listener.accept()
            except OSError:  # The proxy is closed.
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except ConnectionRefusedError:  # The broker is down: the client sees the same.
                near.close()
                continue
            self._connections += 1
            label = f"{self.name()} {self._connections}"
            for source, sink, sender in ((near, far, label), (far, near, "broker")):
                threading.Thread(
                    target=self._pass_on, args=(source, sink, label, sender), daemon=True
                ).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, label: str, sender: str) -> None:
        splitter = FrameSplitter()
        while True:
            try:
                piece = source.recv(1 << 20)
            except OSError:
                piece = b""
            for data in splitter.feed(piece):
                frame = decoded_frame(data)
                if frame["command"] not in ("PING", "PONG"):
                    with self._lock:
                        self._frames.append({"connection": label, "from": sender} | frame)
            try:
                if not piece:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(piece)
            except OSError:  # The other side has gone: so does this one.
                source.close()
                return
